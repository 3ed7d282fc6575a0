package replica

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
)

// What a crash leaves of what was written and not synced: seeds of vfs.Mem.Reboot.
const (
	powerCut   = 0 // nothing
	processEnd = 1 // everything: the operating system has it
)

// die ends a node at this moment, without a word to anybody. start brings it back.
func (c *trio) die(node string, rest uint64) {
	c.t.Helper()
	h := c.live[node]
	delete(c.live, node)
	c.disks[node] = c.disks[node].(*vfs.Mem).Reboot(rest)
	require.NoError(c.t, h.endpoint.Close())
	h.raft().shutdown()
	_ = h.Close() // its disk is gone
	require.NoError(c.t, h.mux.Close())
}

// acked has a record acknowledged by as few replicas as the level allows, and
// returns who led, and who has nothing of the record.
func (c *trio) acked(h *host, acks record.Acks) (lead string, without []string) {
	c.t.Helper()
	lead, without = h.Status().Node, others(c, h)
	switch acks {
	case record.AckQuorum:
		without = without[:1]
	case record.AckAll:
		without = nil
	}
	for _, node := range without {
		c.net.Cut(lead, node)
	}
	o := c.get(h.send(buildBatch(c.t, 7, 0, 0, 1), AppendOptions{Acks: acks}))
	require.NoError(c.t, o.err, "the record is acknowledged")
	c.eventually("the leader has it", func() bool { return h.Status().EndOffset == 2 })
	return lead, without
}

// failures are what may follow an acknowledgement. Each leaves a quorum that can
// elect, with the replicas in it that know least.
var failures = map[string]func(c *trio, lead string, without []string){
	"the leader's process ends": func(c *trio, lead string, _ []string) {
		c.die(lead, processEnd)
	},
	"the leader's machine loses power": func(c *trio, lead string, _ []string) {
		c.die(lead, powerCut)
	},
	"the leader is cut off": func(c *trio, lead string, _ []string) {
		c.net.Isolate(lead)
		c.leader(slices.DeleteFunc(slices.Clone(c.nodes), func(n string) bool { return n == lead })...)
	},
	"all processes end": func(c *trio, lead string, without []string) {
		c.allDie(processEnd, lead, without)
	},
	"all machines lose power": func(c *trio, lead string, without []string) {
		c.allDie(powerCut, lead, without)
	},
}

// allDie ends all nodes and starts a quorum of them, those without the record first.
func (c *trio) allDie(rest uint64, lead string, without []string) {
	for _, node := range c.nodes {
		c.die(node, rest)
	}
	back := slices.Clone(without)
	for _, node := range c.nodes {
		if node != lead && !slices.Contains(back, node) {
			back = append(back, node)
		}
	}
	for _, node := range back[:2] {
		c.start(node)
	}
}

// TestWhatAnAcknowledgedRecordSurvives shows each loss and each non-loss of the
// table in docs/acks.md, in the worst arrangement that the level allows. A loss is
// shown under the strongest flush policy that has it, a non-loss under the weakest.
func TestWhatAnAcknowledgedRecordSurvives(t *testing.T) {
	each, never := log.FlushEach, log.FlushNever
	every := log.FlushEvery(time.Hour) // the power goes before its time comes
	const none, leader, quorum, all = record.AckNone, record.AckLeader, record.AckQuorum, record.AckAll
	for _, tc := range []struct {
		failure string
		acks    record.Acks
		flush   log.FlushPolicy
		lost    bool
	}{
		{"the leader's process ends", none, each, true},
		{"the leader's process ends", leader, each, true},
		{"the leader's process ends", quorum, never, false},
		{"the leader's process ends", all, never, false},
		{"the leader's machine loses power", none, each, true},
		{"the leader's machine loses power", leader, each, true},
		{"the leader's machine loses power", quorum, never, false},
		{"the leader's machine loses power", all, never, false},
		{"the leader is cut off", none, each, true},
		{"the leader is cut off", leader, each, true},
		{"the leader is cut off", quorum, never, false},
		{"the leader is cut off", all, never, false},
		{"all processes end", none, each, true},
		{"all processes end", leader, each, true},
		{"all processes end", quorum, never, false},
		{"all processes end", all, never, false},
		{"all machines lose power", none, each, true},
		{"all machines lose power", leader, each, true},
		{"all machines lose power", quorum, each, false},
		{"all machines lose power", quorum, every, true},
		{"all machines lose power", quorum, never, true},
		{"all machines lose power", all, each, false},
		{"all machines lose power", all, every, true},
		{"all machines lose power", all, never, true},
	} {
		t.Run(fmt.Sprintf("%s/%v/%v", tc.failure, tc.acks, tc.flush), func(t *testing.T) {
			t.Parallel()
			c := startTrio(t, &trio{flush: tc.flush, timeout: 300 * time.Millisecond, lag: time.Minute}, "a", "b", "c")
			h := c.leader()
			c.produce(h, 0, 1)
			for _, node := range c.nodes {
				require.NoError(t, c.live[node].Wait(c.within(10*time.Second), 0))
				require.NoError(t, c.live[node].store.log.Sync()) // what came before is not the question
			}
			lead, without := c.acked(h, tc.acks)
			failures[tc.failure](c, lead, without)
			c.net.Heal()
			if c.live[lead] == nil && tc.flush != log.FlushEach && tc.failure == "all machines lose power" {
				c.start(lead) // nobody leads before all have said what they have left
			}
			h = c.leader()
			if c.live[lead] == nil {
				c.start(lead) // too late to be heard
			}
			require.NoError(t, c.get(h.send(buildBatch(t, 9, 0, 0, 1), AppendOptions{})).err)
			want := []string{"1/0", "7/0", "9/0"}
			if tc.lost {
				want = []string{"1/0", "9/0"}
			}
			require.Equal(t, want, c.values(h, record.Offset(len(want))))
		})
	}
}

// TestAckAllIsOnEveryReplicasDisk: any one of them is enough to have the record.
func TestAckAllIsOnEveryReplicasDisk(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	h := c.leader()
	c.produce(h, 0, 1)
	_, _ = c.acked(h, record.AckAll)
	for _, node := range c.nodes {
		c.die(node, powerCut)
	}
	for _, node := range c.nodes {
		h := c.start(node)
		batches, err := h.store.log.Read(1, h.Status().EndOffset, 1)
		require.NoError(t, err)
		require.Equal(t, record.ProducerID(7), batches[0].ProducerID(), "on %s", node)
		c.stop(node)
	}
}

func TestAFullDiskLosesOnlyWhatNobodyWaitsFor(t *testing.T) {
	for _, acks := range []record.Acks{record.AckNone, record.AckLeader, record.AckQuorum, record.AckAll} {
		t.Run(acks.String(), func(t *testing.T) {
			c := newTrio(t, "a")
			h := c.leader()
			c.produce(h, 0, 1)
			disk, full := c.disks["a"].(*vfs.Mem), make(chan struct{}, 100)
			disk.Fail(func(op vfs.Op, _ string) error {
				if op == vfs.OpWrite {
					full <- struct{}{}
					return vfs.ErrNoSpace
				}
				return nil
			})
			o := c.get(h.send(buildBatch(t, 7, 0, 0, 1), AppendOptions{Acks: acks}))
			if acks == record.AckNone {
				require.NoError(t, o.err, "it was told nothing")
			} else {
				require.Error(t, o.err)
				require.False(t, errors.Is(o.err, record.ErrOutcomeUnknown), "certainly not written: %v", o.err)
			}
			<-full
			disk.Fail(nil)
			h = c.leader()
			require.NoError(t, c.get(h.send(buildBatch(t, 9, 0, 0, 1), AppendOptions{})).err)
			require.Equal(t, []string{"1/0", "9/0"}, c.values(h, 2))
		})
	}
}
