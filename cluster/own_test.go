package cluster

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
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
