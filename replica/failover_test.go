package replica

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
)

// stampedBatch is one record with a time of its own.
func stampedBatch(t testing.TB, id record.ProducerID, first record.Sequence, value string, at time.Time) record.Batch {
	t.Helper()
	var b record.Builder
	r := record.Record{Value: []byte(value), Time: at}
	require.NoError(t, b.Append(&r))
	batch, err := b.Build(record.BatchOptions{Producer: &record.ProducerStamp{ID: id, Sequence: first}})
	require.NoError(t, err)
	return batch
}

// TestALeaderThatFailsInAnyWayIsReplaced: the others elect without a call of
// anybody's, readers of the deposed leader see nothing that was not committed, and
// its unacknowledged tail is gone when it is back, from the log, the time index and
// the producers' state.
func TestALeaderThatFailsInAnyWayIsReplaced(t *testing.T) {
	const away = 1 // the process is gone: it has no tail to cut but what its disk kept
	for name, tc := range map[string]struct {
		fail func(c *trio, lead string)
		kind int
	}{
		"closed":                    {func(c *trio, lead string) { c.stop(lead) }, away},
		"paused":                    {func(c *trio, lead string) { c.net.Pause(lead) }, 0},
		"cut off":                   {func(c *trio, lead string) { c.net.Isolate(lead) }, 0},
		"cut off from hearing":      {func(c *trio, lead string) { c.cutOneWay(lead, false) }, 0},
		"cut off from speaking":     {func(c *trio, lead string) { c.cutOneWay(lead, true) }, 0},
		"killed":                    {func(c *trio, lead string) { c.die(lead, processEnd) }, away},
		"killed by a loss of power": {func(c *trio, lead string) { c.die(lead, powerCut) }, away},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startTrio(t, &trio{timeout: 300 * time.Millisecond, flush: log.FlushNever}, "a", "b", "c")
			old := c.leader()
			lead, rest := old.Status().Node, others(c, old)
			c.produce(old, 0, 5)
			for _, node := range rest {
				c.values(c.live[node], 5)
			}
			far := time.UnixMilli(1_800_000_000_000) // the time of the tail alone
			tail := make(chan outcome, 3)
			for i := range 3 { // placed here, and on no other
				for _, node := range rest {
					c.net.CutOneWay(lead, node)
				}
				old.Append(context.Background(), stampedBatch(t, 7, record.Sequence(i), fmt.Sprintf("tail %d", i), far),
					AppendOptions{}, func(a record.Appended, err error) { tail <- outcome{a, err} })
			}
			c.eventually("the tail is placed", func() bool { return old.Status().EndOffset == 8 || !old.leads() })
			tc.fail(c, lead)

			h := c.leader(rest...)
			for i := 5; i < 8; i++ {
				c.produce(h, i, 1)
			}
			if tc.kind != away {
				require.Equal(t, 5, len(c.values(old, 5)), "nobody reads what is not committed")
				_, found, err := old.OffsetForTime(t.Context(), far.UnixMilli())
				require.NoError(t, err)
				require.False(t, found)
			}
			c.net.Heal()
			if c.live[lead] == nil {
				c.start(lead)
			}
			back := c.live[lead]
			want := []string{"1/0", "1/1", "1/2", "1/3", "1/4", "1/5", "1/6", "1/7"}
			require.Equal(t, want, c.values(back, 8))
			for range 3 {
				require.Error(t, c.get(tail).err)
			}
			_, found, err := back.OffsetForTime(t.Context(), far.UnixMilli())
			require.NoError(t, err)
			require.False(t, found, "the time index has forgotten the tail")
			h = c.leader()
			c.produce(h, 8, 1)
			require.NotContains(t, c.allRemember(h), record.ProducerID(7), "and the producers' state has")
			require.False(t, c.get(h.send(stampedBatch(t, 7, 0, "again", far), AppendOptions{})).Duplicate)
		})
	}
}

// cutOneWay cuts a node off from the others in one direction.
func (c *trio) cutOneWay(node string, speaking bool) {
	for _, other := range c.nodes {
		switch {
		case other == node:
		case speaking:
			c.net.CutOneWay(node, other)
		default:
			c.net.CutOneWay(other, node)
		}
	}
}

// TestQuickChangesOfLeadershipKeepOrderAndLoseNothing: five batches are in flight
// while leadership moves again and again.
func TestQuickChangesOfLeadershipKeepOrderAndLoseNothing(t *testing.T) {
	c := startTrio(t, &trio{timeout: 300 * time.Millisecond}, "a", "b", "c")
	stop := make(chan struct{})
	moved := make(chan int, 1)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				moved <- n
				return
			default:
			}
			for _, node := range c.nodes {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				if h := c.live[node]; h.leads() && h.TransferLeadership(ctx, "") == nil {
					n++
				}
				cancel()
			}
		}
	}()
	want := c.sendExactlyOnce(0, 200)
	close(stop)
	require.Greater(t, <-moved, 3)
	require.Equal(t, want, c.values(c.leader(), 200))
}

// sendExactlyOnce sends batches from to n of producer 1 as package producer does:
// five in flight, all of them again in order when one failed, until each has its
// answer. It returns what the log must hold.
func (c *trio) sendExactlyOnce(from, n int) (want []string) {
	c.t.Helper()
	for done := from; done < n; {
		var h *host
		c.eventually("a leader", func() bool {
			for _, node := range c.nodes {
				if h = c.live[node]; h != nil && h.stopped() == nil && h.leads() {
					return true
				}
			}
			return false
		})
		first := done
		var flying []<-chan outcome
		for i := first; i < min(n, first+window); i++ {
			flying = append(flying, h.send(buildBatch(c.t, 1, 0, record.Sequence(i), 1), AppendOptions{}))
		}
		failed := false
		for i, ch := range flying {
			o := c.get(ch)
			if failed = failed || o.err != nil; !failed {
				require.Equal(c.t, record.Offset(first+i), o.BaseOffset, "the original offset, duplicate %v", o.Duplicate)
				done++
			}
		}
	}
	for i := range n {
		want = append(want, fmt.Sprintf("1/%d", i))
	}
	return want
}

// TestALeaderMayDieAtEveryStepOfAWrite kills the leader at each access to its disk
// and to a follower's, with five batches in flight: before and after each is
// enqueued, written, synced, replicated, committed and applied. What was answered is
// lost, and everything is sent again: nothing is written twice and every batch gets
// the offset it had.
func TestALeaderMayDieAtEveryStepOfAWrite(t *testing.T) {
	for _, rest := range []uint64{processEnd, powerCut} {
		for _, whose := range []string{"leader", "follower"} {
			t.Run(fmt.Sprintf("rest %d, at the %s's", rest, whose), func(t *testing.T) {
				t.Parallel()
				for step := 1; ; step++ {
					if c := startTrio(t, &trio{timeout: 300 * time.Millisecond}, "a", "b", "c"); !c.dieAtStep(step, whose, rest) {
						require.Greater(t, step, 2)
						return
					}
				}
			})
		}
	}
}

// dieAtStep reports whether there was such a step.
func (c *trio) dieAtStep(step int, whose string, rest uint64) bool {
	h := c.leader()
	c.produce(h, 0, 2)
	lead := h.Status().Node
	watched := lead
	if whose == "follower" {
		watched = others(c, h)[0]
		c.net.Cut(lead, others(c, h)[1]) // so that the quorum needs the one that is watched
	}
	reached, accesses := make(chan struct{}), atomic.Int32{} // a leader syncs beside its writes
	disk := c.disks[watched].(*vfs.Mem)
	disk.Fail(func(vfs.Op, string) error {
		if accesses.Add(1) == int32(step) {
			c.net.Isolate(lead) // it speaks to nobody from here on
			close(reached)
		}
		return nil
	})
	var flying []<-chan outcome
	for i := 2; i < 2+window; i++ {
		flying = append(flying, h.send(buildBatch(c.t, 1, 0, record.Sequence(i), 1), AppendOptions{}))
	}
	there := true
	select {
	case <-reached:
	case o := <-flying[window-1]: // the last answer: all steps are behind it
		select {
		case <-reached:
		default:
			there = false
			require.NoError(c.t, o.err)
		}
	}
	disk.Fail(nil)
	c.die(lead, rest) // whatever it has answered is forgotten
	c.net.Heal()
	c.leader(slices.DeleteFunc(slices.Clone(c.nodes), func(n string) bool { return n == lead })...)
	want := c.sendExactlyOnce(2, 8)
	c.start(lead)
	for _, node := range c.nodes {
		require.Equal(c.t, want, c.values(c.live[node], 8), "step %d, on %s", step, node)
	}
	return there
}
