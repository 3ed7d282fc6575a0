package producer_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/record"
)

// script gives the tries their fates in the order they come; after the last
// all goes well.
func script(fates ...fate) func(record.TopicPartition, record.Batch) fate {
	return func(record.TopicPartition, record.Batch) fate {
		if len(fates) == 0 {
			return fate{}
		}
		next := fates[0]
		fates = fates[1:]
		return next
	}
}

// alone pads value so that the record fills a batch of 1 KiB.
func alone(value string) record.Record { return rec(value + strings.Repeat(".", 900)) }

// heads returns values without the padding.
func heads(values []string) []string {
	for i, v := range values {
		values[i] = strings.TrimRight(v, ".")
	}
	return values
}

// small makes batches of one record each that leave at once.
var small = producer.Config{BatchBytes: 1 << 10}

var (
	notLeader = &record.NotLeaderError{TopicPartition: record.TopicPartition{Topic: "t"}}
	tooMuch   = record.ErrOverloaded
)

func TestAPassingFailureIsRepeatedUnderTheSameSequence(t *testing.T) {
	for name, failure := range map[string]fate{
		"not the leader":     {refuse: notLeader},
		"unreachable":        {refuse: record.ErrUnreachable},
		"overloaded":         {refuse: tooMuch},
		"node closed":        {refuse: record.ErrClosed},
		"topic not yet seen": {refuse: &record.UnknownTopicError{Topic: "t", Partition: 0}},
		"swallowed":          {never: true},
		"never heard of":     {refuse: errors.New("disk on fire")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, 1)
				f.judge = script(failure, failure)
				p := start(t, f, producer.Config{})
				res, err := p.Send(t.Context(), rec("x"))
				require.NoError(t, err)
				require.Equal(t, producer.Result{Topic: "t"}, res)
				tried := f.tried()
				require.Len(t, tried, 3)
				require.Equal(t, tried[0], tried[1])
				require.Equal(t, tried[0], tried[2])
			})
		})
	}
}

func TestARetryOfWhatWasWrittenIsADuplicateAtItsFirstOffset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		f.judge = script(fate{}, fate{lost: true})
		p := start(t, f, producer.Config{})
		_, err := p.Send(t.Context(), rec("0"))
		require.NoError(t, err)
		res, err := p.Send(t.Context(), rec("1"))
		require.NoError(t, err)
		require.Equal(t, producer.Result{Topic: "t", Offset: 1, Duplicate: true}, res)
		require.Equal(t, []string{"0", "1"}, f.values(0))
	})
}

func TestADuplicateOlderThanTheWindowIsASuccessWithoutAnOffset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		f.judge = script(fate{refuse: record.ErrDuplicate})
		p := start(t, f, producer.Config{})
		res, err := p.Send(t.Context(), rec("x"))
		require.NoError(t, err)
		require.Equal(t, producer.Result{Topic: "t", Offset: record.NoOffset, Duplicate: true}, res)
	})
}

// The first of five batches fails, so the leader refuses those behind it, or
// they come first, or their answers do: each time the order stands.
func TestFiveBatchesInFlightKeepTheirOrder(t *testing.T) {
	for name, fates := range map[string][]fate{
		"first refused":               {{refuse: notLeader}},
		"first refused late":          {{arrive: time.Second}, {}, {}, {}, {}},
		"middle refused":              {{}, {}, {refuse: tooMuch}},
		"first answer lost":           {{lost: true}},
		"first answer lost, late":     {{lost: true, answer: time.Second}},
		"answers in reverse":          {{answer: 5 * time.Second}, {answer: 4 * time.Second}, {answer: 3 * time.Second}, {answer: 2 * time.Second}},
		"arrivals in reverse":         {{arrive: 5 * time.Second}, {arrive: 4 * time.Second}, {arrive: 3 * time.Second}, {arrive: 2 * time.Second}},
		"first swallowed":             {{never: true}},
		"all swallowed, twice":        {{never: true}, {never: true}, {never: true}, {never: true}, {never: true}, {never: true}, {never: true}},
		"first again and again":       {{refuse: notLeader}, {}, {}, {}, {}, {refuse: notLeader}, {}, {}, {}, {}, {refuse: notLeader}},
		"first arrives after a retry": {{arrive: 8 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, 1)
				p := start(t, f, small)
				_, err := p.Send(t.Context(), rec("first"))
				require.NoError(t, err)
				f.judge = script(fates...)
				outs := sendAsync(p, alone("1"), alone("2"), alone("3"), alone("4"), alone("5"), alone("6"), alone("7"))
				require.NoError(t, p.Flush(t.Context()))
				require.Equal(t, []string{"first", "1", "2", "3", "4", "5", "6", "7"}, heads(f.values(0)))
				for i, o := range outs {
					require.NoError(t, o.err)
					require.EqualValues(t, i+1, o.res.Offset)
					require.Equal(t, 1, o.calls)
				}
				for _, try := range f.tried() {
					require.Equal(t, f.tried()[0].id, try.id, "one identity throughout")
				}
			})
		})
	}
}

func TestAfterAFailureNothingIsSentBeforeAllAnswersAreThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		p := start(t, f, small)
		_, err := p.Send(t.Context(), rec("0"))
		require.NoError(t, err)
		f.judge = script(fate{answer: 2 * time.Second}, fate{refuse: tooMuch, answer: time.Second})
		sendAsync(p, alone("1"), alone("2"), alone("3"))
		<-time.After(1500 * time.Millisecond)
		sendAsync(p, alone("4"))
		synctest.Wait()
		require.Len(t, f.tried(), 3)
		require.NoError(t, p.Flush(t.Context()))
		require.Equal(t, []string{"0", "1", "2", "3", "4"}, heads(f.values(0)))
	})
}

func TestRetriesBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		f.judge = func(record.TopicPartition, record.Batch) fate { return fate{refuse: notLeader} }
		p := start(t, f, producer.Config{DeliveryTimeout: 10 * time.Second})
		_, err := p.Send(t.Context(), rec("x"))
		require.ErrorIs(t, err, producer.ErrDeliveryTimeout)
		require.Greater(t, len(f.tried()), 15)
		require.Less(t, len(f.tried()), 60)
	})
}

func TestAtTheDeliveryTimeoutTheErrorSaysWhetherItMayBeWritten(t *testing.T) {
	for name, c := range map[string]struct {
		fate fate
		want error
	}{
		"always refused": {fate{refuse: notLeader}, producer.ErrNotWritten},
		"swallowed":      {fate{never: true}, record.ErrOutcomeUnknown},
		"leader lost":    {fate{refuse: &record.OutcomeUnknownError{Err: notLeader}}, record.ErrOutcomeUnknown},
		"never answered": {fate{lost: true, answer: time.Hour}, record.ErrOutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, 1)
				f.judge = func(record.TopicPartition, record.Batch) fate { return c.fate }
				p := start(t, f, producer.Config{})
				begin := time.Now()
				sentLater := sendAsync(p, rec("x"), alone("y"))
				_, err := p.Send(t.Context(), rec("x"))
				require.Equal(t, 30*time.Second, time.Since(begin))
				require.NoError(t, p.Flush(t.Context()))
				require.ErrorIs(t, err, producer.ErrDeliveryTimeout)
				require.ErrorIs(t, sentLater[0].err, producer.ErrDeliveryTimeout)
				require.ErrorIs(t, sentLater[0].err, c.want)
				for _, err := range []error{err, sentLater[0].err, sentLater[1].err} {
					require.NotEqual(t, errors.Is(err, producer.ErrNotWritten), errors.Is(err, record.ErrOutcomeUnknown), "it is one or the other")
				}
				if c.fate.refuse == notLeader {
					require.ErrorIs(t, err, record.ErrNotLeader, "the cause is told")
				}
			})
		})
	}
}

func TestWithoutAnIdentityRecordsWaitAndAreNotWrittenInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		var healed atomic.Bool
		f.identities = func() error {
			if !healed.Load() {
				return record.ErrUnreachable
			}
			return nil
		}
		p := start(t, f, producer.Config{})
		_, err := p.Send(t.Context(), rec("x"))
		require.ErrorIs(t, err, producer.ErrNotWritten)
		require.ErrorIs(t, err, record.ErrUnreachable)
		time.AfterFunc(10*time.Second, func() { healed.Store(true) })
		_, err = p.Send(t.Context(), rec("y"))
		require.NoError(t, err)
		require.Equal(t, []string{"y"}, f.values(0))
	})
}

// The second of three batches in flight is refused for good. The third can
// never follow it under the old identity, and must not be lost or stuck.
func TestAfterAGapTheRestIsSentUnderANewIdentity(t *testing.T) {
	for name, named := range map[string]string{"without a name": "", "with a name": "n"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, 1)
				cfg := small
				cfg.Name = named
				p := start(t, f, cfg)
				_, err := p.Send(t.Context(), rec("0"))
				require.NoError(t, err)
				f.judge = script(fate{answer: time.Second}, fate{refuse: record.ErrInvalid})
				outs := sendAsync(p, alone("1"), alone("2"), alone("3"), alone("4"), alone("5"))
				require.NoError(t, p.Flush(t.Context()))
				require.ErrorIs(t, outs[1].err, producer.ErrNotWritten)
				require.ErrorIs(t, outs[1].err, record.ErrInvalid)
				require.Equal(t, []string{"0", "1", "3", "4", "5"}, heads(f.values(0)))
				require.EqualValues(t, 2, outs[2].res.Offset)

				first, last := f.tried()[0], f.tried()[len(f.tried())-1]
				if named == "" {
					require.NotEqual(t, first.id, last.id)
				} else {
					require.Equal(t, first.id, last.id)
					require.Equal(t, first.epoch+1, last.epoch)
				}
				_, err = p.Send(t.Context(), rec("6"))
				require.NoError(t, err)
			})
		})
	}
}

// Behind a gap a batch that may have been written is not sent again.
func TestBehindAGapAnUnknownOutcomeStaysUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		p := start(t, f, small)
		_, err := p.Send(t.Context(), rec("0"))
		require.NoError(t, err)
		f.judge = script(fate{refuse: record.ErrInvalid, answer: time.Second}, fate{never: true})
		outs := sendAsync(p, alone("1"), alone("2"), alone("3"))
		require.NoError(t, p.Flush(t.Context()))
		require.ErrorIs(t, outs[0].err, producer.ErrNotWritten)
		require.ErrorIs(t, outs[1].err, record.ErrOutcomeUnknown)
		require.NoError(t, outs[2].err)
		require.Equal(t, []string{"0", "3"}, heads(f.values(0)))
	})
}

// A new epoch fences what is in flight under the old one, so a named producer
// waits for it in all partitions.
func TestANamedProducerTakesItsNextEpochWhenNothingIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 2)
		cfg := small
		cfg.Name, cfg.Partitioner = "n", producer.Manual
		p := start(t, f, cfg)
		other := alone("other")
		other.Partition = 1
		for _, r := range []record.Record{alone("0"), other} {
			_, err := p.Send(t.Context(), r)
			require.NoError(t, err)
		}
		f.judge = script(fate{lost: true, answer: time.Second}, fate{refuse: record.ErrInvalid})
		outs := sendAsync(p, other, alone("refused"), other, alone("1"))
		<-time.After(500 * time.Millisecond)
		outs = append(outs, sendAsync(p, other)...)
		synctest.Wait()
		require.Zero(t, f.tried()[len(f.tried())-1].epoch, "the new epoch waits for the other partition")
		require.NoError(t, p.Flush(t.Context()))
		require.NoError(t, outs[0].err)
		require.True(t, outs[0].res.Duplicate)
		require.ErrorIs(t, outs[1].err, producer.ErrNotWritten)
		require.NoError(t, outs[2].err)
		require.NoError(t, outs[3].err)
		require.Equal(t, []string{"0", "1"}, heads(f.values(0)))
		require.Equal(t, []string{"other", "other", "other", "other"}, heads(f.values(1)))
		for _, b := range []record.Batch{
			f.log(record.TopicPartition{Topic: "t", Partition: 0}).batches[1],
			f.log(record.TopicPartition{Topic: "t", Partition: 1}).batches[2],
		} {
			require.EqualValues(t, 1, b.ProducerEpoch(), "and what is sent after the gap waits for it")
			require.EqualValues(t, 0, b.BaseSequence())
		}
	})
}

// The leader has lost what it acknowledged: its sequences are behind ours.
func TestALeaderThatForgotTheLastBatchesDoesNotStopTheProducer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		p := start(t, f, producer.Config{})
		_, err := p.Send(t.Context(), rec("0"))
		require.NoError(t, err)
		_, err = p.Send(t.Context(), rec("lost"))
		require.NoError(t, err)
		f.log(record.TopicPartition{Topic: "t"}).forget(1)
		_, err = p.Send(t.Context(), rec("2"))
		require.NoError(t, err)
		require.Equal(t, []string{"0", "2"}, f.values(0))
	})
}

func TestAFencedProducerIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 2)
		old := start(t, f, producer.Config{Name: "n", Partitioner: producer.Manual})
		_, err := old.Send(t.Context(), rec("0"))
		require.NoError(t, err)
		young := start(t, f, producer.Config{Name: "n", Partitioner: producer.Manual})
		_, err = young.Send(t.Context(), rec("1"))
		require.NoError(t, err)

		f.judge = func(tp record.TopicPartition, _ record.Batch) fate {
			if tp.Partition == 1 {
				return fate{lost: true, answer: time.Second}
			}
			return fate{answer: 100 * time.Millisecond}
		}
		outs := sendAsync(old, record.Record{Topic: "t", Partition: 1}, rec("2"), rec("3"))
		require.NoError(t, old.Flush(t.Context()))
		require.ErrorIs(t, outs[0].err, record.ErrOutcomeUnknown)
		for _, o := range outs[1:] {
			require.ErrorIs(t, o.err, record.ErrFenced)
			require.ErrorIs(t, o.err, producer.ErrNotWritten)
		}
		_, err = old.Send(t.Context(), rec("4"))
		require.ErrorIs(t, err, record.ErrFenced)
		require.Equal(t, []string{"0", "1"}, f.values(0))
	})
}

// A named producer that needs another epoch must not take the name back.
func TestAProducerThatLostItsPlaceDoesNotFenceTheNewerHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 2)
		cfg := producer.Config{Name: "n", Partitioner: producer.Manual}
		old := start(t, f, cfg)
		_, err := old.Send(t.Context(), rec("0"))
		require.NoError(t, err)
		_, err = old.Send(t.Context(), rec("lost"))
		require.NoError(t, err)
		f.log(record.TopicPartition{Topic: "t"}).forget(1)

		young := start(t, f, cfg)
		elsewhere := record.Record{Topic: "t", Partition: 1}
		_, err = young.Send(t.Context(), elsewhere)
		require.NoError(t, err)

		_, err = old.Send(t.Context(), rec("2")) // partition 0 knows only the old epoch
		var fenced *record.FencedError
		require.ErrorAs(t, err, &fenced)
		require.Contains(t, fenced.What, `"n"`)
		require.ErrorIs(t, err, producer.ErrNotWritten)
		_, err = young.Send(t.Context(), rec("1"))
		require.NoError(t, err)
		require.Equal(t, []string{"0", "1"}, f.values(0))
	})
}

func TestWithoutRetriesARecordIsTriedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		f.judge = script(fate{refuse: notLeader}, fate{lost: true})
		p := start(t, f, producer.Config{DisableIdempotence: true, NoRetries: true})
		_, err := p.Send(t.Context(), rec("0"))
		require.ErrorIs(t, err, producer.ErrNotWritten)
		require.ErrorIs(t, err, record.ErrNotLeader)
		_, err = p.Send(t.Context(), rec("1"))
		require.ErrorIs(t, err, record.ErrOutcomeUnknown)
		_, err = p.Send(t.Context(), rec("2"))
		require.NoError(t, err)
		require.Equal(t, []string{"1", "2"}, f.values(0))
		require.Len(t, f.tried(), 3)
	})
}

func TestASecondAnswerToOneTryIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, twice{newFake(t, 1)}, producer.Config{})
		for i := range 3 {
			res, err := p.Send(t.Context(), rec("x"))
			require.NoError(t, err)
			require.EqualValues(t, i, res.Offset)
		}
	})
}
