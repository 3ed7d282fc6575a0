package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/replica"
	txn "github.com/quorumlog/quorumlog/txn/coordinator"
	"github.com/quorumlog/quorumlog/txn/half"
)

func TestTheClustersOwnTopicsAreFlushedAsTopicsByDefault(t *testing.T) {
	for _, flush := range []log.FlushPolicy{log.FlushEach, log.FlushNever} {
		c := startCluster(t, func(cfg *Config) { cfg.Defaults.Flush = flush }, "a")
		c.create("orders", 1)
		n := c.node("a")
		_, err := n.Group(c.ctx(), "g", group.Request{Op: group.OpCommitted, Partitions: []record.TopicPartition{part("orders", 0)}})
		require.NoError(t, err)
		_, err = n.Transaction(c.ctx(), "id", txn.Request{Op: txn.OpTake, Holder: "h"})
		require.NoError(t, err)
		_, err = n.Half(c.ctx(), "producers", half.Request{Op: half.OpList})
		require.NoError(t, err)
		for topic, want := range map[string]log.FlushPolicy{
			OffsetsTopic: flush, TransactionsTopic: flush,
			HalfTopic: log.FlushEach, // whatever the default
		} {
			known, ok := n.folded(topic)
			require.True(t, ok)
			require.Equal(t, want, known.Config.Flush, topic)
		}
	}
}

// transact writes one record in a transaction of its own.
func (c *testCluster) transact(n *Node, holder string, tp record.TopicPartition, value string) record.ProducerID {
	c.Helper()
	do := func(req txn.Request) txn.Response {
		req.Holder = holder
		a, err := n.Transaction(c.ctx(), "invoicing", req)
		require.NoError(c, err)
		return a
	}
	who := do(txn.Request{Op: txn.OpTake})
	do(txn.Request{Op: txn.OpAdd, Producer: who.Producer, Epoch: who.Epoch, Partitions: []record.TopicPartition{tp}})
	var b record.Builder
	require.NoError(c, b.Append(&record.Record{Value: []byte(value)}))
	batch, err := b.Build(record.BatchOptions{Producer: &record.ProducerStamp{ID: who.Producer, Epoch: who.Epoch}, Transactional: true})
	require.NoError(c, err)
	_, err = appendOnce(c.ctx(), n, tp, batch, record.AckQuorum)
	require.NoError(c, err)
	do(txn.Request{Op: txn.OpEnd, Producer: who.Producer, Epoch: who.Epoch, Commit: true})
	return who.Producer
}

// committed returns the values of count records, without markers.
func (c *testCluster) committed(n *Node, tp record.TopicPartition, count int) (values []string) {
	c.Helper()
	for next := record.Offset(0); len(values) < count; {
		f, err := n.Fetch(c.ctx(), tp, next, 0, record.ReadCommitted)
		require.NoError(c, err)
		for _, b := range f.Batches {
			next = b.NextOffset()
			if b.IsControl() {
				continue
			}
			var it record.Iterator
			require.NoError(c, it.Reset(b))
			for r := (record.Record{}); it.Next(&r); {
				values = append(values, string(r.Value))
			}
		}
	}
	return values
}

// The partition has heard of transactions that the coordinator has forgotten: a
// producer id that comes again would be refused, or its records taken for those.
func TestTransactionsGoOnAfterAPowerCutThatTookTheirState(t *testing.T) {
	c := startCluster(t, func(cfg *Config) { cfg.Defaults.Flush = log.FlushNever }, "a")
	c.create("orders", 1) // which syncs
	tp := part("orders", 0)
	first := c.transact(c.node("a"), "h1", tp, "1")
	c.stop("a") // all of it is on disk
	c.start("a")
	for _, v := range []string{"2", "3", "4"} {
		c.transact(c.node("a"), "h2", tp, v)
	}
	m := c.machines["a"]
	m.disk.Crash()
	_ = m.Close()
	require.NoError(t, m.endpoint.Close())
	m.disk = m.disk.Reboot(0)
	c.start("a")

	p, err := c.node("a").coordinatorOf(c.ctx(), TransactionsTopic, transactionsPartitions, "invoicing")
	require.NoError(t, err)
	c.leader(c.node("a"), p.tp)
	_, beside, _ := p.state()
	require.NoError(t, beside.(*txn.Coordinator).Read(c.ctx(), func(s *txn.State) {
		require.Equal(t, first, s.Info("invoicing").Producer, "of the later ones nothing is known")
	}))
	c.transact(c.node("a"), "h3", tp, "5")
	require.Equal(t, []string{"1", "2", "3", "4", "5"}, c.committed(c.node("a"), tp, 5))
}

// small has the cluster's own topics rewritten often.
func small(cfg *Config) {
	cfg.ElectionTimeout = 300 * time.Millisecond
	cfg.CompactionFloor = 8 << 10
	cfg.Defaults.Flush = log.FlushNever // a crash of the process loses nothing; the disk is quicker
}

// own returns a node's replica of the partition that a name's records are in, and its coordinator.
func (c *testCluster) own(n *Node, topic, name string) (*replica.Replica, coordinator) {
	c.Helper()
	p, err := n.coordinatorOf(c.ctx(), topic, map[string]int{OffsetsTopic: offsetsPartitions, TransactionsTopic: transactionsPartitions}[topic], name)
	require.NoError(c, err)
	ctx := c.ctx()
	for {
		rep, coord, _ := p.state()
		if rep != nil {
			return rep, coord
		}
		here, _ := p.signals()
		select {
		case <-here:
		case <-ctx.Done():
			require.FailNow(c, "the partition is not opened", "%v", p.tp)
		}
	}
}

// short waits until a partition of the cluster's own is as short as it should be on
// each node that runs, and has been trimmed beyond from.
func (c *testCluster) short(topic, name string, from record.Offset) (start record.Offset) {
	c.Helper()
	for _, id := range c.peers {
		if c.machines[id].Node == nil {
			continue
		}
		rep, _ := c.own(c.node(id), topic, name)
		require.Eventually(c, func() bool {
			s := rep.Status()
			start = s.StartOffset
			return start > from && s.SizeBytes < 24<<10
		}, 10*time.Second, time.Millisecond, "%s on %s", topic, id)
	}
	return start
}

func TestCommittedOffsetsAreRightAndTheirLogShortHoweverOftenTheyAreCommitted(t *testing.T) {
	c := startCluster(t, small, "a", "b", "c")
	c.create("orders", 3)
	asked := func(n *Node) (offsets []record.Offset) {
		req := group.Request{Op: group.OpCommitted}
		for i := range int32(3) {
			req.Partitions = append(req.Partitions, part("orders", i))
		}
		a, err := n.Group(c.ctx(), "billing", req)
		require.NoError(t, err)
		for _, o := range a.Offsets {
			offsets = append(offsets, o.Offset)
		}
		return offsets
	}
	next := record.Offset(0)
	commit := func(n *Node, times int) {
		for range times {
			next++
			_, err := n.Group(c.ctx(), "billing", group.Request{Op: group.OpCommit, Offsets: []group.Offset{{TopicPartition: part("orders", int32(next%2)), Offset: next}}})
			require.NoError(t, err)
		}
	}
	_, err := c.node("a").Group(c.ctx(), "billing", group.Request{Op: group.OpCommit, Offsets: []group.Offset{{TopicPartition: part("orders", 2), Offset: 7}}})
	require.NoError(t, err)
	commit(c.node("a"), 300)
	want := func() []record.Offset { return []record.Offset{next - next%2, next - 1 + next%2, 7} }
	start := c.short(OffsetsTopic, "billing", 0)
	require.Equal(t, want(), asked(c.node("b")))

	// A node that is down while the log is trimmed, more than once.
	p, err := c.node("a").groupPartition(c.ctx(), "billing")
	require.NoError(t, err)
	var down string
	for _, id := range c.peers {
		if id != c.leader(c.node("a"), p.tp) {
			down = id
		}
	}
	c.stop(down)
	commit(c.other(down), 500)
	start = c.short(OffsetsTopic, "billing", start)
	c.start(down)
	rep, _ := c.own(c.node(down), OffsetsTopic, "billing")
	require.NoError(t, rep.Wait(c.ctx(), start))
	require.Equal(t, want(), asked(c.node(down)))
	_, coord := c.own(c.node(down), OffsetsTopic, "billing")
	known := func() (got record.Offset) { // without asking the leader
		coord.(*group.Coordinator).View(func(s *group.State) { got = s.Committed("billing", part("orders", 2)).Offset })
		return got
	}
	require.Eventually(t, func() bool { return known() == 7 }, 10*time.Second, time.Millisecond)

	// It can lead.
	require.NoError(t, c.node(down).TransferLeader(c.ctx(), p.tp, down))
	require.Equal(t, want(), asked(c.other(down)))
	commit(c.node(down), 100)

	for _, id := range c.peers {
		c.stop(id)
	}
	for _, id := range c.peers {
		c.start(id)
	}
	require.Equal(t, want(), asked(c.node("a")))
	c.short(OffsetsTopic, "billing", start)
}

func TestTransactionsAreKnownAndTheirLogShortHoweverManyThereAre(t *testing.T) {
	c := startCluster(t, small, "a")
	c.create("orders", 1)
	var last record.ProducerID
	for i := range 60 {
		last = c.transact(c.node("a"), fmt.Sprint("h", i/10), part("orders", 0), fmt.Sprint(i))
	}
	c.short(TransactionsTopic, "invoicing", 0)
	c.stop("a")
	c.start("a")
	n := c.node("a")
	_, coord := c.own(n, TransactionsTopic, "invoicing")
	p, err := n.coordinatorOf(c.ctx(), TransactionsTopic, transactionsPartitions, "invoicing")
	require.NoError(t, err)
	c.leader(n, p.tp)
	require.NoError(t, coord.(*txn.Coordinator).Read(c.ctx(), func(s *txn.State) {
		require.Equal(t, last, s.Info("invoicing").Producer)
		require.Contains(t, []txn.Status{txn.PrepareCommit, txn.CompleteCommit}, s.Info("invoicing").Status, "the new leader may not have delivered the verdict again yet")
	}))
	c.transact(n, "h", part("orders", 0), "60")
	require.Len(t, c.committed(n, part("orders", 0), 61), 61)
	c.short(TransactionsTopic, "invoicing", 0)
}

// What a new replica is sent of a log that was trimmed begins where a segment does, in
// the middle of anything.
func TestANodeThatTakesACoordinatorOverKnowsWhatWasTrimmedBefore(t *testing.T) {
	c := startCluster(t, small, "a", "b", "c")
	c.create("orders", 2)
	commit := func(n *Node, p int32, o record.Offset) {
		_, err := n.Group(c.ctx(), "billing", group.Request{Op: group.OpCommit, Offsets: []group.Offset{{TopicPartition: part("orders", p), Offset: o}}})
		require.NoError(t, err)
	}
	n := c.node("a")
	commit(n, 1, 7)
	for i := range record.Offset(300) {
		commit(n, 0, i+1)
	}
	c.short(OffsetsTopic, "billing", 0)
	p, err := n.groupPartition(c.ctx(), "billing")
	require.NoError(t, err)
	c.join("d")
	require.NoError(t, n.AddNode(c.ctx(), "d"))
	require.NoError(t, n.MoveReplica(c.ctx(), p.tp, "b", "d"))
	require.NoError(t, n.TransferLeader(c.ctx(), p.tp, "d"))
	require.Equal(t, "d", c.leader(n, p.tp))
	a, err := n.Group(c.ctx(), "billing", group.Request{Op: group.OpCommitted, Partitions: []record.TopicPartition{part("orders", 0), part("orders", 1)}})
	require.NoError(t, err)
	require.Equal(t, []record.Offset{300, 7}, []record.Offset{a.Offsets[0].Offset, a.Offsets[1].Offset})
	rep, _ := c.own(c.node("d"), OffsetsTopic, "billing")
	require.Positive(t, rep.Status().StartOffset)
}
