package replica

import (
	"context"
	"errors"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

// atLeader has the leader do something, and the next one if that has changed.
func (c *trio) atLeader(do func(ctx context.Context, h *host) error) error {
	c.t.Helper()
	for {
		err := do(c.within(10*time.Second), c.leader())
		if !errors.Is(err, record.ErrNotLeader) {
			return err
		}
	}
}

// add brings a node into the partition as a voter.
func (c *trio) add(node string) {
	c.t.Helper()
	require.NoError(c.t, c.atLeader(func(ctx context.Context, h *host) error { return h.AddLearner(ctx, node) }))
	c.eventually("promote "+node, func() bool {
		return c.atLeader(func(ctx context.Context, h *host) error { return h.Promote(ctx, node) }) == nil
	})
}

// remove takes a node out of the partition.
func (c *trio) remove(node string) error {
	c.t.Helper()
	return c.atLeader(func(ctx context.Context, h *host) error { return h.Remove(ctx, node) })
}

func TestALearnerCountsForNothingUntilItIsPromoted(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	c.produce(c.leader(), 0, 50)
	d := c.join("d")
	h := c.leader()
	require.NoError(t, h.AddLearner(c.within(10*time.Second), "d"))
	require.NoError(t, h.AddLearner(c.within(10*time.Second), "d"), "asking again is safe")
	require.Equal(t, Members{Voters: []string{"a", "b", "c"}, Learners: []string{"d"}}, h.Members())
	require.Len(t, h.Status().Replicas, 3)
	require.Len(t, c.values(d, 50), 50, "it gets what was there before")

	c.eventually("promotion", func() bool { return h.Promote(c.within(10*time.Second), "d") == nil })
	require.NoError(t, h.Promote(c.within(10*time.Second), "d"), "asking again is safe")
	require.Equal(t, Members{Voters: []string{"a", "b", "c", "d"}}, h.Members())
	require.Len(t, h.Status().Replicas, 4)
	require.NoError(t, c.get(h.send(buildBatch(t, 1, 0, 50, 1), AppendOptions{Acks: record.AckAll})).err)
	require.Equal(t, record.Offset(51), d.Status().EndOffset, "AckAll waits for it")
}

func TestALearnerThatLagsIsNotPromoted(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	h := c.leader()
	var unsafe *UnsafeChangeError
	require.ErrorAs(t, h.Promote(c.within(10*time.Second), "d"), &unsafe)
	require.Contains(t, unsafe.Error(), "add it as a learner first")

	d := c.join("d")
	c.net.Isolate("d")
	require.NoError(t, h.AddLearner(c.within(10*time.Second), "d"))
	c.produce(h, 0, 10)
	require.ErrorIs(t, h.Promote(c.within(10*time.Second), "d"), ErrUnsafeChange)
	require.ErrorIs(t, h.TransferLeadership(c.within(10*time.Second), "d"), ErrUnsafeChange)
	c.net.Heal()
	c.values(d, 10)
	c.eventually("promotion", func() bool { return h.Promote(c.within(10*time.Second), "d") == nil })
}

func TestALeaderThatIsRemovedHandsOverFirst(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	h := c.leader()
	c.produce(h, 0, 5)
	old := h.Status().Node
	var err error
	c.eventually("somebody takes over", func() bool { // a busy machine may need a second try
		err = h.Remove(c.within(10*time.Second), old)
		return !errors.Is(err, record.ErrUnreachable)
	})
	require.ErrorIs(t, err, record.ErrNotLeader)
	require.True(t, h.Members().Has(old), "the next leader removes it")
	require.NoError(t, c.remove(old))
	next := c.leader()
	require.NotEqual(t, old, next.Status().Node)
	require.NotContains(t, next.Members().Voters, old)
	require.Len(t, next.Members().Voters, 2)
	c.produce(next, 5, 5)
}

func TestRemovalsThatLoseTheQuorumOrTheLastCopyAreRefused(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	h := c.leader()
	others := slices.DeleteFunc(slices.Clone(c.nodes), func(n string) bool { return n == h.Status().Node })
	c.stop(others[0])
	c.produce(h, 0, 1)
	err := h.Remove(c.within(10*time.Second), others[1])
	require.ErrorIs(t, err, ErrUnsafeChange)
	require.Contains(t, err.Error(), "bring the others back")
	require.ErrorIs(t, h.Remove(c.within(10*time.Second), "nobody"), nil)

	require.NoError(t, h.Remove(c.within(10*time.Second), others[0]), "the dead one may go")
	require.NoError(t, h.Remove(c.within(10*time.Second), others[1]), "one copy is left, and reached")
	err = h.Remove(c.within(10*time.Second), h.Status().Node)
	require.ErrorIs(t, err, ErrUnsafeChange)
	require.Contains(t, err.Error(), "last copy")
	c.produce(h, 1, 1)
}

// TestARemovedReplicaThatDoesNotKnowItDoesNotDisturb removes a replica that is down,
// and lets it ask for votes when it is back.
func TestARemovedReplicaThatDoesNotKnowItDoesNotDisturb(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	h := c.leader()
	gone := others(c, h)[0]
	c.stop(gone)
	require.NoError(t, c.remove(gone))
	h = c.leader()
	other := c.live[slices.DeleteFunc(others(c, h), func(n string) bool { return n == gone })[0]]
	_, term := h.Leader()

	asked := make(chan struct{}, 100)
	other.raft().RegisterObserver(raft.NewObserver(nil, false, func(o *raft.Observation) bool {
		switch req := o.Data.(type) {
		case raft.RequestPreVoteRequest:
			if string(req.ID) == gone {
				asked <- struct{}{}
			}
		case raft.RequestVoteRequest:
			if string(req.ID) == gone {
				asked <- struct{}{}
			}
		}
		return false
	}))
	c.net.Cut(h.Status().Node, gone) // Raft may still be about to tell it, once
	c.start(gone)
	for range 3 {
		select {
		case <-asked:
		case <-time.After(10 * time.Second):
			require.FailNow(t, "the removed replica asks for no votes, so this shows nothing")
		}
	}
	_, after := h.Leader()
	require.Equal(t, term, after, "nobody's term has risen")
	c.produce(h, 0, 5)
}

// TestARestartGoesByTheMembershipOfTheLog changes every founder but one, trims what
// told of it, and takes away checkpoints and more.
func TestARestartGoesByTheMembershipOfTheLog(t *testing.T) {
	for _, lost := range [][]string{nil, {checkpointName}, {checkpointName, membersName}} {
		c := newTrioOf(t, 4<<10, "a", "b", "c")
		c.produce(c.leader(), 0, 100)
		c.join("d")
		c.add("d")
		c.join("e")
		c.add("e")
		require.NoError(t, c.remove("a"))
		require.NoError(t, c.remove("b"))
		c.stop("a")
		c.stop("b")
		c.nodes = []string{"c", "d", "e"}
		h := c.leader()
		want := Members{Voters: c.nodes}
		require.Equal(t, want, h.Members())
		c.produce(h, 100, 300)
		_, err := h.TrimTo(c.within(10*time.Second), 390)
		require.NoError(t, err)
		for _, node := range c.nodes {
			c.eventually("trim", func() bool { return c.live[node].store.log.Bounds().Start > 200 })
		}
		for _, node := range c.nodes {
			c.stop(node)
		}
		for i, node := range c.nodes {
			if len(lost) == 2 && i > 0 {
				break // nobody could know if all had lost both
			}
			for _, name := range lost {
				require.NoError(t, c.disks[node].Remove(path.Join("/", node, "orders-0", name)))
			}
		}
		for _, node := range c.nodes {
			c.start(node)
		}
		h = c.leader()
		require.Equal(t, want, h.Members(), "lost %q", lost)
		c.produce(h, 400, 10)
		for _, node := range c.nodes {
			r := c.live[node]
			require.NoError(t, r.Wait(c.within(10*time.Second), 409))
			c.eventually("membership", func() bool { return slices.Equal(r.Members().Voters, want.Voters) || len(lost) == 2 })
		}
		for _, node := range c.nodes {
			c.stop(node)
		}
	}
}

func TestAckAllFollowsTheMembership(t *testing.T) {
	c := startTrio(t, &trio{lag: time.Second}, "a")
	h := c.leader()
	c.produce(h, 0, 1)
	all := func(seq int) error {
		return c.get(h.send(buildBatch(t, 2, 0, record.Sequence(seq), 1), AppendOptions{Acks: record.AckAll})).err
	}
	require.NoError(t, all(0), "one of one")
	c.join("b")
	c.add("b")
	c.join("c")
	c.add("c")
	require.NoError(t, all(1), "three of three")
	c.stop("c")
	require.NoError(t, all(2), "two of three, once the third counts as out of sync")
	require.NoError(t, c.remove("c"))
	require.Equal(t, 2, h.minInSync(), "a majority of two")
	require.NoError(t, c.remove("b"))
	require.Equal(t, 1, h.minInSync())
	require.NoError(t, all(3))
	require.Len(t, h.Status().Replicas, 1)
}

func TestLeadershipGoesToTheReplicaThatIsNamed(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	c.produce(c.leader(), 0, 5)
	for _, node := range []string{"b", "c", "a", "a"} {
		require.NoError(t, c.atLeader(func(ctx context.Context, h *host) error { return h.TransferLeadership(ctx, node) }))
		require.Equal(t, node, c.leader().Status().Node)
	}
	h := c.leader()
	require.ErrorIs(t, h.TransferLeadership(c.within(10*time.Second), "x"), ErrUnsafeChange)
	require.ErrorIs(t, c.live["b"].AddLearner(c.within(10*time.Second), "x"), record.ErrNotLeader)
	require.ErrorIs(t, h.AddLearner(c.within(10*time.Second), ""), record.ErrInvalid)
}
