package replica

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
)

// TestANewLeaderIsCaughtUpWhenItKnowsAllThatOldOnesCommitted holds a new leader
// at the first entry of its term.
func TestANewLeaderIsCaughtUpWhenItKnowsAllThatOldOnesCommitted(t *testing.T) {
	c := newTrio(t, "a", "b")
	old := c.leader()
	require.NoError(t, c.get(old.send(buildBatch(t, 7, 0, 0, 3), AppendOptions{})).err)
	require.True(t, old.CaughtUp())

	next, disk := c.live["b"], c.disks["b"].(*vfs.Mem)
	if old == next {
		next, disk = c.live["a"], c.disks["a"].(*vfs.Mem)
	}
	require.NoError(t, next.Wait(c.within(10*time.Second), 2))
	held, hold := make(chan struct{}, 1), make(chan struct{})
	disk.Fail(func(op vfs.Op, name string) error {
		if op == vfs.OpSync && strings.HasSuffix(name, ".log") {
			select {
			case held <- struct{}{}:
			default:
			}
			<-hold
		}
		return nil
	})
	go func() { _ = old.TransferLeadership(c.within(10*time.Second), "") }()
	select {
	case <-held:
	case <-time.After(10 * time.Second):
		require.FailNow(t, "no leader")
	}
	require.True(t, next.leads())
	require.False(t, next.CaughtUp())
	close(hold)
	_, _, err := next.Barrier(c.within(10 * time.Second))
	require.NoError(t, err)
	require.True(t, next.CaughtUp())
}
