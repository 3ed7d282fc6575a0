package cluster

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

// Whoever asks, at whichever node, never hears of an offset below one that was
// committed before the question.
func TestCommittedOffsetsNeverGoBackWhileCoordinatorsChange(t *testing.T) {
	c := startCluster(t, quickElections, "a", "b", "c")
	c.create("orders", 1)
	tps := []record.TopicPartition{part("orders", 0)}
	member := group.NewMember()
	joined, err := c.node("a").Group(c.ctx(), "billing", group.Request{Op: group.OpJoin, Member: member, Topics: []string{"orders"}, SessionTimeout: time.Minute})
	require.NoError(t, err)
	p, err := c.node("a").groupPartition(c.ctx(), "billing")
	require.NoError(t, err)

	life, end := context.WithCancel(c.ctx())
	var acked, asked atomic.Int64
	var wg sync.WaitGroup
	ask := func(n *Node, req group.Request) (group.Response, error) { // a node that is cut off says nothing
		ctx, cancel := context.WithTimeout(life, 200*time.Millisecond)
		defer cancel()
		return n.Group(ctx, "billing", req)
	}
	wg.Go(func() {
		for o := int64(1); life.Err() == nil; o++ {
			n := c.node(c.peers[int(o)%len(c.peers)])
			_, err := ask(n, group.Request{Op: group.OpCommit, Member: member, Generation: joined.Generation, Offsets: []group.Offset{{TopicPartition: tps[0], Offset: record.Offset(o)}}})
			if err == nil {
				acked.Store(o)
			}
		}
	})
	for _, id := range c.peers {
		wg.Go(func() {
			for life.Err() == nil {
				before := acked.Load()
				resp, err := ask(c.node(id), group.Request{Op: group.OpCommitted, Partitions: tps})
				if err != nil {
					continue
				}
				asked.Add(1)
				if got := int64(resp.Offsets[0].Offset); before > 0 && got < before {
					t.Errorf("node %s says %d after %d was committed", id, got, before)
				}
			}
		})
	}
	goesOn := func() {
		t.Helper()
		committed, answers := acked.Load(), asked.Load()
		c.until("commits and answers", func() bool { return acked.Load() > committed+10 && asked.Load() > answers+10 })
	}
	for round := range 4 {
		goesOn()
		leader := c.leader(c.node("a"), p.tp)
		if round%2 == 0 {
			require.Eventually(t, func() bool { // not to one that has just come back, and lags
				return c.node("a").TransferLeader(c.ctx(), p.tp, "") == nil
			}, 20*time.Second, 10*time.Millisecond)
			continue
		}
		c.network.Isolate(leader)
		goesOn()
		c.network.Heal()
	}
	goesOn()
	end()
	wg.Wait()
}
