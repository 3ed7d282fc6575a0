package replica

import (
	"context"
	"iter"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
)

// until takes statuses until one is as wanted.
func until(t *testing.T, next func() (Status, error, bool), what string, ok func(Status) bool) Status {
	t.Helper()
	for {
		s, err, more := next()
		require.True(t, more, what)
		require.NoError(t, err, what)
		require.LessOrEqual(t, s.StartOffset, s.LastStableOffset)
		require.LessOrEqual(t, s.LastStableOffset, s.HighWatermark)
		require.LessOrEqual(t, s.HighWatermark, s.EndOffset)
		if ok(s) {
			return s
		}
	}
}

// inSyncOf returns the nodes that a leader has in sync.
func inSyncOf(s Status) (nodes []string) {
	for _, r := range s.Replicas {
		if r.InSync {
			nodes = append(nodes, r.Node)
		}
	}
	return nodes
}

func TestWatchShowsEachChangeOfAReplica(t *testing.T) {
	c := startTrio(t, &trio{lag: 200 * time.Millisecond}, "a", "b", "c")
	h := c.leader()
	lead := h.Status().Node
	next, stop := iter.Pull2(h.mux.Watch(c.within(20 * time.Second)))
	defer stop()
	s := until(t, next, "the state of now comes first", func(s Status) bool { return len(inSyncOf(s)) == 3 })
	require.Equal(t, lead, s.Leader)

	c.produce(h, 0, 10)
	_, err := h.TrimTo(c.within(10*time.Second), 5)
	require.NoError(t, err)
	s = until(t, next, "the log start", func(s Status) bool { return s.StartOffset == 5 })
	require.Equal(t, record.Offset(10), s.HighWatermark)

	// A follower that answers heartbeats and stores nothing.
	stuck := others(c, h)[0]
	c.disks[stuck].(*vfs.Mem).Fail(func(op vfs.Op, _ string) error {
		if op == vfs.OpWrite {
			return syscall.EIO
		}
		return nil
	})
	c.produce(h, 10, 1)
	until(t, next, "out of sync", func(s Status) bool { return len(s.Replicas) == 3 && !slices.Contains(inSyncOf(s), stuck) })
	c.disks[stuck].(*vfs.Mem).Fail(nil)
	until(t, next, "in sync again", func(s Status) bool { return slices.Contains(inSyncOf(s), stuck) })

	epoch := s.Epoch
	c.eventually("transfer", func() bool { return h.TransferLeadership(c.within(5*time.Second), "") == nil })
	until(t, next, "another leader", func(s Status) bool { return s.Leader != "" && s.Leader != lead && s.Epoch > epoch })

	delete(c.live, lead)
	require.NoError(t, h.Close())
	s = until(t, next, "closed", func(s Status) bool { return s.Err != nil })
	require.ErrorIs(t, s.Err, record.ErrClosed)
	require.NoError(t, h.mux.Close())
	require.NoError(t, h.endpoint.Close())
	_, err, more := next()
	require.True(t, more)
	require.ErrorIs(t, err, record.ErrClosed)
	_, _, more = next()
	require.False(t, more)
}

func TestWatchShowsWhyAReplicaHasStopped(t *testing.T) {
	c := newTrio(t, "a")
	h := c.leader()
	next, stop := iter.Pull2(h.mux.Watch(c.within(10 * time.Second)))
	defer stop()
	until(t, next, "it is well", func(s Status) bool { return s.Err == nil })
	c.disks["a"].(*vfs.Mem).Fail(func(op vfs.Op, _ string) error {
		if op == vfs.OpSync {
			return syscall.EIO
		}
		return nil
	})
	require.Error(t, c.get(h.send(buildBatch(t, 1, 0, 0, 1), AppendOptions{})).err)
	until(t, next, "it is not", func(s Status) bool { return s.Err != nil })
}

// TestASlowWatcherHoldsUpNobodyAndSkipsWhatIsOver: between two statuses that it
// takes, others write, trim and take their own.
func TestASlowWatcherHoldsUpNobodyAndSkipsWhatIsOver(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	h := c.leader()
	slow, stop := iter.Pull2(h.mux.Watch(c.within(20 * time.Second)))
	defer stop()
	until(t, slow, "now", func(Status) bool { return true })
	for i := range 20 {
		c.produce(h, i, 1)
		_, err := h.TrimTo(c.within(10*time.Second), record.Offset(i+1))
		require.NoError(t, err)
	}
	seen := 0
	until(t, slow, "the newest", func(s Status) bool { seen++; return s.StartOffset == 20 })
	require.LessOrEqual(t, seen, 2)

	ctx, cancel := context.WithCancel(context.Background())
	ended, stop := iter.Pull2(h.mux.Watch(ctx))
	defer stop()
	until(t, ended, "now", func(Status) bool { return true })
	cancel()
	_, err, more := ended()
	require.True(t, more)
	require.ErrorIs(t, err, context.Canceled)
}
