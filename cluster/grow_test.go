package cluster

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

func keyedBatch(t *testing.T, key string) record.Batch {
	t.Helper()
	var b record.Builder
	require.NoError(t, b.Append(&record.Record{Key: []byte(key)}))
	batch, err := b.Build(record.BatchOptions{})
	require.NoError(t, err)
	return batch
}

func TestATopicThatHasGrownIsUsedThroughEveryNode(t *testing.T) {
	c := startCluster(t, nil, "a", "b", "c")
	old := c.create("orders", 2)
	w := c.writer(c.node("a"), part("orders", 1))
	w.send(c.node("a"), "before")
	grown, err := c.node("b").AddPartitions(c.ctx(), "orders", 5)
	require.NoError(t, err)
	require.Equal(t, old.ID, grown.ID)
	require.Equal(t, 5, grown.Config.Partitions)
	require.Equal(t, old.Placement, grown.Placement[:2])
	leads := map[string]int{}
	for _, nodes := range grown.Placement {
		require.Len(t, nodes, 3)
		leads[nodes[0]]++
	}
	for node, n := range leads {
		require.LessOrEqual(t, n, 2, "leaders on %s", node)
	}
	for i, id := range c.peers {
		tp := part("orders", int32(2+i))
		_, _, err := c.node(id).Offsets(c.ctx(), tp, record.ReadCommitted) // waits for the metadata
		require.NoError(t, err)
		c.writer(c.node(id), tp).send(c.node(id), "new")
		require.Equal(t, []string{"new"}, c.read(c.other(id), tp, 0, 1))
	}
	require.Equal(t, []string{"before"}, c.read(c.node("c"), part("orders", 1), 0, 1))

	again, err := c.node("c").AddPartitions(c.ctx(), "orders", 5)
	require.NoError(t, err)
	require.Equal(t, grown, again, "nothing happens")
	for _, total := range []int{4, 0, -1} {
		_, err = c.node("a").AddPartitions(c.ctx(), "orders", total)
		var invalid *InvalidTopicError
		require.ErrorAs(t, err, &invalid)
		require.ErrorContains(t, err, "it has 5 partitions")
	}
	_, err = c.node("a").AddPartitions(c.ctx(), "bills", 5)
	require.ErrorIs(t, err, record.ErrUnknownTopic)
	_, err = c.node("a").AddPartitions(c.ctx(), OffsetsTopic, 5)
	require.ErrorIs(t, err, record.ErrInvalid)

	c.stop("b")
	c.start("b") // and has it from its disk
	require.NoError(t, c.node("b").follow(c.ctx(), "catch up"))
	back, err := c.node("b").Topic(c.ctx(), "orders")
	require.NoError(t, err)
	require.Equal(t, grown, back)
	require.Equal(t, []string{"new"}, c.read(c.node("b"), part("orders", 4), 0, 1))
}

func TestATopicWhoseRecordsHaveKeysGrowsOnlyIfTheyMayMove(t *testing.T) {
	c := startCluster(t, nil, "a")
	n := c.node("a")
	c.create("orders", 2)
	write := func(b record.Batch) {
		_, err := appendOnce(c.ctx(), n, part("orders", 1), b, record.AckQuorum)
		require.NoError(t, err)
	}
	grow := func(total int, opts ...GrowOption) error {
		_, err := n.AddPartitions(c.ctx(), "orders", total, opts...)
		return err
	}
	require.NoError(t, grow(3), "there is nothing yet")
	write(testBatch(t, "no key"))
	require.NoError(t, grow(4))
	write(keyedBatch(t, "k"))
	var refusal *RefusedError
	require.ErrorAs(t, grow(5), &refusal)
	require.ErrorContains(t, refusal, "MoveKeys")
	known, err := n.Topic(c.ctx(), "orders")
	require.NoError(t, err)
	require.Equal(t, 4, known.Partitions(), "nothing has changed")
	require.NoError(t, grow(4), "nothing moves")
	require.NoError(t, grow(5, MoveKeys()))
	require.Error(t, grow(6))
	write(testBatch(t, "no key any more"))
	require.NoError(t, grow(6))
}

func TestGrowthThatIsAskedForAgainAndAgainHappensOnce(t *testing.T) {
	c := startCluster(t, quickElections, "a", "b", "c")
	c.create("orders", 1)
	for _, id := range c.peers {
		for _, to := range c.peers {
			if id != to {
				c.network.Drop(id, to, 0.1)
			}
		}
	}
	var wg sync.WaitGroup
	errs := make(chan error, 6)
	for range 2 {
		for _, id := range c.peers {
			wg.Go(func() {
				_, err := c.node(id).AddPartitions(c.ctx(), "orders", 4)
				errs <- err
			})
		}
	}
	wg.Wait()
	for range cap(errs) {
		require.NoError(t, <-errs)
	}
	c.network.Heal()
	for _, id := range c.peers {
		require.NoError(t, c.node(id).follow(c.ctx(), "catch up"))
		known, err := c.node(id).Topic(c.ctx(), "orders")
		require.NoError(t, err)
		require.Equal(t, 4, known.Partitions())
	}
}

// A client hears of a partition from another node, before its own knows of it.
func TestAPartitionIsLookedUpWhereTheTopicIsKnownWithFewer(t *testing.T) {
	c := startCluster(t, nil, "a", "b", "c")
	c.create("orders", 1)
	leader := c.leader(c.node("a"), c.node("a").meta.tp)
	late := c.other(leader)
	client := late.Client()
	_, _, err := client.Layout(c.ctx(), "orders")
	require.NoError(t, err)
	c.network.Delay(leader, late.cfg.ID, 200*time.Millisecond)
	_, err = c.node(leader).AddPartitions(c.ctx(), "orders", 2)
	require.NoError(t, err)
	_, _, err = client.Offsets(c.ctx(), part("orders", 1), record.ReadCommitted)
	require.NoError(t, err)
	_, _, err = client.Offsets(c.ctx(), part("orders", 2), record.ReadCommitted)
	require.ErrorIs(t, err, record.ErrUnknownTopic)
}

func TestGrowthAndDeletionDoNotMixTopicsOfOneName(t *testing.T) {
	c := startCluster(t, nil, "a")
	n := c.node("a")
	old := c.create("orders", 1)
	_, err := n.AddPartitions(c.ctx(), "orders", 3)
	require.NoError(t, err)
	require.NoError(t, n.DeleteTopic(c.ctx(), "orders"))
	c.until("the files of all partitions are deleted", func() bool {
		found, err := c.machines["a"].disk.List("data/partitions")
		require.NoError(t, err)
		return len(found) == 1
	})
	again := c.create("orders", 2)
	_, err = n.ask(c.ctx(), n.meta, "late", request{Op: opAddPartitions, Name: "orders", NewID: old.ID, Total: 8})
	require.ErrorIs(t, err, record.ErrUnknownTopic)
	grown, err := n.AddPartitions(c.ctx(), "orders", 3)
	require.NoError(t, err)
	require.Equal(t, again.ID, grown.ID)
	c.writer(n, part("orders", 2)).send(n, "new")
	require.Equal(t, []string{"new"}, c.read(n, part("orders", 2), 0, 1))
}

func TestNewPartitionsArePlacedOnActiveNodesAndMoveNoOther(t *testing.T) {
	m := newMetadata()
	m.founders = []string{"a", "b", "c", "d"}
	founding, err := m.found()
	require.NoError(t, err)
	foldAll(t, m, founding)
	id := record.NewTopicID()
	_, records, err := m.createTopic(TopicConfig{Name: "orders", Partitions: 4, Replicas: 2}, id, m.members(NodeActive))
	require.NoError(t, err)
	foldAll(t, m, records)
	_, records, err = m.drainNode("d", "")
	require.NoError(t, err)
	foldAll(t, m, records) // some are on their way
	before := m.topics["orders"]
	placed := map[partitionKey]assignment{}
	for i := range before.Placement {
		placed[before.key(int32(i))] = m.placed[before.key(int32(i))]
	}
	made := m.made["orders"]

	_, records, err = m.addPartitions("orders", id, 7, m.members(NodeActive))
	require.NoError(t, err)
	foldAll(t, m, records)
	grown := m.topics["orders"]
	require.Equal(t, before.Placement, grown.Placement[:4])
	require.Equal(t, made, m.made["orders"], "it is the same topic")
	for i, nodes := range grown.Placement {
		k := grown.key(int32(i))
		if i < 4 {
			require.Equal(t, placed[k], m.placed[k])
			continue
		}
		require.Equal(t, assignment{Replicas: nodes}, m.placed[k])
		require.NotContains(t, nodes, "d")
	}

	_, _, err = m.addPartitions("orders", id, 8, []string{"a"})
	var refusal *RefusedError
	require.ErrorAs(t, err, &refusal)
	require.ErrorContains(t, err, "add a node first")
	_, records, err = m.addPartitions("orders", id, 7, nil)
	require.NoError(t, err)
	require.Empty(t, records)
}
