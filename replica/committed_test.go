package replica

import (
	"context"
	"errors"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

// mark ends a transaction, as a coordinator does, at whoever leads.
func (c *trio) mark(h *host, m record.Marker) {
	c.t.Helper()
	require.NoError(c.t, h.Mark(c.within(10*time.Second), m))
}

// write sends a transaction's batch after the coordinator has opened it.
func (c *trio) write(h *host, id record.ProducerID, epoch record.ProducerEpoch, first record.Sequence, n int) {
	c.t.Helper()
	require.NoError(c.t, h.OpenTransaction(context.Background(), id, epoch))
	require.NoError(c.t, c.get(h.send(transactionalBatch(c.t, id, epoch, first, n), AppendOptions{})).err)
}

// seen returns what a reader gets up to the end, and where that is.
func (c *trio) seen(h *host, iso record.Isolation) (values []string, end record.Offset) {
	c.t.Helper()
	var it record.Iterator
	for {
		f, err := h.Read(end, 200, iso) // a few batches at a time
		require.NoError(c.t, err)
		require.LessOrEqual(c.t, f.LastStableOffset, f.HighWatermark)
		if f.Next == end {
			return values, end
		}
		for _, b := range f.Batches {
			require.NoError(c.t, it.Reset(b))
			for r := (record.Record{}); !b.IsControl() && it.Next(&r); {
				values = append(values, string(r.Value))
			}
		}
		end = f.Next
	}
}

func TestReadersOfCommittedRecordsSeeWholeTransactionsOnly(t *testing.T) {
	c := newTrio(t, "a")
	h := c.leader()
	c.write(h, 1, 0, 0, 2) // offsets 0, 1
	require.NoError(t, c.get(h.send(buildBatch(t, 9, 0, 0, 1), AppendOptions{})).err)
	c.write(h, 2, 0, 0, 1) // 3
	values, end := c.seen(h, record.ReadCommitted)
	require.Empty(t, values)
	require.Zero(t, end)
	require.Zero(t, h.Status().LastStableOffset)
	open := h.OpenTransactions()
	require.Equal(t, []record.Offset{0, 3}, []record.Offset{open[0].First, open[1].First})
	require.Equal(t, record.ProducerID(1), open[0].Producer)

	c.mark(h, commitOf(2, 0)) // 4
	values, _ = c.seen(h, record.ReadCommitted)
	require.Empty(t, values, "behind a transaction that is open")
	waits := make(chan error, 1)
	go func() { waits <- h.WaitReadable(c.within(10*time.Second), 0, record.ReadCommitted) }()
	c.mark(h, abortOf(1, 0)) // 5
	require.NoError(t, <-waits, "it wakes when the last stable offset moves")
	values, end = c.seen(h, record.ReadCommitted)
	require.Equal(t, []string{"9/0", "2/0.0"}, values)
	require.Equal(t, record.Offset(6), end)
	values, end = c.seen(h, record.ReadUncommitted)
	require.Equal(t, []string{"1/0.0", "1/0.1", "9/0", "2/0.0"}, values)
	require.Equal(t, record.Offset(6), end)
	require.Empty(t, h.OpenTransactions())

	// What comes again, or late, has no effect and a defined answer.
	c.mark(h, abortOf(1, 0))
	c.mark(h, commitOf(1, 0))
	require.Equal(t, record.Offset(6), h.Status().EndOffset)
	require.ErrorIs(t, c.get(h.send(transactionalBatch(t, 1, 0, 2, 1), AppendOptions{})).err, record.ErrFenced)
	require.ErrorIs(t, h.OpenTransaction(context.Background(), 1, 0), record.ErrFenced)
	var refused *record.TransactionError
	require.ErrorAs(t, c.get(h.send(transactionalBatch(t, 1, 1, 0, 1), AppendOptions{})).err, &refused)
	require.Equal(t, testPartition, refused.TopicPartition)
	c.write(h, 1, 1, 0, 1)
	c.mark(h, abortOf(1, 0))
	require.Len(t, h.OpenTransactions(), 1, "a late marker does not end the next one")
	old := commitOf(1, 1)
	old.Coordinator = 0
	require.ErrorIs(t, h.Mark(t.Context(), old), record.ErrFenced)
	c.mark(h, commitOf(1, 1))
	values, _ = c.seen(h, record.ReadCommitted)
	require.Equal(t, []string{"9/0", "2/0.0", "1/1.0"}, values)
}

func TestNobodyButTheReplicaWritesMarkers(t *testing.T) {
	c := newTrio(t, "a")
	h := c.leader()
	require.ErrorIs(t, c.get(h.send(markerBatch(t, commitOf(1, 0)), AppendOptions{})).err, record.ErrInvalid)
}

func TestTheLogStartDoesNotPassAnOpenTransaction(t *testing.T) {
	c := newTrioOf(t, 4<<10, "a")
	h := c.leader()
	c.produce(h, 0, 100)
	c.write(h, 2, 0, 0, 1)
	c.produce(h, 100, 100)
	start, err := h.TrimTo(c.within(10*time.Second), 200)
	require.NoError(t, err)
	require.Equal(t, record.Offset(100), start)
	c.mark(h, abortOf(2, 0))
	start, err = h.TrimTo(c.within(10*time.Second), 101)
	require.NoError(t, err)
	require.Equal(t, record.Offset(101), start)
	require.Len(t, c.seenFrom(h, 101), 100)
	start, err = h.TrimTo(c.within(10*time.Second), 202)
	require.NoError(t, err)
	require.Equal(t, record.Offset(202), start)
	c.eventually("what is below is forgotten", func() bool { return len(h.aborted.all()) == 0 })
}

// seenFrom returns the base offsets of what a reader of committed records gets.
func (c *trio) seenFrom(h *host, from record.Offset) (bases []record.Offset) {
	for {
		f, err := h.Read(from, 1<<20, record.ReadCommitted)
		require.NoError(c.t, err)
		for _, b := range f.Batches {
			bases = append(bases, b.BaseOffset())
		}
		if f.Next == from {
			return bases
		}
		from = f.Next
	}
}

func TestTransactionsSurviveRestartsWithAndWithoutACheckpoint(t *testing.T) {
	for _, how := range []string{"checkpoint", "no checkpoint", "old checkpoint"} {
		t.Run(how, func(t *testing.T) {
			c := newTrio(t, "a")
			h := c.leader()
			c.write(h, 1, 0, 0, 2)
			c.mark(h, abortOf(1, 0))
			c.write(h, 2, 0, 0, 1)
			if how == "old checkpoint" {
				h.checkpoint()
			}
			c.write(h, 3, 0, 0, 1)
			c.mark(h, commitOf(3, 0))
			c.write(h, 4, 0, 0, 1)
			c.mark(h, abortOf(4, 0))
			if how == "old checkpoint" {
				h.unsaved.Store(0) // Close writes none
			}
			want, _ := c.seen(h, record.ReadUncommitted)
			c.stop("a")
			if how == "no checkpoint" {
				require.NoError(t, c.disks["a"].Remove(path.Join("/a/orders-0", checkpointName)))
			}
			c.start("a")
			h = c.leader()
			got, _ := c.seen(h, record.ReadUncommitted)
			require.Equal(t, want, got)
			got, end := c.seen(h, record.ReadCommitted)
			require.Empty(t, got)
			require.Equal(t, record.Offset(3), end, "transaction 2 is open")
			c.mark(h, commitOf(2, 0))
			c.mark(h, abortOf(4, 0))
			got, _ = c.seen(h, record.ReadCommitted)
			require.Equal(t, []string{"2/0.0", "3/0.0"}, got)
			require.ErrorIs(t, c.get(h.send(transactionalBatch(t, 1, 0, 2, 1), AppendOptions{})).err, record.ErrFenced)
		})
	}
}

func TestANewLeaderTakesOnlyTransactionsThatAreOpenedThere(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	h := c.leader()
	c.write(h, 1, 0, 0, 1)                                            // has a batch in the log
	require.NoError(t, h.OpenTransaction(context.Background(), 2, 0)) // has none
	for h.leads() {                                                   // a transfer may come to nothing on a busy machine
		_ = h.TransferLeadership(c.within(10*time.Second), "")
	}
	next := c.leader(slices.DeleteFunc(slices.Clone(c.nodes), func(n string) bool { return n == h.cfg.Node })...)
	require.ErrorIs(t, h.OpenTransaction(context.Background(), 2, 0), record.ErrNotLeader)
	require.ErrorIs(t, h.Mark(t.Context(), commitOf(2, 0)), record.ErrNotLeader)
	require.NoError(t, c.get(next.send(transactionalBatch(t, 1, 0, 1, 1), AppendOptions{})).err)
	require.ErrorIs(t, c.get(next.send(transactionalBatch(t, 2, 0, 0, 1), AppendOptions{})).err, record.ErrNotInTransaction)
	c.write(next, 2, 0, 0, 1)
	c.mark(next, commitOf(1, 0))
	c.mark(next, abortOf(2, 0))
	for _, node := range c.nodes {
		r := c.live[node]
		require.NoError(t, r.WaitReadable(c.within(10*time.Second), 4, record.ReadCommitted), node)
		got, _ := c.seen(r, record.ReadCommitted)
		require.Equal(t, []string{"1/0.0", "1/0.1"}, got, node)
	}
}

func TestAFollowerThatGoesOnFromAnAnchorKnowsWhatWasAborted(t *testing.T) {
	c := newTrioOf(t, 4<<10, "a", "b", "c")
	h := c.leader()
	var away string
	for _, node := range c.nodes {
		if node != h.cfg.Node {
			away = node
		}
	}
	c.stop(away)
	c.produce(h, 0, 150)
	c.write(h, 7, 0, 0, 1)   // 150
	c.mark(h, abortOf(7, 0)) // 151
	c.write(h, 7, 1, 0, 1)   // 152, open
	c.produce(h, 150, 100)
	_, err := h.TrimTo(c.within(10*time.Second), 140)
	require.NoError(t, err)
	c.eventually("the segments go", func() bool { return h.store.log.Bounds().Start > 0 })
	back := c.start(away)
	require.NoError(t, back.Wait(c.within(10*time.Second), 252))
	require.Equal(t, record.Offset(152), back.Status().LastStableOffset)
	c.mark(h, commitOf(7, 1))
	require.NoError(t, back.WaitReadable(c.within(10*time.Second), 253, record.ReadCommitted))
	require.Equal(t, []record.Offset{149, 152, 153}, c.seenFrom(back, 149)[:3])
}

func TestAMarkerThatCannotBeWrittenIsTriedAgainByItsSender(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	h := c.leader()
	c.write(h, 1, 0, 0, 1)
	for _, node := range c.nodes {
		if node != h.cfg.Node {
			c.net.Cut(h.cfg.Node, node)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	err := h.Mark(ctx, commitOf(1, 0))
	require.True(t, errors.Is(err, record.ErrOutcomeUnknown) || errors.Is(err, record.ErrNotLeader), "%v", err)
	c.net.Heal()
	next := c.leader()
	c.mark(next, commitOf(1, 0))
	c.mark(next, commitOf(1, 0))
	require.NoError(t, next.WaitReadable(c.within(10*time.Second), 0, record.ReadCommitted))
	require.Equal(t, record.Offset(2), next.Status().EndOffset, "one marker")
}

func TestATransactionWakesAPartitionThatSleeps(t *testing.T) {
	c := newSleeper(t, "a", "b", "c")
	h := c.sleeping()
	c.write(h, 1, 0, 0, 1)
	h = c.sleeping()
	require.Len(t, h.OpenTransactions(), 1, "it may sleep while one is open")
	c.mark(h, commitOf(1, 0))
	got, _ := c.seen(h, record.ReadCommitted)
	require.Contains(t, got, "1/0.0")
}
