package cluster

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

func TestEveryNodeTellsTheOffsetForATime(t *testing.T) {
	c := startCluster(t, nil, "a", "b", "c")
	c.create("orders", 3)
	for i := range int32(3) { // leaders are spread
		tp := part("orders", i)
		w := c.writer(c.node("a"), tp)
		var b record.Builder
		for _, ms := range []int64{100, 300, 200} {
			require.NoError(t, b.Append(&record.Record{Time: time.UnixMilli(ms), Value: []byte("v")}))
		}
		batch, err := b.Build(record.BatchOptions{Producer: &record.ProducerStamp{ID: w.id, Epoch: w.epoch}})
		require.NoError(t, err)
		_, err = appendOnce(c.ctx(), c.node("a"), tp, batch, record.AckQuorum)
		require.NoError(t, err)
		for _, id := range c.peers {
			for at, want := range map[time.Time]record.Offset{
				{}: 0, time.UnixMilli(100): 0, time.UnixMilli(100).Add(1): 1, time.UnixMilli(300): 1,
				time.UnixMilli(300).Add(1): record.NoOffset, time.UnixMilli(math.MaxInt64): record.NoOffset,
			} {
				got, ok, err := c.node(id).OffsetForTime(c.ctx(), tp, at)
				require.NoError(t, err)
				require.Equal(t, want, got, "%v through %s", at, id)
				require.Equal(t, want != record.NoOffset, ok)
			}
		}
	}
	_, _, err := c.node("a").OffsetForTime(c.ctx(), part("orders", 3), time.Now())
	require.ErrorIs(t, err, record.ErrUnknownTopic)
	n := c.node("a")
	require.NoError(t, n.Close())
	_, _, err = n.OffsetForTime(c.ctx(), part("orders", 0), time.Now())
	require.ErrorIs(t, err, record.ErrClosed)
}

func TestMillisRoundUpAndDoNotWrap(t *testing.T) {
	for _, c := range []struct {
		t    time.Time
		want int64
	}{
		{time.UnixMilli(5), 5},
		{time.UnixMilli(5).Add(1), 6},
		{time.UnixMilli(-5).Add(1), -4},
		{time.UnixMilli(-5).Add(-1), -5},
		{time.UnixMilli(math.MinInt64), math.MinInt64},
		{time.UnixMilli(math.MaxInt64), math.MaxInt64},
		{time.UnixMilli(math.MinInt64).Add(-time.Hour), math.MinInt64},
		{time.UnixMilli(math.MaxInt64).Add(time.Hour), math.MaxInt64},
		{time.Unix(math.MaxInt64>>1, 0), math.MaxInt64},
	} {
		require.Equal(t, c.want, millis(c.t), "%v", c.t)
	}
}
