package replica

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
)

// TestACheckpointRacesAnInstall: a follower that goes on from the leader's log
// start writes checkpoints of its own all the while, and is opened again.
func TestACheckpointRacesAnInstall(t *testing.T) {
	c := newTrioOf(t, 4<<10, "a", "b", "c")
	h, node, kept := behind(t, c)
	for range 3 {
		before := c.disks[node].(*vfs.Mem).Reboot(processEnd)
		c.disks[node] = before.Reboot(processEnd)
		c.net.Isolate(node)
		back := c.start(node)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					back.checkpoint()
				}
			}
		})
		c.net.Heal()
		err := back.Wait(c.within(10*time.Second), 329)
		close(stop)
		wg.Wait()
		require.NoError(t, err)
		require.Equal(t, 50, readable(t, back, kept))
		c.die(node, powerCut)
		back = c.start(node)
		require.NoError(t, back.Wait(c.within(10*time.Second), 329))
		require.Equal(t, 50, readable(t, back, kept))
		require.Equal(t, h.store.log.Bounds().End, back.store.log.Bounds().End)
		c.stop(node)
		c.disks[node] = before
	}
}

// TestALeaderWithASlowFollowerKeepsLittleInMemory writes 94 MiB to disk while a
// follower takes nothing.
func TestALeaderWithASlowFollowerKeepsLittleInMemory(t *testing.T) {
	c := startTrio(t, &trio{dir: t.TempDir(), lag: 50 * time.Millisecond}, "a", "b", "c")
	h := c.leader()
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	write := func(from, n int) {
		value := strings.Repeat("x", 64<<10)
		for i := from; i < from+n; i++ {
			var b record.Builder
			require.NoError(t, b.Append(&record.Record{Value: []byte(value), Time: time.UnixMilli(1)}))
			batch, err := b.Build(record.BatchOptions{Producer: &record.ProducerStamp{ID: 1, Sequence: record.Sequence(i)}})
			require.NoError(t, err)
			require.NoError(t, c.get(h.send(batch, AppendOptions{})).err)
		}
	}
	write(0, 100)
	before := heap()
	c.net.Isolate(others(c, h)[0])
	write(100, 1500)
	require.Less(t, heap(), before+32<<20, "what the follower lacks lies on disk")
	c.net.Heal()
}

// TestPitfallTheOldestEntryIsCheapToRead: each leader reads it every ten seconds.
func TestPitfallTheOldestEntryIsCheapToRead(t *testing.T) {
	c := newTrioOf(t, 4<<10, "a")
	h := c.leader()
	c.produce(h, 0, 300)
	var reads atomic.Int32
	c.disks["a"].(*vfs.Mem).Fail(func(op vfs.Op, _ string) error {
		if op == vfs.OpRead {
			reads.Add(1)
		}
		return nil
	})
	first, err := h.store.FirstIndex()
	require.NoError(t, err)
	require.NoError(t, h.store.GetLog(first, new(raft.Log)))
	c.disks["a"].(*vfs.Mem).Fail(nil)
	require.LessOrEqual(t, reads.Load(), int32(2), "one page, and the entry if it is longer")
}

// TestPitfallACheckpointBesideAChangeOfMembershipIsNoFailure: Raft refuses one
// while the newest membership is not committed.
func TestPitfallACheckpointBesideAChangeOfMembershipIsNoFailure(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	h := c.leader()
	c.produce(h, 0, 5)
	for _, node := range others(c, h) {
		c.net.Pause(node)
	}
	changing := h.raft().AddNonvoter("d", "d", 0, time.Second) // which nobody hears of
	c.eventually("the change is in the leader's log", func() bool { return h.Members().Has("d") })
	h.checkpoint()
	require.NoError(t, h.Status().Err)
	c.net.Heal()
	_ = changing.Error() // made, or cut
	h = c.leader()
	c.produce(h, 5, 5)
	c.eventually("a checkpoint", func() bool {
		h.checkpoint()
		return h.checkpoints.entry() > 5
	})
}

// TestPitfallASlowDiskCostsNoLeadership: heartbeats are answered beside the main
// loop, which waits for the disk for longer than the election timeout.
func TestPitfallASlowDiskCostsNoLeadership(t *testing.T) {
	c := startTrio(t, &trio{timeout: 300 * time.Millisecond}, "a", "b", "c")
	h := c.leader()
	c.produce(h, 0, 1)
	term := h.Status().Epoch
	ctx, cancel := context.WithTimeout(t.Context(), 4*c.timeout)
	defer cancel()
	slow := make(chan struct{}, 8)
	for _, node := range others(c, h) {
		c.disks[node].(*vfs.Mem).Fail(func(op vfs.Op, _ string) error {
			if op == vfs.OpSync {
				select {
				case slow <- struct{}{}:
				default: // known already
				}
				<-ctx.Done()
			}
			return nil
		})
	}
	answer := h.send(buildBatch(t, 1, 0, 1, 1), AppendOptions{})
	<-slow
	<-slow
	require.NoError(t, c.get(answer).err)
	require.Error(t, ctx.Err(), "the followers' disks were slow")
	require.Equal(t, term, h.Status().Epoch, "the leader led on")
}
