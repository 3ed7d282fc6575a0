package cluster

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

func TestADeletedTopicIsGoneOnEveryNode(t *testing.T) {
	c := startCluster(t, nil, "a", "b", "c")
	c.create("orders", 2)
	tp := part("orders", 0)
	n := c.node("a")
	w := c.writer(n, tp)
	w.send(n, "one")
	type got struct {
		values []string
		err    error
	}
	waiting := make(chan got, 1)
	go func() { // waits for "two" when the topic goes
		values, err := readValues(c.ctx(), c.node("b"), tp, 1, 1)
		waiting <- got{values, err}
	}()
	require.NoError(t, c.node("c").DeleteTopic(c.ctx(), "orders"))
	require.ErrorIs(t, (<-waiting).err, record.ErrUnknownTopic)
	for _, id := range c.peers {
		c.until("it is known on "+id, func() bool {
			_, err := c.node(id).Topic(c.ctx(), "orders")
			return errors.Is(err, record.ErrUnknownTopic)
		})
		_, err := appendOnce(c.ctx(), c.node(id), tp, testBatch(t, "late"), record.AckQuorum)
		require.ErrorIs(t, err, record.ErrUnknownTopic)
		_, err = c.node(id).Fetch(c.ctx(), tp, 0, 0, record.ReadCommitted)
		require.ErrorIs(t, err, record.ErrUnknownTopic)
		c.until("its files are deleted", func() bool {
			found, err := c.machines[id].disk.List("data/partitions")
			require.NoError(t, err)
			return len(found) == 1
		})
	}
	require.ErrorIs(t, n.DeleteTopic(c.ctx(), "orders"), record.ErrUnknownTopic)
	require.ErrorIs(t, n.DeleteTopic(c.ctx(), OffsetsTopic), record.ErrInvalid)
}

func TestATopicMadeAgainIsAnotherTopic(t *testing.T) {
	c := startCluster(t, quickElections, "a", "b", "c")
	old := c.create("orders", 2)
	tp := part("orders", 1)
	n := c.node("a")
	c.writer(n, tp).send(n, "old")
	c.stop("c") // and does not see what happens
	require.NoError(t, n.DeleteTopic(c.ctx(), "orders"))
	again, err := n.CreateTopic(c.ctx(), TopicConfig{Name: "orders", Partitions: 2})
	require.NoError(t, err)
	require.NotEqual(t, old.ID, again.ID)
	require.Equal(t, record.Offset(0), c.writer(n, tp).send(n, "new"), "nothing of the old one is in it")

	// What is late, and means the old one, is refused by those who know.
	key := partitionKey{old.ID, 1}
	for _, id := range []string{"a", "b"} {
		_, err := n.control(c.ctx(), id, request{Op: opReady, ID: key.topic, Partition: key.partition})
		require.ErrorIs(t, err, record.ErrUnknownTopic, "a late request to %s", id)
	}
	// And by who does not, as soon as it does.
	c.start("c")
	late := c.node("c")
	require.NoError(t, late.follow(c.ctx(), "see what has happened"))
	require.Equal(t, []string{"new"}, c.read(late, tp, 0, 1))
	c.until("c has only the new one", func() bool {
		found, err := c.machines["c"].disk.List("data/partitions")
		require.NoError(t, err)
		return len(found) == 3
	})
}

func TestADeleteThatIsRepeatedDoesNotHitTheNextTopic(t *testing.T) {
	c := startCluster(t, nil, "a")
	old := c.create("orders", 1)
	n := c.node("a")
	require.NoError(t, n.DeleteTopic(c.ctx(), "orders"))
	again := c.create("orders", 1)
	_, err := n.ask(context.Background(), n.meta, "late", request{Op: opDeleteTopic, Name: "orders", NewID: old.ID})
	require.NoError(t, err)
	now, err := n.Topic(c.ctx(), "orders")
	require.NoError(t, err)
	require.Equal(t, again.ID, now.ID)
}
