package replica

import (
	"maps"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
)

func TestWhoIsInSync(t *testing.T) {
	start := time.UnixMilli(0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	const lag = 10 * time.Second
	nodes := []string{"b", "c"}
	var p progress
	in := func(term uint64, s int) []string {
		return slices.Sorted(maps.Keys(p.inSync(term, nodes, lag, at(s))))
	}
	require.Equal(t, []string{"b", "c"}, in(1, 0), "a new leader takes all for in sync")
	require.Equal(t, []string{"b", "c"}, in(1, 10))
	require.Empty(t, in(1, 11), "but not for ever")

	// b is always one answer behind a busy leader, c answers and makes no progress.
	for s := range 30 {
		p.answered(1, "b", uint64(s), uint64(s+1), at(s))
		p.answered(1, "c", 3, uint64(s+1), at(s))
	}
	require.Equal(t, []string{"b"}, in(1, 30))
	require.Equal(t, uint64(29), p.match("b"))

	// c catches up, b says nothing more.
	p.answered(1, "c", 31, 31, at(31))
	require.Equal(t, []string{"b", "c"}, in(1, 31))
	require.Equal(t, []string{"c"}, in(1, 41))

	// What an older leadership hears late does not count in a newer one.
	require.Equal(t, []string{"b", "c"}, in(2, 50))
	p.answered(1, "b", 99, 99, at(60))
	require.Empty(t, in(2, 61))
	require.Zero(t, p.match("b"))
}

func others(c *trio, h *host) (nodes []string) {
	for _, n := range c.nodes {
		if n != h.Status().Node {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

func TestAckAllWaitsForEveryReplicaInSync(t *testing.T) {
	c := startTrio(t, &trio{lag: time.Minute}, "a", "b", "c")
	h := c.leader()
	for i := range 50 {
		o := c.get(h.send(buildBatch(t, 1, 0, record.Sequence(i), 1), AppendOptions{Acks: record.AckAll}))
		require.NoError(t, o.err)
		require.Equal(t, record.Offset(i), o.BaseOffset)
		for _, n := range c.nodes {
			require.Greater(t, c.live[n].store.log.Bounds().End, o.BaseOffset, "on node %s", n)
		}
	}
	s := h.Status()
	require.Len(t, s.Replicas, 3)
	for _, r := range s.Replicas {
		require.Equal(t, ReplicaStatus{Node: r.Node, InSync: true, EndOffset: 50}, r)
	}
	again := c.get(h.send(buildBatch(t, 1, 0, 49, 1), AppendOptions{Acks: record.AckAll}))
	require.NoError(t, again.err)
	require.True(t, again.Duplicate)
	require.Nil(t, c.live[others(c, h)[0]].Status().Replicas, "only the leader knows")
}

func TestAckAllGoesOnWithoutAReplicaThatFellOutOfSync(t *testing.T) {
	c := startTrio(t, &trio{lag: 300 * time.Millisecond, inSync: 2}, "a", "b", "c")
	h := c.leader()
	c.produce(h, 0, 1)
	gone := others(c, h)[0]
	c.net.Isolate(gone)
	o := c.get(h.send(buildBatch(t, 1, 0, 1, 1), AppendOptions{Acks: record.AckAll}))
	require.NoError(t, o.err, "two of three are enough")
	require.Equal(t, record.Offset(1), o.BaseOffset)
	for _, r := range h.Status().Replicas {
		require.Equal(t, r.Node != gone, r.InSync, r.Node)
	}
	c.net.Heal()
	c.eventually("back in sync", func() bool {
		return !slices.ContainsFunc(h.Status().Replicas, func(r ReplicaStatus) bool { return !r.InSync })
	})
}

func TestNotEnoughReplicasSaysWhetherTheRecordWasWritten(t *testing.T) {
	c := startTrio(t, &trio{lag: 300 * time.Millisecond, inSync: 3}, "a", "b", "c")
	h := c.leader()
	c.produce(h, 0, 1)
	c.net.Isolate(others(c, h)[0])

	var few *record.NotEnoughReplicasError
	o := c.get(h.send(buildBatch(t, 1, 0, 1, 1), AppendOptions{Acks: record.AckAll}))
	require.ErrorAs(t, o.err, &few)
	require.True(t, few.Appended, "it was seen too late: %v", few)
	require.Equal(t, []string{"1/0", "1/1"}, c.values(h, 2))

	o = c.get(h.send(buildBatch(t, 1, 0, 2, 1), AppendOptions{Acks: record.AckAll}))
	require.ErrorAs(t, o.err, &few)
	require.False(t, few.Appended, "it is known now: %v", few)
	require.Equal(t, 2, few.Have)
	require.Equal(t, 3, few.Need)
	require.Equal(t, record.Offset(2), h.Status().EndOffset, "nothing was written")

	c.produce(h, 2, 1) // a quorum needs no more than a quorum
	c.net.Heal()
	c.eventually("back in sync", func() bool {
		return c.get(h.send(buildBatch(t, 1, 0, 3, 1), AppendOptions{Acks: record.AckAll})).err == nil
	})
}

func TestAFollowerThatAnswersButStoresNothingFallsOutOfSync(t *testing.T) {
	c := startTrio(t, &trio{lag: 300 * time.Millisecond}, "a", "b", "c")
	h := c.leader()
	c.produce(h, 0, 1)
	stuck := others(c, h)[0]
	c.disks[stuck].(*vfs.Mem).Fail(func(op vfs.Op, _ string) error {
		if op == vfs.OpWrite {
			return syscall.EIO
		}
		return nil
	})
	c.produce(h, 1, 1)
	c.eventually("out of sync", func() bool {
		return slices.ContainsFunc(h.Status().Replicas, func(r ReplicaStatus) bool {
			return r.Node == stuck && !r.InSync && r.EndOffset < 2
		})
	})
	c.disks[stuck].(*vfs.Mem).Fail(nil)
	c.eventually("in sync again", func() bool {
		return !slices.ContainsFunc(h.Status().Replicas, func(r ReplicaStatus) bool { return !r.InSync })
	})
}

func TestAckAllEndsWhenLeadershipDoes(t *testing.T) {
	c := startTrio(t, &trio{lag: time.Minute, inSync: 3}, "a", "b", "c")
	h := c.leader()
	c.produce(h, 0, 1)
	c.net.Cut(h.Status().Node, others(c, h)[0])
	ch := h.send(buildBatch(t, 1, 0, 1, 1), AppendOptions{Acks: record.AckAll})
	require.NoError(t, h.Wait(c.within(10*time.Second), 1), "committed, but not everywhere")
	c.stop(h.Status().Node)
	var few *record.NotEnoughReplicasError
	require.ErrorAs(t, c.get(ch).err, &few)
	require.True(t, few.Appended)
}
