package replica

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
)

// docs/pitfalls.md lists the pitfalls of Raft over a partition's log, and the test of
// each; those that no other test has are here.

func TestPitfallPipeliningIsOff(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	h := c.leader()
	_, err := h.raft().transport.AppendEntriesPipeline("b", "b")
	require.ErrorIs(t, err, raft.ErrPipelineReplicationNotSupported)
	c.produce(h, 0, 4096) // with pipelining such a burst takes seconds; the answers have 10 s each
}

func TestPitfallTheStubBeforeTheLogIsNoEntry(t *testing.T) {
	c := newTrioOf(t, 4<<10, "a")
	h := c.leader()
	var l raft.Log
	require.Equal(t, raft.ErrLogNotFound, h.store.GetLog(0, &l), "a log from its beginning has no stub")
	c.produce(h, 0, 200)
	_, err := h.TrimTo(c.within(10*time.Second), 150)
	require.NoError(t, err)
	c.eventually("trim", func() bool { return h.store.log.Bounds().Start > 100 })
	h.forget()
	b := h.store.log.Bounds()
	require.NoError(t, h.store.GetLog(uint64(b.First)-1, &l))
	require.Equal(t, raft.Log{Index: uint64(b.First) - 1, Term: b.PrevTerm, Type: raft.LogNoop}, l)
	require.GreaterOrEqual(t, h.checkpoints.entry(), uint64(b.First)-1, "else it could be replicated")
	require.Greater(t, b.First, record.EntryNumber(2), "Raft does not ask for the entry before 1")
}

func TestPitfallAMissingEntryIsToldByIdentity(t *testing.T) {
	c := newTrioOf(t, 4<<10, "a")
	h := c.leader()
	var l raft.Log
	err := h.store.GetLog(1<<40, &l)
	require.True(t, err == raft.ErrLogNotFound, "Raft compares with ==: %v", err)
}

// failingStable fails every write from a moment on.
type failingStable struct {
	raft.StableStore
	err error
}

func (s *failingStable) Set([]byte, []byte) error       { return s.err }
func (s *failingStable) SetUint64([]byte, uint64) error { return s.err }

func TestPitfallAVoteFileThatFailsStopsTheReplicaAlone(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	h := c.leader()
	c.produce(h, 0, 1)
	broken := others(c, h)[0]
	stable := c.live[broken].stable
	stable.store = &failingStable{stable.store, os.ErrPermission}
	c.eventually("transfer", func() bool { // a new term, which cannot be written
		_ = h.TransferLeadership(c.within(10*time.Second), "")
		return c.live[broken].Status().Err != nil
	})
	require.ErrorIs(t, c.live[broken].Status().Err, os.ErrPermission)
	c.eventually("the others go on", func() bool {
		for _, node := range c.nodes {
			if o := c.get(c.live[node].send(buildBatch(t, 1, 0, 1, 1), AppendOptions{})); o.err == nil {
				return true
			}
		}
		return false
	})
}

func TestPitfallTheRingIsBoundedInBytes(t *testing.T) {
	var share ringShare
	rings := make([]ring, 32)
	for i := range rings {
		rings[i].share = &share
	}
	r := &rings[0]
	add := func(r *ring, index uint64, size int, applied uint64) {
		r.add(&raft.Log{Index: index, Data: make([]byte, size)}, applied, true)
		held := 0
		for i := range r.logs {
			held += len(r.logs[i].Data) + ringEntryBytes
		}
		require.Equal(t, held, r.bytes)
		held = 0
		for i := range r.logs[:r.old] {
			held += len(r.logs[i].Data) + ringEntryBytes
		}
		require.Equal(t, held, r.oldBytes)
	}
	index := uint64(0)
	for range 3000 {
		index++
		add(r, index, 10<<10, index-1)
		require.LessOrEqual(t, r.oldBytes, ringBytes)
	}
	require.Greater(t, r.oldBytes, ringBytes/2)
	for range 2 * ringBytes / ringEntryBytes / 10 { // entries without data count, too
		for range 10 {
			index++
			r.add(&raft.Log{Index: index}, index-1, true)
		}
		require.LessOrEqual(t, r.oldBytes, ringBytes)
	}

	for i := range rings { // many share less
		add(&rings[len(rings)-1-i], index+1, 10<<10, index)
	}
	require.LessOrEqual(t, r.oldBytes, nodeRingBytes/len(rings))
	require.EqualValues(t, len(rings), share.rings.Load())
	rings[1].cut(index + 1) // all of what is not applied, and that is all
	rings[2].clear()
	rings[2].clear()
	require.EqualValues(t, len(rings)-2, share.rings.Load())
}

func TestTheRingKeepsWhatIsNotAppliedAndTheTwoNewest(t *testing.T) {
	var r ring
	for i := range uint64(20) {
		r.add(&raft.Log{Index: 1 + i, Data: make([]byte, 2<<20)}, 4, true)
	}
	_, ok := r.get(1)
	require.False(t, ok)
	_, ok = r.get(5)
	require.True(t, ok, "the state machine will ask for it")
	for i := range uint64(20) { // nothing is ever applied
		r.add(&raft.Log{Index: 21 + i, Data: make([]byte, 8<<20)}, 4, true)
		require.LessOrEqual(t, r.bytes, maxQueueBytes+ringBytes)
	}
	for i := range uint64(3) {
		r.add(&raft.Log{Index: 41 + i, Data: make([]byte, 40<<20)}, 41+i, true)
	}
	require.Len(t, r.logs, 2, "the last one and the one before, whose term is asked for")
}

func TestAFollowersRingKeepsOfWhatIsAppliedTheTwoNewest(t *testing.T) {
	var r ring
	for i := range uint64(20) { // as the leader
		r.add(&raft.Log{Index: 1 + i}, min(i, 10), true)
	}
	require.Len(t, r.logs, 20)
	r.add(&raft.Log{Index: 21}, 18, false)
	require.Len(t, r.logs, 3, "19, 20 and 21 are not applied")
	_, ok := r.get(19)
	require.True(t, ok, "the state machine will ask for it")
	r.add(&raft.Log{Index: 22}, 22, false)
	require.Len(t, r.logs, 2)
}

func TestReplicasOfOneProcessShareAnEntryInMemory(t *testing.T) {
	c := startTrio(t, &trio{timeout: 10 * time.Second}, "a", "b", "c") // no second election
	h := c.leader()
	o := c.get(h.send(buildBatch(t, 1, 0, 0, 1), AppendOptions{}))
	require.NoError(t, o.err)
	batch := func(h *host) *byte { // in its ring
		h.store.mu.Lock()
		defer h.store.mu.Unlock()
		for _, l := range h.store.ring.logs {
			if l.Type == raft.LogCommand {
				return &l.Data[0]
			}
		}
		return nil
	}
	for _, node := range c.nodes {
		c.eventually("the replica has it", func() bool { return batch(c.live[node]) != nil })
		require.Same(t, batch(h), batch(c.live[node]))
	}
}

// TestPitfallRaftIsNeverRecoveredNorRestored: the one deletes the log, the other
// makes holes in the entry numbers.
func TestPitfallRaftIsNeverRecoveredNorRestored(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NotContains(t, string(text), "RecoverCluster", file)
		require.NotContains(t, string(text), "raft().Restore(", file)
	}
}

// TestPitfallACheckpointIsNoNewerThanTheDurableLog: under FlushNever a loss of power
// right after a checkpoint must leave the log up to the checkpoint's entry.
func TestPitfallACheckpointIsNoNewerThanTheDurableLog(t *testing.T) {
	c := startTrio(t, &trio{flush: log.FlushNever}, "a")
	h := c.leader()
	c.produce(h, 0, 20)
	h.checkpoint()
	entry := h.checkpoints.entry()
	require.Greater(t, entry, uint64(20))
	c.die("a", powerCut)
	h = c.start("a")
	require.Equal(t, entry, h.checkpoints.entry(), "it was used")
	require.GreaterOrEqual(t, uint64(h.store.log.Bounds().Next)-1, entry)
	require.Len(t, c.values(c.leader(), 20), 20)
}

func TestPitfallACheckpointWithNothingNewIsNoFailure(t *testing.T) {
	c := newTrio(t, "a")
	h := c.leader()
	c.produce(h, 0, 1)
	h.checkpoint()
	h.checkpoint()
	require.NoError(t, h.Status().Err)
	c.produce(h, 1, 1)
}

// TestWhatIsReplayedAfterACrashIsBoundedInBytes: large batches make many bytes of few
// entries.
func TestWhatIsReplayedAfterACrashIsBoundedInBytes(t *testing.T) {
	c := startTrio(t, &trio{sleep: -1}, "a") // nothing else than what is applied asks for a checkpoint
	h := c.leader()
	var b record.Builder
	require.NoError(t, b.Append(&record.Record{Value: make([]byte, 7<<20)}))
	for range checkpointEvery/(7<<20) + 1 {
		batch, err := b.Build(record.BatchOptions{})
		require.NoError(t, err)
		require.NoError(t, c.get(h.send(batch, AppendOptions{})).err)
	}
	c.eventually("a checkpoint", func() bool { return h.checkpoints.entry() > 0 })
}

// TestPitfallWhatTheChecksumLeavesOutIsChecked: base offset, epoch and length lie
// outside the checksum.
func TestPitfallWhatTheChecksumLeavesOutIsChecked(t *testing.T) {
	good := batchOf(t, 1, 0, 0, 2, 40)
	require.NoError(t, verify(good, 40, 1))
	require.Error(t, verify(good, 39, 1), "another offset than the log's end")
	require.Error(t, verify(good, 40, 2), "another epoch than the entry's")
	require.Error(t, verify(good[:len(good)-1], 40, 1), "another length")
	require.Error(t, verify(command{9, 1}.encode(), 40, 1), "a command that is unknown")
}

func TestPitfallTheTransportKeepsWhatRaftLooksForByType(t *testing.T) {
	var transport raft.Transport = &groupTransport{}
	require.Implements(t, (*raft.WithPreVote)(nil), transport, "else there is no vote before the vote")
	require.Implements(t, (*raft.WithClose)(nil), transport)
	require.Implements(t, (*raft.MonotonicLogStore)(nil), &store{}, "else an install leaves the old prefix")
	require.True(t, (&store{}).IsMonotonic())
}

// behind stops a follower, has the leader write and trim past what it has, and
// returns its node and the offset from which on records are kept, of 330.
func behind(t *testing.T, c *trio) (h *host, node string, kept record.Offset) {
	t.Helper()
	h = c.leader()
	c.produce(h, 0, 30)
	node = others(c, h)[0]
	c.values(c.live[node], 30)
	c.stop(node)
	c.produce(h, 30, 300)
	_, err := h.TrimTo(c.within(10*time.Second), 280)
	require.NoError(t, err)
	c.eventually("trim", func() bool { return h.store.log.Bounds().Start > 130 })
	h.forget()
	return h, node, 280
}

func TestAFollowerBehindTheLogStartTakesOneSnapshot(t *testing.T) {
	c := newTrioOf(t, 4<<10, "a", "b", "c")
	_, node, kept := behind(t, c)
	c.net.Isolate(node)
	back := c.start(node)
	var installs atomic.Int32
	c.disks[node].(*vfs.Mem).Fail(func(op vfs.Op, name string) error {
		if op == vfs.OpRename && strings.Contains(name, checkpointName) {
			installs.Add(1)
		}
		return nil
	})
	c.net.Heal()
	require.NoError(t, back.Wait(c.within(10*time.Second), 329))
	require.Equal(t, 50, readable(t, back, kept))
	require.Equal(t, int32(1), installs.Load(), "then it goes on by entries")
}

// TestAnInstallSurvivesTroubleAtEachAccessToTheDisk: a follower that goes on from
// the leader's log start, and loses power or finds its disk full at the n-th access,
// for each n, comes back, and has everything that is there.
func TestAnInstallSurvivesTroubleAtEachAccessToTheDisk(t *testing.T) {
	for _, trouble := range []string{"power", "full"} {
		t.Run(trouble, func(t *testing.T) {
			t.Parallel()
			c := startTrio(t, &trio{segment: 4 << 10, timeout: 300 * time.Millisecond}, "a", "b", "c")
			h, node, kept := behind(t, c)
			before := c.disks[node].(*vfs.Mem)
			hit := 0
			for n := 1; n <= 10; n++ {
				disk := before.Reboot(processEnd) // as it was
				c.disks[node] = disk
				c.net.Isolate(node)
				back := c.start(node)
				reached, accesses := make(chan struct{}), 0
				disk.Fail(func(op vfs.Op, _ string) error {
					if accesses++; accesses < n {
						return nil
					}
					if accesses == n {
						close(reached)
					}
					if trouble == "power" {
						disk.Crash()
					} else if op == vfs.OpWrite {
						return vfs.ErrNoSpace
					}
					return nil
				})
				c.net.Heal()
				c.eventually("trouble, or nothing more to do", func() bool {
					select {
					case <-reached:
						hit++
						return true
					default:
						return back.Status().HighWatermark == 330
					}
				})
				disk.Fail(nil)
				if trouble == "power" || back.stopped() != nil {
					c.die(node, powerCut)
					back = c.start(node)
				}
				require.NoError(t, back.Wait(c.within(10*time.Second), 329), "access %d", n)
				require.Equal(t, 50, readable(t, back, kept), "access %d", n)
				require.Equal(t, h.store.log.Bounds().End, back.store.log.Bounds().End)
				c.stop(node)
			}
			require.GreaterOrEqual(t, hit, 6, "an install makes that many accesses")
		})
	}
}
