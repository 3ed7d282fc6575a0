package producer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/record"
)

// deduping remembers ids; its batches hold one record each.
func deduping() producer.Config {
	return producer.Config{Name: "n", BatchBytes: 1 << 10, Partitioner: producer.Manual, Dedupe: producer.Dedupe{Header: "id"}}
}

// withID returns a record with an id, which is its value too.
func withID(id string) record.Record {
	r := rec(id + strings.Repeat(".", 700))
	r.Headers = []record.Header{{Key: "other", Value: []byte("x")}, {Key: "id", Value: []byte(id)}}
	return r
}

// send sends in the background.
func send(ctx context.Context, p *producer.Producer, r record.Record) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		res, err := p.Send(ctx, r)
		done <- outcome{res: res, err: err}
	}()
	synctest.Wait()
	return done
}

func TestARecordWithAnIDIsWrittenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 3)
		cfg := deduping()
		cfg.Partitioner = producer.RoundRobin
		p := start(t, f, cfg)
		first, err := p.Send(t.Context(), withID("a"))
		require.NoError(t, err)
		require.False(t, first.Duplicate)
		for range 3 {
			again, err := p.Send(t.Context(), withID("a"))
			require.NoError(t, err)
			require.Equal(t, producer.Result{Topic: "t", Partition: first.Partition, Offset: first.Offset, Duplicate: true}, again)
		}
		outs := sendAsync(p, withID("a"), withID("b"), rec("no id"), rec("no id"))
		require.NoError(t, p.Flush(t.Context()))
		for i, o := range outs {
			require.NoError(t, o.err)
			require.Equal(t, i == 0, o.res.Duplicate)
			require.Equal(t, 1, o.calls)
		}
		all := append(append(f.values(0), f.values(1)...), f.values(2)...)
		require.ElementsMatch(t, []string{"a", "b", "no id", "no id"}, heads(all))
	})
}

func TestAnIDThatIsNoneIsRefused(t *testing.T) {
	p := start(t, newFake(t, 1), deduping())
	for _, id := range []string{"", strings.Repeat("x", 256)} {
		r := rec("v")
		r.Headers = []record.Header{{Key: "id", Value: []byte(id)}}
		_, err := p.Send(t.Context(), r)
		require.ErrorIs(t, err, record.ErrInvalid)
	}
}

func TestARecordWithTheIDOfOneInFlightWaitsForIt(t *testing.T) {
	for name, c := range map[string]struct {
		fate fate
		want error
	}{
		"written": {fate{answer: time.Second}, nil},
		"refused": {fate{refuse: record.ErrInvalid, answer: time.Second}, producer.ErrNotWritten},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, 1)
				p := start(t, f, deduping())
				f.judge = script(c.fate)
				first, second := send(t.Context(), p, withID("a")), send(t.Context(), p, withID("a"))
				third := sendAsync(p, withID("a"))[0]
				require.NoError(t, p.Flush(t.Context()))
				for i, o := range []outcome{<-first, <-second, *third} {
					require.ErrorIs(t, o.err, c.want)
					require.Equal(t, c.want == nil && i > 0, o.res.Duplicate)
				}
				require.Len(t, f.tried(), 1)

				res, err := p.Send(t.Context(), withID("a"))
				require.NoError(t, err)
				require.Equal(t, c.want == nil, res.Duplicate, "what was not written may be sent again")
				require.Equal(t, []string{"a"}, heads(f.values(0)))
			})
		})
	}
}

func TestTheNextHolderOfTheNameKnowsWhatWasWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 2)
		other := start(t, f, producer.Config{})
		_, err := other.Send(t.Context(), withID("of another producer"))
		require.NoError(t, err)

		cfg := deduping()
		cfg.Codec = record.LZ4
		p := start(t, f, cfg)
		for i := range 20 {
			r := withID(fmt.Sprint(i))
			r.Partition = int32(i % 2)
			_, err := p.Send(t.Context(), r)
			require.NoError(t, err)
		}
		require.NoError(t, p.Close(t.Context()))

		p = start(t, f, cfg)
		for i := range 20 { // partition 0, whatever it was before
			res, err := p.Send(t.Context(), withID(fmt.Sprint(i)))
			require.NoError(t, err)
			require.True(t, res.Duplicate)
			require.EqualValues(t, i%2, res.Partition)
		}
		for _, id := range []string{"20", "of another producer"} {
			res, err := p.Send(t.Context(), withID(id))
			require.NoError(t, err)
			require.False(t, res.Duplicate)
		}
	})
}

func TestIDsAreForgottenByAgeAndByCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		cfg := deduping()
		cfg.Dedupe.Age, cfg.Dedupe.Count = time.Hour, 3
		p := start(t, f, cfg)
		duplicate := func(id string) bool {
			res, err := p.Send(t.Context(), withID(id))
			require.NoError(t, err)
			return res.Duplicate
		}
		for _, id := range []string{"a", "b", "c"} {
			require.False(t, duplicate(id))
		}
		require.True(t, duplicate("a"))
		require.False(t, duplicate("d"))
		require.False(t, duplicate("a"), "it was the oldest of four")
		require.True(t, duplicate("c"))
		time.Sleep(59 * time.Minute) // virtual
		require.True(t, duplicate("d"))
		time.Sleep(time.Minute)
		require.False(t, duplicate("d"))

		require.NoError(t, p.Close(t.Context()))
		p = start(t, f, cfg)
		require.True(t, duplicate("d"))
		require.False(t, duplicate("b"), "there are three behind it")
	})
}

func TestARecordOfUnknownOutcomeIsKnownAgainWhenItComesAgain(t *testing.T) {
	for name, c := range map[string]struct {
		fate      fate
		duplicate bool
	}{
		"answers lost": {fate{lost: true}, true},
		"swallowed":    {fate{never: true}, true}, // the retry was written by then
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, 1)
				p := start(t, f, deduping())
				_, err := p.Send(t.Context(), rec("0"))
				require.NoError(t, err)
				healed := time.Now().Add(100 * time.Second)
				f.judge = func(record.TopicPartition, record.Batch) fate {
					if time.Now().Before(healed) {
						return c.fate
					}
					return fate{}
				}
				for range 3 { // at 30, 60, 90 seconds
					_, err = p.Send(t.Context(), withID("a"))
					require.ErrorIs(t, err, record.ErrOutcomeUnknown)
					require.ErrorIs(t, err, producer.ErrDeliveryTimeout)
				}
				short, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err = p.Send(short, withID("a"))
				require.ErrorIs(t, err, record.ErrOutcomeUnknown)
				require.ErrorIs(t, err, context.DeadlineExceeded)

				outs := sendAsync(p, withID("a"), withID("b"))
				require.NoError(t, p.Flush(t.Context()))
				require.NoError(t, outs[0].err)
				require.NoError(t, outs[1].err)
				require.Equal(t, c.duplicate, outs[0].res.Duplicate)
				require.EqualValues(t, 1, outs[0].res.Offset)
				require.Equal(t, []string{"0", "a", "b"}, heads(f.values(0)))
			})
		})
	}
}

// The batch with the id is behind a gap, so it is given up with an unknown
// outcome. The log tells as soon as a batch of the next epoch is in it.
func TestAnIDBehindAGapIsLookedUpInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		p := start(t, f, deduping())
		_, err := p.Send(t.Context(), rec("0"))
		require.NoError(t, err)
		f.judge = script(fate{refuse: record.ErrInvalid, answer: time.Second}, fate{never: true})
		outs := sendAsync(p, alone("refused"), withID("a"))
		require.NoError(t, p.Flush(t.Context()))
		require.ErrorIs(t, outs[1].err, record.ErrOutcomeUnknown)

		_, err = p.Send(t.Context(), withID("a"))
		require.ErrorIs(t, err, record.ErrOutcomeUnknown, "it may still arrive")
		_, err = p.Send(t.Context(), rec("1"))
		require.NoError(t, err)
		f.reading = func() error { return record.ErrUnreachable }
		_, err = p.Send(t.Context(), withID("a"))
		require.ErrorIs(t, err, record.ErrOutcomeUnknown)
		require.ErrorIs(t, err, record.ErrUnreachable)
		f.reading = nil
		res, err := p.Send(t.Context(), withID("a"))
		require.NoError(t, err)
		require.Equal(t, producer.Result{Topic: "t", Offset: 2}, res)
		require.Equal(t, []string{"0", "1", "a"}, heads(f.values(0)))
	})
}

// Another partition's gap makes the producer take a new epoch, for which it does
// not wait until a batch in doubt is decided.
func TestAnIDInDoubtDoesNotHoldUpTheNextEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 2)
		p := start(t, f, deduping())
		in := func(partition int32, r record.Record) record.Record {
			r.Partition = partition
			return r
		}
		for n := range int32(2) {
			_, err := p.Send(t.Context(), in(n, rec("0")))
			require.NoError(t, err)
		}
		_, err := p.Send(t.Context(), rec("lost"))
		require.NoError(t, err)
		deaf := true
		f.judge = func(tp record.TopicPartition, _ record.Batch) fate {
			return fate{lost: deaf && tp.Partition == 1}
		}
		_, err = p.Send(t.Context(), in(1, withID("a"))) // it is written, but no answer comes
		require.ErrorIs(t, err, record.ErrOutcomeUnknown)
		f.log(record.TopicPartition{Topic: "t"}).forget(1)
		begin := time.Now()
		_, err = p.Send(t.Context(), rec("1"))
		require.NoError(t, err)
		require.Less(t, time.Since(begin), time.Second)

		deaf = false
		_, err = p.Send(t.Context(), in(1, rec("2")))
		require.NoError(t, err)
		res, err := p.Send(t.Context(), in(1, withID("a")))
		require.NoError(t, err)
		require.Equal(t, producer.Result{Topic: "t", Partition: 1, Offset: 1, Duplicate: true}, res)
		require.Equal(t, []string{"0", "a", "2"}, heads(f.values(1)))
	})
}

func TestACancelledRecordIsNotTakenBackFromThoseWhoWaitForItsID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		cfg := deduping()
		cfg.BatchBytes, cfg.Linger = 0, 10*time.Second
		p := start(t, f, cfg)
		_, err := p.Send(t.Context(), rec("0"))
		require.NoError(t, err)
		early, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		alone, followed := send(early, p, withID("alone")), send(early, p, withID("followed"))
		follower := send(t.Context(), p, withID("followed"))
		require.ErrorIs(t, (<-alone).err, producer.ErrNotWritten)
		require.ErrorIs(t, (<-followed).err, record.ErrOutcomeUnknown)
		again := send(t.Context(), p, withID("alone"))
		o := <-follower
		require.NoError(t, o.err)
		require.Equal(t, producer.Result{Topic: "t", Offset: 1, Duplicate: true}, o.res)
		o = <-again
		require.NoError(t, o.err)
		require.Equal(t, producer.Result{Topic: "t", Offset: 2}, o.res)
		require.Equal(t, []string{"0", "followed", "alone"}, heads(f.values(0)))
	})
}

func TestTheIDsOfATopicThatIsMadeAnewAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 2)
		p := start(t, f, deduping())
		_, err := p.Send(t.Context(), withID("a"))
		require.NoError(t, err)
		f.remake(0)
		_, err = p.Send(t.Context(), withID("a"))
		require.ErrorIs(t, err, record.ErrUnknownTopic)
		f.remake(1)
		for i := range 2 {
			res, err := p.Send(t.Context(), withID("a"))
			require.NoError(t, err)
			require.Equal(t, i == 1, res.Duplicate)
		}
		f.remake(1)
		res, err := p.Send(t.Context(), withID("a"))
		require.NoError(t, err)
		require.False(t, res.Duplicate)
	})
}

func TestWithoutTheIDsOfTheLogNoRecordWithAnIDIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		p := start(t, f, deduping())
		unreachable := true
		f.reading = func() error {
			if unreachable {
				return record.ErrUnreachable
			}
			return nil
		}
		_, err := p.Send(t.Context(), withID("a"))
		require.ErrorIs(t, err, producer.ErrNotWritten)
		require.ErrorIs(t, err, record.ErrUnreachable)
		_, err = p.Send(t.Context(), rec("no id"))
		require.NoError(t, err)
		unreachable = false
		_, err = p.Send(t.Context(), withID("a"))
		require.NoError(t, err)

		f.identities = func() error { return record.ErrUnreachable }
		cfg := deduping()
		cfg.Name, cfg.DeliveryTimeout = "m", 3*time.Second
		p = start(t, f, cfg)
		_, err = p.Send(t.Context(), withID("a"))
		require.ErrorIs(t, err, record.ErrUnreachable)
		require.ErrorIs(t, err, producer.ErrNotWritten)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = p.Send(short, withID("a"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, producer.ErrNotWritten)
	})
}

// TestChaosWritesNoIDTwice has clients that send each record again until they
// know that it is written, over producers that come and go.
func TestChaosWritesNoIDTwice(t *testing.T) {
	for _, seed := range seeds(t, 40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newChaos(t, seed, time.Minute)
				c.refusing = true
				cfg := c.config()
				cfg.Name, cfg.DeliveryTimeout = "n", time.Duration(1+c.roll(5))*time.Second
				cfg.Dedupe = producer.Dedupe{Header: "id", Age: time.Hour}
				cfg.Partitioner = producer.RoundRobin
				var all []string
				for life := range 3 {
					all = append(all, c.insist(cfg, life)...)
					time.Sleep(10 * time.Second) // virtual: what is under way arrives
				}
				var got []string
				for n := range int32(c.fake.partitions) {
					got = append(got, c.fake.values(n)...)
				}
				got = slices.DeleteFunc(heads(got), func(v string) bool { return v == "filler" })
				require.ElementsMatch(t, all, got)
			})
		})
	}
}

// insist sends records, the last ones of the life before among them, until each
// is known to be written.
func (c *chaos) insist(cfg producer.Config, life int) (fresh []string) {
	p, err := producer.New(c.fake, cfg)
	require.NoError(c.t, err)
	var wg sync.WaitGroup
	for s := range 4 {
		for i := range 20 {
			if life > 0 && i < 10 {
				id := fmt.Sprintf("%d-%d-%d", life-1, s, 10+i)
				wg.Go(func() { c.sendUntilWritten(p, id, true) })
				continue
			}
			id := fmt.Sprintf("%d-%d-%d", life, s, i)
			fresh = append(fresh, id)
			wg.Go(func() { c.sendUntilWritten(p, id, false) })
		}
	}
	wg.Wait()
	require.NoError(c.t, p.Close(c.t.Context()))
	return fresh
}

func (c *chaos) sendUntilWritten(p *producer.Producer, id string, before bool) {
	for deadline := time.Now().Add(10 * time.Minute); ; { // well within Dedupe.Age
		ctx, cancel := context.WithTimeout(c.t.Context(), c.upTo(3*time.Second))
		res, err := p.Send(ctx, withID(id))
		cancel()
		switch {
		case err == nil && before && !res.Duplicate:
			c.t.Errorf("%s was written in the life before", id)
			return
		case err == nil:
			return
		case errors.Is(err, producer.ErrNotWritten) == errors.Is(err, record.ErrOutcomeUnknown):
			c.t.Errorf("%s is neither or both: %v", id, err)
			return
		case time.Now().After(deadline):
			c.t.Errorf("%s: no end: %v", id, err)
			return
		}
		p.SendAsync(c.t.Context(), rec("filler"), nil) // an outcome is decided when something follows
		time.Sleep(c.upTo(100 * time.Millisecond))     // virtual
	}
}
