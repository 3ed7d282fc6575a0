package consumer

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

// want is what fill has put into offsets [from, to) of partition p.
func want(p, from, to int) []string {
	var w []string
	for o := from; o < to; o++ {
		w = append(w, fmt.Sprintf("%d:%d", p, o))
	}
	return w
}

func TestReadUntilEndGivesEveryPartitionInOrder(t *testing.T) {
	m := newMemory("orders", 3)
	m.fill(t, "orders", 25, 4)
	var got []string
	for r, err := range Read(t.Context(), m, "orders", UntilEnd(), MaxBytes(200)) {
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("%d:%d", r.Partition, r.Offset), string(r.Value))
		require.Equal(t, "orders", r.Topic)
		require.Equal(t, r.Key, r.Value)
		got = append(got, string(r.Value))
	}
	require.Equal(t, append(append(want(0, 0, 25), want(1, 0, 25)...), want(2, 0, 25)...), got)
}

func TestReadUntilEndStopsAtTheEndAsItWas(t *testing.T) {
	m := newMemory("orders", 1)
	m.fill(t, "orders", 10, 5)
	var got []string
	for r, err := range Read(t.Context(), m, "orders", UntilEnd(), MaxBytes(1)) {
		require.NoError(t, err)
		got = append(got, string(r.Value))
		m.fill(t, "orders", 1, 1) // a reader that chases the end would never finish
	}
	require.Equal(t, want(0, 0, 10), got)
}

func TestReadOfAnEmptyTopicUntilEndIsEmpty(t *testing.T) {
	m := newMemory("orders", 2)
	_, err := collect(Read(t.Context(), m, "orders", UntilEnd()), 1)
	require.ErrorIs(t, err, errEndOfSequence)
}

func TestReadOfOnePartitionFromAnOffsetInsideABatch(t *testing.T) {
	m := newMemory("orders", 2)
	m.fill(t, "orders", 20, 10)
	got, err := collect(Read(t.Context(), m, "orders", Partition(1), FromOffset(7), UntilEnd()), 100)
	require.ErrorIs(t, err, errEndOfSequence)
	require.Equal(t, want(1, 7, 20), got)
}

func TestReadFromTheEndItselfUntilEndIsEmpty(t *testing.T) {
	m := newMemory("orders", 1)
	m.fill(t, "orders", 20, 10)
	for _, from := range []ReadOption{FromOffset(20), FromEnd()} {
		_, err := collect(Read(t.Context(), m, "orders", from, UntilEnd()), 1)
		require.ErrorIs(t, err, errEndOfSequence)
	}
}

func TestEachLoopOverASequenceIsANewRead(t *testing.T) {
	m := newMemory("orders", 1)
	seq := Read(t.Context(), m, "orders", UntilEnd())
	for n := range 3 {
		got, err := collect(seq, 100)
		require.ErrorIs(t, err, errEndOfSequence)
		require.Equal(t, want(0, 0, n), got)
		m.fill(t, "orders", 1, 1)
	}
}

func TestLiveReadWaitsForRecordsOfAllPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory("orders", 2)
		m.fill(t, "orders", 3, 2)
		records, failed := make(chan string), make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for r, err := range Read(ctx, m, "orders", FromEnd()) {
				if err != nil {
					failed <- err
					return
				}
				records <- string(r.Value)
			}
		}()
		synctest.Wait() // the read has begun, and with it the end is fixed
		m["orders"][1].fill(t, 1, 1)
		require.Equal(t, "1:3", <-records)
		m["orders"][0].fill(t, 1, 1)
		require.Equal(t, "0:3", <-records)
		cancel()
		require.ErrorIs(t, <-failed, context.Canceled)
	})
}

func TestLeavingTheLoopEndsTheFetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // fails when a goroutine is left
		m := newMemory("orders", 4)
		m.fill(t, "orders", 100, 1)
		for _, end := range []ReadOption{UntilEnd(), FromStart()} {
			n := 0
			for _, err := range Read(context.Background(), m, "orders", MaxBytes(1), end) {
				require.NoError(t, err)
				if n++; n == 10 {
					break
				}
			}
			require.Equal(t, 10, n)
		}
	})
}

func TestPanicInTheLoopEndsTheFetches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory("orders", 4)
		m.fill(t, "orders", 100, 1)
		require.PanicsWithValue(t, "stop", func() {
			for range Read(context.Background(), m, "orders") {
				panic("stop")
			}
		})
	})
}

func TestReadSkipsControlBatchesAndMovesOn(t *testing.T) {
	m := newMemory("orders", 1)
	p := m["orders"][0]
	marker := func() {
		p.append(batch(t, record.BatchOptions{Control: true, Transactional: true}, "marker"))
	}
	p.fill(t, 2, 2)
	marker()
	p.fill(t, 1, 1)
	marker()
	got, err := collect(Read(t.Context(), m, "orders", UntilEnd(), MaxBytes(1)), 100)
	require.ErrorIs(t, err, errEndOfSequence)
	require.Equal(t, []string{"0:0", "0:1", "0:3"}, got)
}

func TestReadYieldsOneErrorAndEnds(t *testing.T) {
	m := newMemory("orders", 2)
	m.fill(t, "orders", 10, 5)
	broken := errors.New("disk on fire")
	trimmed := newMemory("orders", 1)
	trimmed.fill(t, "orders", 10, 5)
	trimmed["orders"][0].trim(5)
	ended, cancel := context.WithCancel(t.Context())
	cancel()

	for name, c := range map[string]struct {
		ctx   context.Context
		src   memory
		topic string
		opts  []ReadOption
		fail  error
		want  error
	}{
		"no topic name":         {src: m, topic: "", want: record.ErrInvalid},
		"negative offset":       {src: m, topic: "orders", opts: []ReadOption{FromOffset(-1)}, want: record.ErrInvalid},
		"negative partition":    {src: m, topic: "orders", opts: []ReadOption{Partition(-1)}, want: record.ErrInvalid},
		"no bytes":              {src: m, topic: "orders", opts: []ReadOption{MaxBytes(0)}, want: record.ErrInvalid},
		"unknown topic":         {src: m, topic: "nobody", want: record.ErrUnknownTopic},
		"unknown partition":     {src: m, topic: "orders", opts: []ReadOption{Partition(2)}, want: record.ErrUnknownTopic},
		"above the end":         {src: m, topic: "orders", opts: []ReadOption{Partition(0), FromOffset(11)}, want: record.ErrOffsetOutOfRange},
		"above the end, to end": {src: m, topic: "orders", opts: []ReadOption{Partition(0), FromOffset(11), UntilEnd()}, want: record.ErrOffsetOutOfRange},
		"below the start":       {src: trimmed, topic: "orders", opts: []ReadOption{FromOffset(4)}, want: record.ErrOffsetOutOfRange},
		"ctx has ended":         {ctx: ended, src: m, topic: "orders", want: context.Canceled},
		"source fails":          {src: m, topic: "orders", fail: broken, want: broken},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := c.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			if c.fail != nil {
				c.src["orders"][0].failNext(c.fail)
			}
			var errs []error
			for r, err := range Read(ctx, c.src, c.topic, c.opts...) {
				if err != nil {
					require.Empty(t, r)
					errs = append(errs, err)
				}
			}
			require.Len(t, errs, 1)
			require.ErrorIs(t, errs[0], c.want)
		})
	}
}

func TestReadFromStartSurvivesATrimAsItBegins(t *testing.T) {
	m := newMemory("orders", 1)
	m.fill(t, "orders", 10, 5)
	p := m["orders"][0]
	p.failNext(&record.OffsetRangeError{TopicPartition: p.tp, Offset: 0, Start: 5, End: 10})
	got, err := collect(Read(t.Context(), m, "orders", UntilEnd()), 100)
	require.ErrorIs(t, err, errEndOfSequence)
	require.Equal(t, want(0, 5, 10), got)
}

func TestReadRefusesASourceThatDoesNotMoveOn(t *testing.T) {
	m := newMemory("orders", 1)
	m.fill(t, "orders", 10, 5)
	_, err := collect(Read(t.Context(), stuck{m}, "orders", FromOffset(7)), 100)
	require.ErrorIs(t, err, record.ErrCorrupt)
}

// stuck answers each fetch with the first batch.
type stuck struct{ memory }

func (s stuck) Fetch(ctx context.Context, tp record.TopicPartition, _ record.Offset, _ int, iso record.Isolation) (record.Fetched, error) {
	return s.memory.Fetch(ctx, tp, 0, 1, iso)
}

func TestReadRecordsStayValidAfterTheLoop(t *testing.T) {
	m := newMemory("orders", 1)
	m.fill(t, "orders", 1000, 10)
	var kept []record.Record
	for r, err := range Read(t.Context(), m, "orders", UntilEnd(), MaxBytes(500)) {
		require.NoError(t, err)
		kept = append(kept, r)
	}
	require.Len(t, kept, 1000)
	for i, r := range kept {
		require.Equal(t, fmt.Sprintf("0:%d", i), string(r.Value))
	}
}
