package cluster

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/record"
)

func TestGroupIsKnownOnEveryNodeAndOutlivesItsCoordinator(t *testing.T) {
	c := startCluster(t, quickElections, "a", "b", "c")
	c.create("orders", 2)
	do := func(n *Node, req group.Request) group.Response {
		t.Helper()
		resp, err := n.Group(c.ctx(), "billing", req)
		require.NoError(t, err)
		return resp
	}
	member := group.NewMember()
	joined := do(c.node("a"), group.Request{Op: group.OpJoin, Member: member, Topics: []string{"orders"}})
	both := []record.TopicPartition{part("orders", 0), part("orders", 1)}
	require.Equal(t, both, joined.Assigned)
	offsets := []group.Offset{{TopicPartition: both[0], Offset: 5}, {TopicPartition: both[1], Offset: 7}}
	do(c.node("b"), group.Request{Op: group.OpCommit, Member: member, Generation: joined.Generation, Offsets: offsets})

	p, err := c.node("a").groupPartition(c.ctx(), "billing")
	require.NoError(t, err)
	old := c.leader(c.node("a"), p.tp)
	c.stop(old)
	got := do(c.other(old), group.Request{Op: group.OpCommitted, Partitions: both})
	require.Equal(t, offsets, got.Offsets)

	_, err = c.other(old).Group(c.ctx(), "billing", group.Request{Op: group.OpHeartbeat, Member: "stranger"})
	require.ErrorIs(t, err, record.ErrFenced)
	_, err = c.other(old).Group(c.ctx(), "", group.Request{Op: group.OpHeartbeat})
	require.ErrorIs(t, err, record.ErrInvalid)
}
