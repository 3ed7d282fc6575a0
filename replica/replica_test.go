package replica

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

func TestPreferredNodeLeadsANewPartition(t *testing.T) {
	c := newTrio(t, "b", "a", "c")
	require.Equal(t, "b", c.leader().Status().Node)
}

func TestOneReplicaNeedsNobody(t *testing.T) {
	c := newTrio(t, "a")
	h := c.leader()
	o := c.get(h.send(buildBatch(t, 1, 0, 0, 3), AppendOptions{}))
	require.NoError(t, o.err)
	require.Equal(t, record.Offset(0), o.BaseOffset)
	require.Equal(t, []string{"1/0", "1/1", "1/2"}, c.values(h, 3))
}

func TestAppendedRecordsAreOnEveryReplica(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	h := c.leader()
	var want []string
	var answers []<-chan outcome
	for i := range 200 {
		answers = append(answers, h.send(buildBatch(t, 1, 0, record.Sequence(2*i), 2), AppendOptions{}))
		want = append(want, fmt.Sprintf("1/%d", 2*i), fmt.Sprintf("1/%d", 2*i+1))
	}
	for i, ch := range answers {
		o := c.get(ch)
		require.NoError(t, o.err)
		require.Equal(t, record.Offset(2*i), o.BaseOffset, "offsets follow the order of the calls")
	}
	for _, node := range c.nodes {
		require.Equal(t, want, c.values(c.live[node], 400), "node %s", node)
	}
}

func TestFollowerRefusesAppendsAndNamesTheLeader(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	lead := c.leader().Status().Node
	for _, node := range c.nodes {
		if node == lead {
			continue
		}
		require.NoError(t, c.live[node].Wait(c.within(time.Second), -1)) // any high watermark
		o := c.get(c.live[node].send(buildBatch(t, 1, 0, 0, 1), AppendOptions{}))
		require.ErrorIs(t, o.err, record.ErrNotLeader)
	}
}

func TestDuplicatesGetTheirFirstOffset(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	h := c.leader()
	first := h.send(buildBatch(t, 1, 0, 0, 2), AppendOptions{})
	again := h.send(buildBatch(t, 1, 0, 0, 2), AppendOptions{}) // while the first is under way
	gap := h.send(buildBatch(t, 1, 0, 9, 2), AppendOptions{})
	next := h.send(buildBatch(t, 1, 0, 2, 2), AppendOptions{})

	o := c.get(first)
	require.NoError(t, o.err)
	require.False(t, o.Duplicate)
	o = c.get(again)
	require.NoError(t, o.err)
	require.True(t, o.Duplicate)
	require.Equal(t, record.Offset(0), o.BaseOffset)
	require.ErrorIs(t, c.get(gap).err, record.ErrOutOfOrder)
	o = c.get(next)
	require.NoError(t, o.err)
	require.Equal(t, record.Offset(2), o.BaseOffset, "refused batches take no offset")
	require.Equal(t, []string{"1/0", "1/1", "1/2", "1/3"}, c.values(h, 4))
}

func TestANewLeaderKnowsTheDuplicatesOfTheOld(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	h := c.leader()
	for i := range 7 {
		require.NoError(t, c.get(h.send(buildBatch(t, 1, 0, record.Sequence(i), 1), AppendOptions{})).err)
	}
	c.stop(h.Status().Node)

	h = c.leader()
	o := c.get(h.send(buildBatch(t, 1, 0, 6, 1), AppendOptions{}))
	require.NoError(t, o.err)
	require.True(t, o.Duplicate)
	require.Equal(t, record.Offset(6), o.BaseOffset)
	require.ErrorIs(t, c.get(h.send(buildBatch(t, 1, 0, 1, 1), AppendOptions{})).err, record.ErrDuplicate)
	o = c.get(h.send(buildBatch(t, 1, 0, 7, 1), AppendOptions{}))
	require.NoError(t, o.err)
	require.Equal(t, record.Offset(7), o.BaseOffset)
}

func TestAStoppedNodeCatchesUp(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	h := c.leader()
	require.NoError(t, c.get(h.send(buildBatch(t, 1, 0, 0, 1), AppendOptions{})).err)
	gone := h.Status().Node
	c.stop(gone)

	h = c.leader()
	for i := 1; i < 300; i++ {
		require.NoError(t, c.get(h.send(buildBatch(t, 1, 0, record.Sequence(i), 1), AppendOptions{})).err)
	}
	back := c.start(gone)
	require.Len(t, c.values(back, 300), 300)
}

func TestEverythingIsThereAfterAFullRestart(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	h := c.leader()
	for i := range 20 {
		require.NoError(t, c.get(h.send(buildBatch(t, 1, 0, record.Sequence(i), 1), AppendOptions{})).err)
	}
	for _, node := range c.nodes { // followers learn what is committed a little later
		require.NoError(t, c.live[node].Wait(c.within(10*time.Second), 19))
	}
	for _, node := range c.nodes {
		c.stop(node)
	}
	for _, node := range c.nodes {
		h := c.start(node)
		require.Equal(t, record.Offset(20), h.Status().HighWatermark, "the checkpoint of a clean stop says so before any election")
	}
	h = c.leader()
	require.Len(t, c.values(h, 20), 20)
	o := c.get(h.send(buildBatch(t, 1, 0, 19, 1), AppendOptions{}))
	require.NoError(t, o.err)
	require.True(t, o.Duplicate)
	require.NoError(t, c.get(h.send(buildBatch(t, 1, 0, 20, 1), AppendOptions{})).err)
}

func TestADamagedCheckpointCostsOnlyTime(t *testing.T) {
	for _, damage := range []string{"", "QLOG", "QLOGCKPTxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"} {
		c := newTrio(t, "a")
		h := c.leader()
		for i := range 20 {
			require.NoError(t, c.get(h.send(buildBatch(t, 1, 0, record.Sequence(i), 1), AppendOptions{})).err)
		}
		c.stop("a")
		disk := c.disks["a"]
		const name = "/a/orders-0/" + checkpointName
		_, err := disk.ReadFile(name)
		require.NoError(t, err)
		require.NoError(t, disk.Remove(name))
		f, err := disk.Create(name)
		require.NoError(t, err)
		_, err = f.WriteAt([]byte(damage), 0)
		require.NoError(t, err)
		require.NoError(t, f.Close())

		c.start("a")
		h = c.leader()
		require.Len(t, c.values(h, 20), 20)
		require.True(t, c.get(h.send(buildBatch(t, 1, 0, 19, 1), AppendOptions{})).Duplicate)
	}
}

func TestTheDeposedLeadersTailIsCut(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	old := c.leader()
	node := old.Status().Node
	require.NoError(t, c.get(old.send(buildBatch(t, 1, 0, 0, 1), AppendOptions{})).err)

	c.net.Isolate(node)
	lost := old.send(buildBatch(t, 2, 0, 0, 1), AppendOptions{}) // placed, never committed
	var others []string
	for _, n := range c.nodes {
		if n != node {
			others = append(others, n)
		}
	}
	h := c.leader(others...)
	require.NoError(t, c.get(h.send(buildBatch(t, 1, 0, 1, 1), AppendOptions{})).err)
	require.ErrorIs(t, c.get(lost).err, record.ErrOutcomeUnknown)
	require.Equal(t, []string{"1/0"}, c.values(old, 1), "nobody reads what is not committed")

	c.net.Heal()
	require.Equal(t, []string{"1/0", "1/1"}, c.values(old, 2))
	// Producer 2 begins anew: its lost batch is forgotten with the tail.
	h = c.leader()
	o := c.get(h.send(buildBatch(t, 2, 0, 0, 1), AppendOptions{}))
	require.NoError(t, o.err)
	require.False(t, o.Duplicate)
}

func TestAckLevels(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	h := c.leader()
	o := c.get(h.send(buildBatch(t, 1, 0, 0, 1), AppendOptions{Acks: record.AckNone}))
	require.NoError(t, o.err)
	require.Equal(t, record.NoOffset, o.BaseOffset)
	o = c.get(h.send(buildBatch(t, 1, 0, 1, 1), AppendOptions{Acks: record.AckLeader}))
	require.NoError(t, o.err)
	require.Equal(t, record.Offset(1), o.BaseOffset)
	require.Len(t, c.values(h, 2), 2)

	// Cut off, the leader still answers AckLeader, but not AckQuorum.
	c.net.Isolate(h.Status().Node)
	o = c.get(h.send(buildBatch(t, 1, 0, 2, 1), AppendOptions{Acks: record.AckLeader}))
	require.NoError(t, o.err)
	require.ErrorIs(t, c.get(h.send(buildBatch(t, 1, 0, 3, 1), AppendOptions{})).err, record.ErrOutcomeUnknown)
}

func TestAppendIsFencedByTheEpoch(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	h := c.leader()
	epoch, _, err := h.Barrier(c.within(5 * time.Second))
	require.NoError(t, err)
	require.NoError(t, c.get(h.send(buildBatch(t, 1, 0, 0, 1), AppendOptions{Epoch: epoch})).err)
	require.ErrorIs(t, c.get(h.send(buildBatch(t, 1, 0, 1, 1), AppendOptions{Epoch: epoch - 1})).err, record.ErrNotLeader)
	require.ErrorIs(t, c.get(h.send(buildBatch(t, 1, 0, 1, 1), AppendOptions{Epoch: epoch + 1})).err, record.ErrNotLeader)
}

// Barriers share Raft's queue with proposals: too many of both must neither
// block nor stop the replica. Every call gets its answer, whatever it is: on a
// machine so busy leadership may change.
func TestManyBarriersAndAppendsAtOnce(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	h := c.leader()
	ctx := c.within(20 * time.Second)
	barriers := make(chan error, 400)
	for range cap(barriers) {
		go func() {
			_, _, err := h.Barrier(ctx)
			barriers <- err
		}()
	}
	var answers []<-chan outcome
	for i := range 600 {
		answers = append(answers, h.send(buildBatch(t, 1, 0, record.Sequence(i), 1), AppendOptions{}))
	}
	for _, ch := range answers {
		c.get(ch)
	}
	for range cap(barriers) {
		if err := <-barriers; err != nil {
			require.ErrorIs(t, err, record.ErrNotLeader)
		}
	}
}

func TestCtxEndsTheWait(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	h := c.leader()
	c.net.Isolate(h.Status().Node)
	ctx, cancel := context.WithCancel(context.Background())
	ch := make(chan error, 1)
	h.Append(ctx, buildBatch(t, 1, 0, 0, 1), AppendOptions{}, func(_ record.Appended, err error) { ch <- err })
	cancel()
	require.ErrorIs(t, <-ch, context.Canceled)

	h.Append(ctx, buildBatch(t, 1, 0, 0, 1), AppendOptions{}, func(_ record.Appended, err error) { ch <- err })
	require.ErrorIs(t, <-ch, context.Canceled)

	require.ErrorIs(t, h.Wait(ctx, 1000), context.Canceled)
}

func TestBadBatchesAreRefused(t *testing.T) {
	c := newTrio(t, "a")
	h := c.leader()
	require.ErrorIs(t, c.get(h.send(nil, AppendOptions{})).err, record.ErrCorrupt)
	b := buildBatch(t, 1, 0, 0, 1)
	b[len(b)-1] ^= 1
	require.ErrorIs(t, c.get(h.send(b, AppendOptions{})).err, record.ErrCorrupt)
	require.ErrorIs(t, c.get(h.send(make(record.Batch, MaxBatchBytes+1), AppendOptions{})).err, record.ErrTooLarge)
	_, err := h.Read(-1, 100, record.ReadCommitted)
	require.ErrorIs(t, err, record.ErrInvalid)
	_, err = h.Read(5, 100, record.ReadCommitted)
	require.ErrorIs(t, err, record.ErrOffsetOutOfRange)
}

func TestEntriesChangedOnTheirWayAreNotStored(t *testing.T) {
	c := newTrio(t, "a")
	h := c.leader()
	c.produce(h, 0, 1)
	before := h.store.log.Bounds()
	b := buildBatch(t, 1, 0, 1, 1)
	b.Stamp(before.End, record.LeaderEpoch(before.LastTerm))
	b[len(b)-1] ^= 1
	entry := &raft.Log{Index: uint64(before.Next), Term: before.LastTerm, Type: raft.LogCommand, Data: b}
	require.ErrorIs(t, h.store.StoreLogs([]*raft.Log{entry}), record.ErrCorrupt) // Raft is idle meanwhile
	require.Equal(t, before, h.store.log.Bounds())
	c.produce(h, 1, 1) // the producer's state is as before, too
}

func TestAClosedReplicaSaysSo(t *testing.T) {
	c := newTrio(t, "a")
	h := c.leader()
	waited := make(chan error, 1)
	go func() { waited <- h.Wait(context.Background(), 100) }()
	c.stop("a")
	require.ErrorIs(t, <-waited, record.ErrClosed)
	require.NoError(t, h.Close(), "again")
	o := c.get(h.send(buildBatch(t, 1, 0, 0, 1), AppendOptions{}))
	require.Error(t, o.err)
	_, err := h.Read(0, 100, record.ReadCommitted)
	require.ErrorIs(t, err, record.ErrClosed)
}

func TestLeadershipMovesOnRequest(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	h := c.leader()
	node, epoch := h.Leader()
	c.eventually("transfer", func() bool { return h.TransferLeadership(c.within(5*time.Second), "") == nil }) // a busy machine may take too long for one try
	h = c.leader()
	require.NotEqual(t, node, h.Status().Node)
	_, now := h.Leader()
	require.Greater(t, now, epoch)
}

func TestConfigIsChecked(t *testing.T) {
	_, err := Open(context.Background(), Config{})
	require.ErrorIs(t, err, record.ErrInvalid)
	for _, what := range []string{"FS", "Dir", "Node", "topic", "Mux", "Stable"} {
		require.ErrorContains(t, err, what)
	}
}

// TestAnAppendWhoseContextEndsMeanwhileIsAnsweredOnce ends it at about the moment
// that the append is taken in.
func TestAnAppendWhoseContextEndsMeanwhileIsAnsweredOnce(t *testing.T) {
	h := newTrio(t, "a").leader()
	var all []chan error
	for i := range 500 {
		ctx, cancel := context.WithCancel(context.Background())
		answers := make(chan error, 2)
		all = append(all, answers)
		go cancel()
		h.Append(ctx, buildBatch(t, record.ProducerID(i), 0, 0, 1), AppendOptions{Acks: record.AckNone}, func(_ record.Appended, err error) { answers <- err })
	}
	require.NoError(t, h.Close()) // nothing is answered later
	for _, answers := range all {
		require.Len(t, answers, 1)
	}
}
