package replica

import (
	"errors"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

// trimmedWhileDown is three replicas of 60 batches, of which b is down while the
// others trim to offset 40. covered says that b has a checkpoint of all it has.
func trimmedWhileDown(t *testing.T, segmentOfB int64, covered bool) (c *trio, at []record.EntryNumber) {
	t.Helper()
	c = newTrioOf(t, 1024, "a", "b", "c")
	if segmentOfB != c.segment {
		small := c.segment
		c.stop("b")
		require.NoError(t, c.disks["b"].(*vfs.Mem).Remove("/b/orders-0/00000000000000000000.log"))
		c.segment = segmentOfB
		c.start("b")
		c.segment = small
	}
	h := c.leader()
	for i := range 60 { // each is a write of its own on every disk, so that damage does not look like a torn one
		c.produce(h, i, 1)
		for _, node := range c.nodes {
			c.eventually("all have it", c.holds(node, record.Offset(i+1)))
		}
	}
	b := c.live["b"]
	for i := range 60 {
		at = append(at, batchAt(t, b, i))
	}
	c.eventually("b has applied all", func() bool { return b.Status().HighWatermark == 60 })
	if covered {
		b.checkpoint()
		require.GreaterOrEqual(t, b.checkpoints.entry(), uint64(at[59]))
	}
	c.stop("b")
	if !covered {
		err := c.disks["b"].Remove("/b/orders-0/" + checkpointName)
		require.NoError(t, err)
	}
	c.produce(c.leader("a", "c"), 60, 5)
	_, err := c.leader("a", "c").TrimTo(c.within(10*time.Second), 40)
	require.NoError(t, err)
	for _, node := range []string{"a", "c"} {
		h := c.live[node]
		c.eventually("trim on "+node, func() bool { return h.Status().StartOffset == 40 && h.store.log.Bounds().Start > 20 })
	}
	return c, at
}

func (c *trio) setAside(node string) (names []string) {
	all, err := c.disks[node].List("/" + node + "/orders-0")
	require.NoError(c.t, err)
	for _, name := range all {
		if strings.HasSuffix(name, ".damaged") {
			names = append(names, name)
		}
	}
	return names
}

// whole asserts that a node has everything from the log start on.
func (c *trio) whole(node string) {
	c.t.Helper()
	h := c.live[node]
	require.NoError(c.t, h.Wait(c.within(10*time.Second), 64))
	c.eventually("it knows the log start", func() bool { return h.Status().StartOffset == 40 })
	require.NoError(c.t, h.store.log.Verify(c.t.Context(), nil))
	for o := record.Offset(40); o < 65; o++ {
		f, err := h.Read(o, 1, record.ReadUncommitted)
		require.NoError(c.t, err)
		require.Equal(c.t, o, f.Batches[0].BaseOffset())
	}
	c.eventually("it votes", func() bool { return !h.Status().Unsure })
	require.NoError(c.t, h.Status().Err)
}

// TestAHoleAnywhereAroundALogStartThatWasDecidedMeanwhileIsMended has holes far below
// the log start, in the segments next to it, on both sides of it, and above.
func TestAHoleAnywhereAroundALogStartThatWasDecidedMeanwhileIsMended(t *testing.T) {
	for _, hole := range []int{0, 20, 36, 38, 39, 40, 48} {
		c, at := trimmedWhileDown(t, 1024, true)
		c.unindex(c.spoil("b", at[hole]))
		h := c.start("b")
		require.False(t, h.Status().Unsure, "hole at %d: nothing was forgotten", hole)
		require.Empty(t, c.setAside("b"))
		c.whole("b")
	}
}

func TestManyHolesOnBothSidesOfTheLogStartAreMended(t *testing.T) {
	c, at := trimmedWhileDown(t, 1024, true)
	for _, hole := range []int{2, 18, 31, 44, 48} {
		c.unindex(c.spoil("b", at[hole]))
	}
	require.False(t, c.start("b").Status().Unsure)
	require.Empty(t, c.setAside("b"))
	c.whole("b")
}

// TestAHoleBelowTheLogStartWaitsForSomebodyWhoKnowsIt has nobody to ask at first.
func TestAHoleBelowTheLogStartWaitsForSomebodyWhoKnowsIt(t *testing.T) {
	c, at := trimmedWhileDown(t, 1024, true)
	file := c.spoil("b", at[3])
	c.unindex(file)
	c.net.Isolate("b")
	_, err := c.open("b")
	damage := (*DamagedError)(nil)
	require.ErrorAs(t, err, &damage)
	require.Equal(t, at[3], damage.Holes[0].FirstEntry)
	_, err = c.disks["b"].ReadFile(file)
	require.NoError(t, err, "nothing was changed")
	c.net.Heal()
	c.start("b")
	c.whole("b")
}

// TestAReplicaThatCannotGoOnFromTheLogStartBeginsAnew has a hole below the log start in
// a segment that must stay, or without a checkpoint that would cover what goes: with it
// a membership may go that nobody else would tell.
func TestAReplicaThatCannotGoOnFromTheLogStartBeginsAnew(t *testing.T) {
	for name, tc := range map[string]struct {
		segment int64
		covered bool
	}{
		"all in one segment": {1 << 20, true},
		"no checkpoint":      {1024, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, at := trimmedWhileDown(t, tc.segment, tc.covered)
			c.unindex(c.spoil("b", at[3]))
			h := c.start("b")
			require.True(t, h.store.log.Bounds().First == 1 || h.Status().StartOffset > 0)
			require.NotEmpty(t, c.setAside("b"))
			c.whole("b")
		})
	}
}

// TestAReplicaThatKnowsTheLogStartAsksNobodyForWhatIsBelow has applied the trim and
// stopped before its segments went.
func TestAReplicaThatKnowsTheLogStartAsksNobodyForWhatIsBelow(t *testing.T) {
	c := newTrioOf(t, 1024, "a", "b", "c")
	c.produce(c.leader(), 0, 60)
	for _, node := range c.nodes {
		c.eventually("all have it", c.holds(node, 60))
	}
	b, disk := c.live["b"], c.disks["b"].(*vfs.Mem)
	at := batchAt(t, b, 3)
	disk.Fail(func(op vfs.Op, name string) error {
		if op == vfs.OpRemove && strings.HasSuffix(path.Base(name), segment.LogSuffix) {
			return errors.New("not now")
		}
		return nil
	})
	_, err := c.leader().TrimTo(c.within(10*time.Second), 40)
	require.NoError(t, err)
	c.eventually("b has applied it", func() bool { return b.Status().StartOffset == 40 })
	c.stop("b") // with a checkpoint
	disk.Fail(nil)
	c.unindex(c.spoil("b", at))
	c.net.Isolate("b")
	h := c.start("b")
	require.Greater(t, h.store.log.Bounds().Start, record.Offset(20))
	require.NoError(t, h.store.log.Verify(t.Context(), nil))
	c.net.Heal()
	c.produce(c.leader(), 60, 5)
	c.whole("b")
}

// TestAReplicaWhoseLogEndsBeforeItsCheckpointMayHaveForgotten damages the last entry,
// without the index that would tell it from a torn write.
func TestAReplicaWhoseLogEndsBeforeItsCheckpointMayHaveForgotten(t *testing.T) {
	c := newTrioOf(t, 1<<20, "a", "b", "c")
	c.produce(c.leader(), 0, 3)
	for _, node := range c.nodes {
		c.eventually("all have applied it", func() bool { return c.live[node].Status().HighWatermark == 3 })
	}
	last := batchAt(t, c.live["b"], 2)
	c.stop("b") // with a checkpoint
	c.unindex(c.spoil("b", last))
	c.net.Isolate("b")
	h := c.start("b")
	require.Equal(t, record.Offset(2), h.Status().EndOffset)
	require.True(t, h.Status().Unsure)
	c.net.Heal()
	require.Len(t, c.values(h, 3), 3)
	c.eventually("it votes again", func() bool { return !h.Status().Unsure })
}
