package replica

import (
	"math"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

// shown is what one run of a replica has shown last, for offsets never go back
// for one reader.
type shown map[*host]Status

// checkOffsets asserts what holds at every moment on every replica. The harness
// calls it at every step: with each answer to an append and each look at a condition.
func (c *trio) checkOffsets() {
	c.t.Helper()
	for node, h := range c.live {
		now, before := h.Status(), c.shown[h]
		require.LessOrEqual(c.t, now.StartOffset, now.LastStableOffset, "on %s", node)
		require.LessOrEqual(c.t, now.LastStableOffset, now.HighWatermark, "on %s", node)
		require.LessOrEqual(c.t, now.HighWatermark, now.EndOffset, "on %s", node)
		require.GreaterOrEqual(c.t, now.StartOffset, before.StartOffset, "on %s the log start went back", node)
		require.GreaterOrEqual(c.t, now.LastStableOffset, before.LastStableOffset, "on %s the last stable offset went back", node)
		require.GreaterOrEqual(c.t, now.HighWatermark, before.HighWatermark, "on %s the high watermark went back", node)
		c.shown[h] = now
	}
}

// checkReplicas asserts that all replicas hold the same bytes below the lowest
// high watermark. The harness calls it when a test is over.
func (c *trio) checkReplicas() {
	c.t.Helper()
	c.checkOffsets()
	from, to := record.Offset(0), record.Offset(math.MaxInt64)
	var up []string
	for node, h := range c.live {
		if h.stopped() == nil {
			s := h.Status()
			from, to = max(from, s.StartOffset), min(to, s.HighWatermark)
			up = append(up, node)
		}
	}
	slices.Sort(up)
	for len(up) > 1 && from < to {
		// Entries are the same everywhere, segments need not be: so are reads of one batch.
		want, err := c.live[up[0]].store.log.Read(from, to, 1)
		require.NoError(c.t, err)
		require.NotEmpty(c.t, want, "at offset %d below %d", from, to)
		for _, node := range up[1:] {
			got, err := c.live[node].store.log.Read(from, to, 1)
			require.NoError(c.t, err)
			require.Equal(c.t, want[0], got[0], "offset %d on %s and %s", from, up[0], node)
		}
		from = want[0].NextOffset()
	}
}
