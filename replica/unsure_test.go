package replica

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
)

// noLeader requires that nobody comes to lead among nodes in a time in which
// several elections would have been held.
func (c *trio) noLeader(nodes ...string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 6*c.timeout)
	defer cancel()
	for {
		moved := make(chan struct{}, len(nodes))
		for _, node := range nodes {
			h := c.live[node]
			changed := h.Changed()
			require.False(c.t, h.leads(), "node %s leads", node)
			go func() {
				select {
				case <-changed:
					moved <- struct{}{}
				case <-ctx.Done():
				}
			}()
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return
		}
	}
}

// ledBy has a node lead.
func (c *trio) ledBy(node string) *host {
	c.t.Helper()
	for {
		h := c.leader()
		if h.Status().Node == node {
			return h
		}
		_ = h.TransferLeadership(c.within(10*time.Second), node)
	}
}

// holds is a condition on how far a node's log goes.
func (c *trio) holds(node string, end record.Offset) func() bool {
	return func() bool { return c.live[node].Status().EndOffset >= end }
}

// TestAReplicaThatForgotDoesNotHelpToLoseWhatWasCommitted is the scenario that
// lazy flushing is known for: of five, three have a record and one of them forgets
// it; the two that never had it and the one that forgot are a majority.
func TestAReplicaThatForgotDoesNotHelpToLoseWhatWasCommitted(t *testing.T) {
	for _, flush := range []log.FlushPolicy{log.FlushNever, log.FlushEvery(time.Hour)} {
		t.Run(fmt.Sprint(flush), func(t *testing.T) {
			t.Parallel()
			c := startTrio(t, &trio{flush: flush, timeout: 300 * time.Millisecond, lag: time.Minute}, "a", "b", "c", "d", "e")
			h := c.ledBy("a")
			c.produce(h, 0, 1)
			for _, node := range c.nodes {
				c.eventually("all have the first record", c.holds(node, 1))
				require.NoError(t, c.live[node].store.log.Sync())
			}
			c.net.Isolate("d")
			c.net.Isolate("e")
			o := c.get(h.send(buildBatch(t, 7, 0, 0, 1), AppendOptions{}))
			require.NoError(t, o.err, "acknowledged by a quorum")
			c.eventually("it is on all three", func() bool { return c.holds("b", 2)() && c.holds("c", 2)() })

			c.die("c", powerCut)
			c.net.Heal()
			for _, gone := range []string{"a", "b"} {
				for _, node := range []string{"c", "d", "e"} {
					c.net.Cut(gone, node)
				}
			}
			c.start("c")
			require.Equal(t, record.Offset(1), c.live["c"].Status().EndOffset, "it has forgotten the record")
			require.True(t, c.live["c"].Status().Unsure)
			c.noLeader("c", "d", "e")

			c.net.Heal()
			h = c.leader()
			require.Equal(t, []string{"1/0", "7/0"}, c.values(h, 2))
			c.eventually("it has caught up", func() bool { return !c.live["c"].Status().Unsure })
			c.stop(h.Status().Node) // and votes again
			rest := c.leader()
			require.NoError(t, c.get(rest.send(buildBatch(t, 9, 0, 0, 1), AppendOptions{})).err)
		})
	}
}

// TestAClusterThatLostPowerEverywhereComesBack does so under policies that may
// have lost something on each node: all say what they have left, and the one with
// most leads.
func TestAClusterThatLostPowerEverywhereComesBack(t *testing.T) {
	c := startTrio(t, &trio{flush: log.FlushNever, timeout: 300 * time.Millisecond}, "a", "b", "c")
	c.produce(c.leader(), 0, 5)
	for _, node := range c.nodes {
		c.eventually("all have it", c.holds(node, 5))
	}
	require.NoError(t, c.live["b"].store.log.Sync()) // by chance
	for _, node := range c.nodes {
		c.die(node, powerCut)
	}
	c.start("a")
	c.start("c")
	c.noLeader("a", "c")
	c.start("b")
	h := c.leader()
	require.Equal(t, "b", h.Status().Node)
	require.Len(t, c.values(h, 5), 5)
	for _, node := range c.nodes {
		c.eventually("all are sure again", func() bool { return !c.live[node].Status().Unsure })
	}
}

// TestALogThatCouldNotBeSyncedIsNotClosedInPeace: closing it says nothing about what
// its disk holds.
func TestALogThatCouldNotBeSyncedIsNotClosedInPeace(t *testing.T) {
	c := startTrio(t, &trio{flush: log.FlushNever, timeout: 300 * time.Millisecond}, "a", "b", "c")
	c.produce(c.leader(), 0, 5)
	c.eventually("it has all", c.holds("b", 5))
	require.NoError(t, c.live["b"].store.log.Sync())
	c.produce(c.leader(), 5, 5)
	c.eventually("it has all", c.holds("b", 10))
	disk := c.disks["b"].(*vfs.Mem)
	disk.Fail(func(op vfs.Op, _ string) error {
		if op == vfs.OpSync {
			return errors.New("injected disk error")
		}
		return nil
	})
	require.Error(t, c.live["b"].store.log.Sync())
	c.stop("b")
	c.disks["b"] = disk.Reboot(powerCut)
	c.net.Isolate("b") // nobody tells it what it has forgotten
	c.start("b")
	require.True(t, c.live["b"].Status().Unsure)
}

func TestTheEndOfAProcessForgetsNothing(t *testing.T) {
	c := startTrio(t, &trio{flush: log.FlushNever, timeout: 300 * time.Millisecond}, "a", "b", "c")
	c.produce(c.leader(), 0, 5)
	for _, node := range c.nodes {
		c.eventually("all have it", c.holds(node, 5))
	}
	for _, node := range c.nodes {
		c.die(node, processEnd)
	}
	c.start("a")
	c.start("c")
	require.Len(t, c.values(c.leader(), 5), 5)
}

// TestAReplicaWithANewDiskDoesNotHelpToLoseWhatWasCommitted replaces the disk and
// the votes of one of two replicas that have a record, while the other is away.
func TestAReplicaWithANewDiskDoesNotHelpToLoseWhatWasCommitted(t *testing.T) {
	c := startTrio(t, &trio{timeout: 300 * time.Millisecond}, "a", "b", "c")
	h := c.ledBy("a")
	c.produce(h, 0, 1)
	for _, node := range c.nodes {
		c.eventually("all have the first record", c.holds(node, 1))
	}
	c.net.Isolate("c")
	require.NoError(t, c.get(h.send(buildBatch(t, 7, 0, 0, 1), AppendOptions{})).err, "acknowledged by a quorum")
	c.stop("b")
	c.disks["b"], c.stables["b"] = vfs.NewMem(), NewMemoryStable()
	c.net.Heal()
	c.net.Isolate("a")
	c.start("b")
	c.noLeader("b", "c")

	c.net.Heal()
	h = c.leader()
	require.Equal(t, []string{"1/0", "7/0"}, c.values(h, 2))
	c.eventually("it is filled", c.holds("b", 2))
	require.Equal(t, []string{"1/0", "7/0"}, c.values(c.live["b"], 2))
	c.eventually("it is sure", func() bool { return !c.live["b"].Status().Unsure })
	c.stop("a")
	require.NoError(t, c.get(c.leader().send(buildBatch(t, 9, 0, 0, 1), AppendOptions{})).err)
}

// TestAReplicaWithoutItsDirectoryIsFilledAndDoesNotVoteBefore deletes the log and
// leaves the votes.
func TestAReplicaWithoutItsDirectoryIsFilledAndDoesNotVoteBefore(t *testing.T) {
	c := startTrio(t, &trio{timeout: 300 * time.Millisecond}, "a", "b", "c")
	c.produce(c.leader(), 0, 3)
	for _, node := range c.nodes {
		c.eventually("all have it", c.holds(node, 3))
	}
	for _, node := range c.nodes {
		c.stop(node)
	}
	c.disks["b"] = vfs.NewMem()
	c.start("b")
	require.True(t, c.live["b"].Status().Unsure)
	c.start("c") // has everything, and b's vote would make it lead; but so would b's, if c had nothing
	c.noLeader("b", "c")
	c.start("a")
	require.Len(t, c.values(c.leader(), 3), 3)
	require.Len(t, c.values(c.live["b"], 3), 3)
}

// TestAllReplicasComeBackInAnyOrder kills all at once; one may have lost its disk,
// or come back with damage.
func TestAllReplicasComeBackInAnyOrder(t *testing.T) {
	for _, trouble := range []string{"none", "empty", "damage"} {
		t.Run(trouble, func(t *testing.T) {
			t.Parallel()
			c := startTrio(t, &trio{timeout: 300 * time.Millisecond}, "a", "b", "c")
			written := 0
			for _, order := range []string{"abc", "acb", "bac", "bca", "cab", "cba"} {
				c.produce(c.leader(), written, 3)
				written += 3
				for _, node := range c.nodes {
					c.eventually("all have it", c.holds(node, record.Offset(written)))
				}
				n := batchAt(t, c.live["b"], written-2)
				for _, node := range c.nodes {
					c.die(node, powerCut)
				}
				switch trouble {
				case "empty":
					c.disks["b"], c.stables["b"] = vfs.NewMem(), NewMemoryStable()
				case "damage":
					c.spoil("b", n)
				}
				first := true
				for _, node := range order {
					h, err := c.open(string(node))
					if err != nil && first {
						require.ErrorIs(t, err, record.ErrCorrupt, "nobody else is there yet")
						continue
					}
					require.NoError(t, err)
					c.live[string(node)], first = h, false
				}
				if c.live["b"] == nil {
					c.start("b")
				}
				require.Len(t, c.values(c.leader(), record.Offset(written)), written, order)
				require.Len(t, c.values(c.live["b"], record.Offset(written)), written, order)
			}
		})
	}
}
