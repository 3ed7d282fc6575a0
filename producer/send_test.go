package producer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/record"
)

func TestSendSaysWhereTheRecordIs(t *testing.T) {
	f := newFake(t, 1)
	p := start(t, f, producer.Config{})
	for i := range 3 {
		res, err := p.Send(t.Context(), record.Record{
			Topic: "t", Key: []byte("k"), Value: []byte{byte(i)}, Time: time.UnixMilli(int64(i)),
			Headers: []record.Header{{Key: "h", Value: []byte("v")}},
		})
		require.NoError(t, err)
		require.Equal(t, producer.Result{Topic: "t", Offset: record.Offset(i)}, res)
	}
	got := f.log(record.TopicPartition{Topic: "t"}).records(t)
	require.Len(t, got, 3)
	require.Equal(t, []byte("k"), got[2].Key)
	require.Equal(t, []byte{2}, got[2].Value)
	require.Equal(t, "h", got[2].Headers[0].Key)
	require.EqualValues(t, 2, got[2].Time.UnixMilli())
}

func TestBadRecordsAreRefusedWithATypedError(t *testing.T) {
	f := newFake(t, 1)
	p := start(t, f, producer.Config{BatchBytes: 1 << 10})

	_, err := p.Send(t.Context(), record.Record{})
	require.ErrorIs(t, err, record.ErrInvalid)
	require.ErrorContains(t, err, "no topic")

	_, err = p.Send(t.Context(), record.Record{Topic: "missing"})
	require.ErrorIs(t, err, record.ErrUnknownTopic)
	require.ErrorIs(t, err, producer.ErrNotWritten)

	var large *record.TooLargeError
	_, err = p.Send(t.Context(), rec(strings.Repeat("x", 1<<10)))
	require.ErrorAs(t, err, &large)
	require.Equal(t, 1<<10-record.HeaderSize, large.Limit)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.Send(ctx, rec("x"))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, producer.ErrNotWritten)

	require.NoError(t, p.Close(t.Context()))
	_, err = p.Send(t.Context(), rec("x"))
	require.ErrorIs(t, err, record.ErrClosed)
	outs := sendAsync(p, rec("x"))
	require.ErrorIs(t, outs[0].err, record.ErrClosed)
	require.Empty(t, f.tried(), "nothing of it reached the cluster")
}

func TestTheCallerMayReuseItsSlicesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		p := start(t, f, producer.Config{Linger: time.Second})
		key, value := []byte("key"), []byte("value")
		headers := []record.Header{{Key: "h", Value: []byte("header")}}
		p.SendAsync(t.Context(), record.Record{Topic: "t", Key: key, Value: value, Headers: headers}, nil)
		copy(key, "XXX")
		copy(value, "XXXXX")
		copy(headers[0].Value, "XXXXXX")
		headers[0].Key = "X"
		require.NoError(t, p.Flush(t.Context()))
		got := f.log(record.TopicPartition{Topic: "t"}).records(t)
		require.Equal(t, "key", string(got[0].Key))
		require.Equal(t, "value", string(got[0].Value))
		require.Equal(t, []record.Header{{Key: "h", Value: []byte("header")}}, got[0].Headers)
	})
}

func TestWithoutLingerALoneRecordLeavesAtOnceAndOthersGatherBehindIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		f.judge = func(record.TopicPartition, record.Batch) fate { return fate{answer: time.Second} }
		p := start(t, f, producer.Config{})
		begin := time.Now()
		outs := sendAsync(p, rec("0"))
		synctest.Wait()
		require.Len(t, f.tried(), 1)
		require.Equal(t, begin, time.Now())

		outs = append(outs, sendAsync(p, rec("1"), rec("2"), rec("3"))...)
		synctest.Wait()
		require.Len(t, f.tried(), 1)
		require.NoError(t, p.Flush(t.Context()))
		tried := f.tried()
		require.Len(t, tried, 2)
		require.EqualValues(t, 3, tried[1].count)
		for i, o := range outs {
			require.NoError(t, o.err)
			require.EqualValues(t, i, o.res.Offset)
			require.Equal(t, 1, o.calls)
		}
	})
}

func TestALingeringBatchLeavesWhenItsTimeIsUpOrWhenItIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		p := start(t, f, producer.Config{Linger: 100 * time.Millisecond, BatchBytes: 1 << 10})
		begin := time.Now()
		_, err := p.Send(t.Context(), rec("alone"))
		require.NoError(t, err)
		require.Equal(t, 100*time.Millisecond, time.Since(begin))

		begin = time.Now()
		large := strings.Repeat("x", 500)
		sendAsync(p, rec(large), rec(large))
		synctest.Wait()
		require.Len(t, f.tried(), 2, "the third record did not fit, so the second batch left")
		require.Equal(t, begin, time.Now())

		require.NoError(t, p.Flush(t.Context()))
		require.Len(t, f.tried(), 3)
		require.Equal(t, begin, time.Now(), "a flush does not linger")
	})
}

func TestUpToFiveBatchesAreInFlightOnceTheFirstHasSucceeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		release := make(chan struct{})
		f.judge = func(record.TopicPartition, record.Batch) fate { return fate{hold: release} }
		p := start(t, f, producer.Config{BatchBytes: 1 << 10})
		large := strings.Repeat("x", 900)
		for range 10 {
			sendAsync(p, rec(large))
		}
		synctest.Wait()
		require.Len(t, f.tried(), 1, "a leader that knows nothing would take any sequence")
		release <- struct{}{}
		synctest.Wait()
		require.Len(t, f.tried(), 6)
		close(release)
		require.NoError(t, p.Flush(t.Context()))
		for i, try := range f.tried() {
			require.EqualValues(t, i, try.seq)
		}
	})
}

func TestAFullBufferMakesSendsWaitInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		release := make(chan struct{})
		f.judge = func(record.TopicPartition, record.Batch) fate { return fate{hold: release} }
		p := start(t, f, producer.Config{BatchBytes: 1 << 10, BufferBytes: 1 << 10, Linger: time.Second})
		large := rec(strings.Repeat("x", 900))
		sendAsync(p, large)

		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		begin := time.Now()
		var refused error
		p.SendAsync(ctx, large, func(_ producer.Result, err error) { refused = err })
		require.ErrorIs(t, refused, context.DeadlineExceeded)
		require.ErrorIs(t, refused, producer.ErrNotWritten)
		require.Equal(t, 10*time.Second, time.Since(begin), "ctx bounds the wait")

		p.TrySendAsync(t.Context(), large, func(_ producer.Result, err error) { refused = err })
		require.ErrorIs(t, refused, record.ErrOverloaded)
		require.ErrorIs(t, refused, producer.ErrBufferFull)
		var full *producer.BufferFullError
		require.ErrorAs(t, refused, &full)
		require.EqualValues(t, 1<<10, full.Limit)
		require.Less(t, full.Free, full.Need)

		close(release)
		var results [3]error
		for i := range results {
			_, results[i] = p.Send(t.Context(), large)
		}
		require.Equal(t, [3]error{}, results)
	})
}

func TestABufferFullOfLingeringRecordsDoesNotLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, newFake(t, 4), producer.Config{
			BatchBytes: 1 << 10, BufferBytes: 1 << 10, Linger: 20 * time.Second, Partitioner: producer.RoundRobin,
		})
		begin := time.Now()
		for range 9 {
			sendAsync(p, rec(strings.Repeat("x", 400)))
		}
		require.Equal(t, begin, time.Now())
	})
}

func TestSendsInACallbackDoNotBlockThemselves(t *testing.T) {
	p := start(t, newFake(t, 1), producer.Config{BatchBytes: 1 << 10, BufferBytes: 1 << 10})
	large := rec(strings.Repeat("x", 900))
	finished := make(chan error, 1)
	p.SendAsync(t.Context(), large, func(producer.Result, error) {
		for range 5 {
			p.SendAsync(t.Context(), large, nil)
		}
		_, err := p.Send(t.Context(), large)
		finished <- err
	})
	require.NoError(t, <-finished)
}

func TestACancelledSendIsTakenBackIfItWasNotHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		p := start(t, f, producer.Config{Linger: 10 * time.Second})
		early, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		errs := make(chan error, 3)
		send := func(ctx context.Context, value string) {
			go func() {
				_, err := p.Send(ctx, rec(value))
				errs <- err
			}()
			synctest.Wait()
		}
		send(early, "gone")
		err := <-errs
		require.ErrorIs(t, err, producer.ErrNotWritten)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		early, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		send(early, "gone too")
		send(t.Context(), "stays")
		outs := sendAsync(p, rec("last"))
		require.ErrorIs(t, <-errs, producer.ErrNotWritten)
		require.NoError(t, <-errs)
		require.NoError(t, p.Flush(t.Context()))
		require.Equal(t, []string{"stays", "last"}, f.values(0))
		require.EqualValues(t, 1, outs[0].res.Offset)
		require.EqualValues(t, 2, f.tried()[0].count)
	})
}

func TestACancelledSendThatWasHandedOverIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		f.judge = func(record.TopicPartition, record.Batch) fate { return fate{answer: 2 * time.Second} }
		p := start(t, f, producer.Config{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := p.Send(ctx, rec("x"))
		var unknown *record.OutcomeUnknownError
		require.ErrorAs(t, err, &unknown)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, producer.ErrNotWritten)
		require.NoError(t, p.Flush(t.Context()))
		require.Equal(t, []string{"x"}, f.values(0))
	})
}

func TestFlushWaitsForTheCallbacksOfWhatWasSentBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, newFake(t, 1), producer.Config{})
		block := make(chan struct{})
		returned := false
		p.SendAsync(t.Context(), rec("x"), func(producer.Result, error) {
			<-block
			returned = true
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, p.Flush(ctx), context.DeadlineExceeded)
		time.AfterFunc(time.Second, func() { close(block) })
		require.NoError(t, p.Flush(t.Context()))
		require.True(t, returned)
	})
}

func TestCloseWritesWhatIsInTheBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		f.judge = func(record.TopicPartition, record.Batch) fate { return fate{answer: time.Second} }
		p := start(t, f, producer.Config{Linger: 10 * time.Second})
		outs := sendAsync(p, rec("0"), rec("1"))
		require.NoError(t, p.Close(t.Context()))
		require.NoError(t, outs[1].err)
		require.Equal(t, []string{"0", "1"}, f.values(0))
		require.NoError(t, p.Close(t.Context()), "closing again is fine")
	})
}

func TestCloseGivesUpWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 2)
		f.judge = func(tp record.TopicPartition, _ record.Batch) fate {
			if tp.Partition == 0 {
				return fate{refuse: record.ErrUnreachable}
			}
			return fate{never: true}
		}
		p := start(t, f, producer.Config{Partitioner: producer.Manual})
		outs := sendAsync(p, record.Record{Topic: "t"}, record.Record{Topic: "t", Partition: 1})
		blocked := make(chan error)
		go func() {
			_, err := p.Send(context.Background(), record.Record{Topic: "t"})
			blocked <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		require.ErrorIs(t, p.Close(ctx), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(begin))
		require.ErrorIs(t, <-blocked, producer.ErrNotWritten)
		require.NoError(t, p.Flush(t.Context()))
		require.ErrorIs(t, outs[0].err, producer.ErrNotWritten)
		require.ErrorIs(t, outs[0].err, record.ErrClosed)
		require.ErrorIs(t, outs[1].err, record.ErrOutcomeUnknown)
	})
}

func TestCloseWakesSendsThatWaitForSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		release := make(chan struct{})
		f.judge = func(record.TopicPartition, record.Batch) fate { return fate{hold: release} }
		p := start(t, f, producer.Config{BatchBytes: 1 << 10, BufferBytes: 1 << 10})
		large := rec(strings.Repeat("x", 900))
		sendAsync(p, large)
		blocked := make(chan error)
		go func() {
			_, err := p.Send(context.Background(), large)
			blocked <- err
		}()
		synctest.Wait()
		go func() { _ = p.Close(context.Background()) }()
		require.ErrorIs(t, <-blocked, record.ErrClosed)
		close(release)
	})
}

func TestARecordThatLearnsItsTopicDuringCloseIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		learning := make(chan struct{})
		p := start(t, slowToLearn{newFake(t, 1), learning}, producer.Config{})
		result := make(chan error)
		go func() {
			_, err := p.Send(context.Background(), rec("x"))
			result <- err
		}()
		synctest.Wait()
		require.NoError(t, p.Close(t.Context()))
		close(learning)
		require.ErrorIs(t, <-result, record.ErrClosed)
	})
}

// slowToLearn tells the number of partitions only when learning is closed.
type slowToLearn struct {
	*fake
	learning chan struct{}
}

func (c slowToLearn) Layout(ctx context.Context, topic string) (record.TopicID, int, error) {
	<-c.learning
	return c.fake.Layout(ctx, topic)
}

func TestWithoutIdempotenceBatchesCarryNoIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		first := true
		f.judge = func(record.TopicPartition, record.Batch) fate {
			defer func() { first = false }()
			return fate{lost: first}
		}
		f.identities = func() error { return errors.New("not to be asked") }
		p := start(t, f, producer.Config{DisableIdempotence: true, Acks: record.AckLeader})
		_, err := p.Send(t.Context(), rec("x"))
		require.NoError(t, err)
		require.Equal(t, []string{"x", "x"}, f.values(0), "a retry may write twice")
		for _, try := range f.tried() {
			require.Equal(t, record.NoProducerID, try.id)
			require.Equal(t, record.NoSequence, try.seq)
			require.Equal(t, record.AckLeader, try.acks)
		}
	})
}

func TestCompressedBatchesHoldTheSameRecords(t *testing.T) {
	f := newFake(t, 1)
	p := start(t, f, producer.Config{Codec: record.LZ4})
	value := bytes.Repeat([]byte("abc"), 1000)
	_, err := p.Send(t.Context(), record.Record{Topic: "t", Value: value})
	require.NoError(t, err)
	require.Equal(t, []string{string(value)}, f.values(0))
	require.Equal(t, record.LZ4, f.log(record.TopicPartition{Topic: "t"}).batches[0].Codec())
}

func TestSendAsyncAllocatesNothingPerRecord(t *testing.T) {
	f := &instant{}
	p := start(t, f, producer.Config{})
	r := record.Record{Topic: "t", Key: []byte("key"), Value: make([]byte, 100), Time: time.UnixMilli(1)}
	done := func(producer.Result, error) {}
	const n = 10_000
	per := testing.AllocsPerRun(5, func() {
		for range n {
			p.SendAsync(t.Context(), r, done)
		}
	}) / n
	require.Less(t, per, 0.5, fmt.Sprintf("%v allocations per record", per))
}

// instant acknowledges everything at once and looks at nothing.
type instant struct{ end record.Offset }

func (*instant) Layout(context.Context, string) (record.TopicID, int, error) {
	return record.TopicID{}, 1, nil
}

func (*instant) NewProducer(context.Context, string) (record.ProducerID, record.ProducerEpoch, error) {
	return 1, 0, nil
}

func (*instant) RenewProducer(_ context.Context, _ string, id record.ProducerID, epoch record.ProducerEpoch) (record.ProducerID, record.ProducerEpoch, error) {
	return id, epoch + 1, nil
}

func (f *instant) Append(_ context.Context, _ record.TopicID, _ record.TopicPartition, b record.Batch, _ record.Acks, done func(record.Appended, error)) {
	a := record.Appended{BaseOffset: f.end}
	f.end += record.Offset(b.Count())
	done(a, nil)
}

func BenchmarkSendAsync(b *testing.B) {
	for _, linger := range []time.Duration{0, time.Millisecond} {
		b.Run(fmt.Sprintf("linger=%v", linger), func(b *testing.B) {
			p := start(b, &instant{}, producer.Config{Linger: linger})
			r := record.Record{Topic: "t", Key: []byte("key"), Value: make([]byte, 100)}
			done := func(producer.Result, error) {}
			b.SetBytes(100)
			b.ReportAllocs()
			for b.Loop() {
				p.SendAsync(context.Background(), r, done)
			}
			require.NoError(b, p.Flush(context.Background()))
		})
	}
}

func BenchmarkSend(b *testing.B) {
	p := start(b, &instant{}, producer.Config{})
	r := record.Record{Topic: "t", Key: []byte("key"), Value: make([]byte, 100)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Send(context.Background(), r); err != nil {
			b.Fatal(err)
		}
	}
}
