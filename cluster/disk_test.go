package cluster

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
)

var errDisk = errors.New("the disk is on fire")

// failing fails the calls of one kind on files of one topic.
func failing(op vfs.Op, topic string) func(vfs.Op, string) error {
	return func(o vfs.Op, name string) error {
		if o == op && strings.Contains(name, "/"+topic+".") {
			return errDisk
		}
		return nil
	}
}

func TestFailedDiskOfTheOnlyReplicaIsTheAnswer(t *testing.T) {
	c := startCluster(t, nil, "a")
	c.create("orders", 1)
	tp := part("orders", 0)
	n := c.node("a")
	c.writer(n, tp).send(n, "one")
	c.machines["a"].disk.Fail(failing(vfs.OpSync, "orders"))

	for range 2 { // the write that fails, and one afterwards
		_, err := appendOnce(c.ctx(), n, tp, testBatch(t, "x"), record.AckQuorum)
		require.ErrorIs(t, err, log.ErrSync)
		require.ErrorIs(t, err, errDisk)
	}
	_, err := n.Fetch(c.ctx(), tp, 0, 0, record.ReadCommitted)
	require.ErrorIs(t, err, log.ErrSync)
	status, err := n.Status(c.ctx(), "orders")
	require.NoError(t, err)
	require.ErrorIs(t, status.Partitions[0].Err, log.ErrSync)
	c.create("others", 1)
	c.writer(n, part("others", 0)).send(n, "other partitions go on")
}

func TestReplicaThatCannotBeOpenedSaysWhy(t *testing.T) {
	c := startCluster(t, nil, "a")
	c.machines["a"].disk.Fail(failing(vfs.OpMkdir, "orders"))
	_, err := c.node("a").CreateTopic(c.ctx(), TopicConfig{Name: "orders", Partitions: 1})
	require.ErrorIs(t, err, errDisk)

	c.machines["a"].disk.Fail(nil)
	p, err := c.node("a").known(part("orders", 0))
	require.NoError(t, err)
	for { // it is tried again
		tried, _ := p.signals()
		if rep, _, _ := p.state(); rep != nil {
			break
		}
		<-tried
	}
	c.writer(c.node("a"), part("orders", 0)).send(c.node("a"), "one")
}

func TestFailedDiskOfTheLeaderMovesTheLeadership(t *testing.T) {
	c := startCluster(t, quickElections, "a", "b", "c")
	c.create("orders", 1)
	tp := part("orders", 0)
	old := c.leader(c.node("a"), tp)
	w := c.writer(c.node(old), tp)
	w.send(c.node(old), "one")
	c.machines[old].disk.Fail(failing(vfs.OpSync, "orders"))
	require.Equal(t, record.Offset(1), w.send(c.node(old), "two"))
	require.NotEqual(t, old, c.leader(c.node(old), tp))
	for _, id := range c.peers {
		require.Equal(t, []string{"one", "two"}, c.read(c.node(id), tp, 0, 2), "read through %s", id)
	}
}
