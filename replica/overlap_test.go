package replica

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
)

// stick has the node's disk hang in each sync of a segment until release is called;
// stuck receives when one does.
func (c *trio) stick(node string) (stuck <-chan struct{}, release func()) {
	hangs, gate := make(chan struct{}, 1), make(chan struct{})
	c.disks[node].(*vfs.Mem).Fail(func(op vfs.Op, name string) error {
		if op == vfs.OpSync && strings.HasSuffix(name, ".log") {
			select {
			case hangs <- struct{}{}:
			default: // it is known
			}
			<-gate
		}
		return nil
	})
	open := true
	release = func() {
		if open {
			open = false
			close(gate)
		}
	}
	c.t.Cleanup(release)
	return hangs, release
}

func TestALeaderSendsWhileItsDiskSyncsAndAnswersAfterwards(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	h := c.leader()
	c.produce(h, 0, 1)
	stuck, release := c.stick(h.cfg.Node)
	quorum := h.send(buildBatch(t, 1, 0, 1, 1), AppendOptions{})
	leader := h.send(buildBatch(t, 1, 0, 2, 1), AppendOptions{Acks: record.AckLeader})
	<-stuck
	for _, node := range others(c, h) {
		c.eventually("a follower has the first one, at least", c.holds(node, 2))
	}
	require.NoError(t, h.raft().VerifyLeader().Error(), "the followers answer")
	require.Empty(t, quorum)
	require.Empty(t, leader)
	require.EqualValues(t, 1, h.high.Load())
	release()
	for _, ch := range []<-chan outcome{quorum, leader} {
		o := c.get(ch)
		require.NoError(t, o.err)
		require.True(t, o.Synced)
	}
}

// TestWhatALeaderHasNotSyncedIsNeitherAnsweredNorMissed: its power fails while the
// followers have what it has not.
func TestWhatALeaderHasNotSyncedIsNeitherAnsweredNorMissed(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	h := c.leader()
	c.produce(h, 0, 1)
	lead := h.cfg.Node
	stuck, release := c.stick(lead)
	answer := h.send(buildBatch(t, 1, 0, 1, 1), AppendOptions{})
	<-stuck
	for _, node := range others(c, h) {
		c.eventually("a follower has it", c.holds(node, 2))
	}
	c.disks[lead].(*vfs.Mem).Crash()
	release()
	require.ErrorIs(t, c.get(answer).err, record.ErrOutcomeUnknown)
	c.die(lead, powerCut)
	c.produce(c.leader(), 2, 1)
	back, err := c.open(lead)
	require.NoError(t, err)
	c.live[lead] = back
	require.NoError(t, back.Wait(c.within(10*time.Second), 2))
	require.Equal(t, []string{"1/0", "1/1", "1/2"}, c.values(back, 3))
}

func TestTheOnlyVoterAnswersWhatIsOnItsDisk(t *testing.T) {
	c := newTrio(t, "a", "b")
	h := c.leader()
	c.produce(h, 0, 1)
	require.NoError(t, c.remove(others(c, h)[0]))
	h = c.leader(h.cfg.Node)
	stuck, release := c.stick(h.cfg.Node)
	answer := h.send(buildBatch(t, 1, 0, 1, 1), AppendOptions{})
	<-stuck
	require.Empty(t, answer)
	require.EqualValues(t, 1, h.high.Load())
	release()
	require.NoError(t, c.get(answer).err)
}

// TestAFollowerSaysThatItHasWhatIsOnItsDisk: it may have led, with a tail that is not
// durable yet.
func TestAFollowerSaysThatItHasWhatIsOnItsDisk(t *testing.T) {
	g := newGroupTransport(nil, groupID{}, "a", time.Second, 0)
	asked, durable := make(chan uint64), make(chan bool)
	g.durable = func(_ context.Context, entry uint64) bool {
		asked <- entry
		return <-durable
	}
	g.follows = func(uint64) bool { return true }
	g.certain = func() bool { return true }
	caughtUp := 0
	g.caughtUp = func() { caughtUp++ }
	for _, entries := range [][]*raft.Log{{{Index: 8}, {Index: 9}}, nil} {
		req := &raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 7, PrevLogTerm: 3, Entries: entries}
		for _, ok := range []bool{true, false} {
			errs := make(chan error, 1)
			before := caughtUp
			g.serve(t.Context(), rpcAppend, slices.Concat(encodeAppend(nil, req, 0)...), nil, func(_ [][]byte, err error) { errs <- err })
			rpc := <-g.Consumer()
			rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
			require.EqualValues(t, 7+len(entries), <-asked)
			require.Empty(t, errs)
			durable <- ok
			if ok {
				require.NoError(t, <-errs)
				require.Equal(t, before+1, caughtUp)
			} else {
				require.ErrorIs(t, <-errs, record.ErrUnreachable)
				require.Equal(t, before, caughtUp)
			}
		}
	}
}
