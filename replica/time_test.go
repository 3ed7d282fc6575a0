package replica

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

// timedBatch is a batch of producer 1, of records with those times.
func timedBatch(t testing.TB, first record.Sequence, times ...int64) record.Batch {
	var b record.Builder
	for _, ms := range times {
		require.NoError(t, b.Append(&record.Record{Time: time.UnixMilli(ms), Value: []byte("v")}))
	}
	batch, err := b.Build(record.BatchOptions{Producer: &record.ProducerStamp{ID: 1, Sequence: first}})
	require.NoError(t, err)
	return batch
}

func TestOffsetForTimeIsThatOfReadableRecords(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	h := c.leader()
	require.NoError(t, c.get(h.send(timedBatch(t, 0, 10, 40, 20), AppendOptions{})).err)
	require.NoError(t, c.get(h.send(timedBatch(t, 3, 30, 50), AppendOptions{})).err)
	ask := func(ms int64) record.Offset {
		offset, ok, err := h.OffsetForTime(c.within(5*time.Second), ms)
		require.NoError(t, err)
		require.Equal(t, ok, offset != record.NoOffset)
		return offset
	}
	require.EqualValues(t, 0, ask(math.MinInt64))
	require.EqualValues(t, 1, ask(11))
	require.EqualValues(t, 4, ask(41))
	require.Equal(t, record.NoOffset, ask(51))

	_, err := h.TrimTo(c.within(5*time.Second), 2) // inside a batch
	require.NoError(t, err)
	require.EqualValues(t, 2, ask(11), "1 is trimmed")
	require.EqualValues(t, 2, ask(math.MinInt64))
	require.EqualValues(t, 4, ask(40))

	high := h.high.Swap(3) // as on a replica that knows no better
	defer h.high.Store(high)
	require.Equal(t, record.NoOffset, ask(41), "not below the high watermark")
	require.EqualValues(t, 2, ask(20))

	require.NoError(t, h.Close())
	_, _, err = h.OffsetForTime(context.Background(), 0)
	require.ErrorIs(t, err, record.ErrClosed)
}
