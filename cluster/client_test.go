package cluster

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/record"
)

func TestAClientThatIsLateDoesNotTouchTheNextTopic(t *testing.T) {
	c := startCluster(t, func(cfg *Config) { cfg.AutoCreate = true }, "a", "b", "c")
	c.create("orders", 2)
	n, tp := c.node("a"), part("orders", 1)
	c.writer(n, tp).send(n, "old")
	old := c.node("b").Client()
	id, _, err := old.Layout(c.ctx(), "orders")
	require.NoError(t, err)
	count, err := old.Partitions(c.ctx(), "orders")
	require.NoError(t, err)
	require.Equal(t, 2, count)
	f, err := old.Fetch(c.ctx(), tp, 0, 0, record.ReadCommitted)
	require.NoError(t, err)
	require.Len(t, f.Batches, 1)

	late := func() {
		for name, do := range map[string]func() error{
			"partitions": func() error { _, err := old.Partitions(c.ctx(), "orders"); return err },
			"fetch":      func() error { _, err := old.Fetch(c.ctx(), tp, 0, 0, record.ReadCommitted); return err },
			"near":       func() error { _, err := old.FetchNear(c.ctx(), tp, 0, 0, record.ReadCommitted); return err },
			"offsets":    func() error { _, _, err := old.Offsets(c.ctx(), tp, record.ReadCommitted); return err },
			"time":       func() error { _, _, err := old.OffsetForTime(c.ctx(), tp, time.UnixMilli(0)); return err },
			"append": func() error {
				ch := make(chan error, 1)
				old.Append(c.ctx(), id, tp, testBatch(t, "late"), record.AckQuorum, func(_ record.Appended, err error) { ch <- err })
				return <-ch
			},
		} {
			require.ErrorIs(t, do(), record.ErrUnknownTopic, name)
		}
	}
	require.NoError(t, n.DeleteTopic(c.ctx(), "orders"))
	require.NoError(t, c.node("b").follow(c.ctx(), "see it"))
	_, err = old.Fetch(c.ctx(), tp, 0, 0, record.ReadCommitted)
	require.ErrorIs(t, err, record.ErrUnknownTopic)
	_, err = old.Partitions(c.ctx(), "orders")
	require.ErrorIs(t, err, record.ErrUnknownTopic)
	require.NoError(t, n.follow(c.ctx(), "see it"))
	require.Empty(t, n.Topics(), "who reads a topic that is gone does not make it")
	c.create("orders", 3)
	late()
	require.Equal(t, record.Offset(0), c.writer(n, tp).send(n, "new"), "nothing late is in it")
	_, count, err = old.Layout(c.ctx(), "orders")
	require.NoError(t, err)
	require.Equal(t, 3, count)
	f, err = old.Fetch(c.ctx(), tp, 0, 0, record.ReadCommitted)
	require.NoError(t, err, "it has asked anew, so it means the new one")
	require.Len(t, f.Batches, 1)
}

func TestCommitsOfADeletedTopicAreRefusedAndForgotten(t *testing.T) {
	c := startCluster(t, nil, "a", "b", "c")
	c.create("orders", 1)
	n, tp := c.node("a"), part("orders", 0)
	old := n.Client()
	_, err := old.Partitions(c.ctx(), "orders")
	require.NoError(t, err)
	commit := func(cl *Client, offset record.Offset) error {
		_, err := cl.Group(c.ctx(), "billing", group.Request{Op: group.OpCommit, Offsets: []group.Offset{{TopicPartition: tp, Offset: offset}}})
		return err
	}
	committed := func(cl *Client) record.Offset {
		resp, err := cl.Group(c.ctx(), "billing", group.Request{Op: group.OpCommitted, Partitions: []record.TopicPartition{tp}})
		require.NoError(t, err)
		return resp.Offsets[0].Offset
	}
	require.NoError(t, commit(old, 7))
	require.Equal(t, record.Offset(7), committed(old))

	require.NoError(t, n.DeleteTopic(c.ctx(), "orders"))
	c.until("the coordinator knows", func() bool { return errors.Is(commit(old, 8), record.ErrUnknownTopic) })
	c.create("orders", 1)
	require.ErrorIs(t, commit(old, 8), record.ErrUnknownTopic)
	for _, id := range c.peers {
		young := c.node(id).Client()
		_, err := young.Partitions(c.ctx(), "orders")
		require.NoError(t, err)
		require.Equal(t, record.NoOffset, committed(young), "what was committed is of another topic")
	}
	young := c.node("b").Client()
	_, err = young.Partitions(c.ctx(), "orders")
	require.NoError(t, err)
	require.NoError(t, commit(young, 2), "below the old one, which does not count")
	require.Equal(t, record.Offset(2), committed(young))
	require.ErrorIs(t, commit(old, 9), record.ErrUnknownTopic)
	require.Equal(t, record.Offset(2), committed(young))
}
