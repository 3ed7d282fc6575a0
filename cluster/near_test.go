package cluster

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

func TestANearbyReadOfAFollowerNeedsNoLeader(t *testing.T) {
	c := startCluster(t, nil, "a", "b", "c")
	c.create("orders", 1)
	tp := part("orders", 0)
	leader := c.leader(c.node("a"), tp)
	w := c.writer(c.node(leader), tp)
	w.send(c.node(leader), "x")
	w.send(c.node(leader), "y")
	follower := c.other(leader)
	near := func(ctx context.Context, from record.Offset) (record.Fetched, error) {
		return follower.FetchNear(ctx, tp, from, 0, record.ReadCommitted)
	}
	p, err := follower.find(c.ctx(), tp)
	require.NoError(t, err)
	c.until("its own replica is open, and told of what is committed", func() bool {
		rep, _, _ := p.state()
		return rep != nil && rep.Status().HighWatermark == 2
	})
	c.network.Isolate(follower.cfg.ID)
	f, err := near(c.ctx(), 0)
	require.NoError(t, err)
	require.Equal(t, record.Offset(0), f.Batches[0].BaseOffset())
	ctx, cancel := context.WithCancel(c.ctx())
	waiting := make(chan error, 1)
	go func() {
		_, err := near(ctx, 2)
		waiting <- err
	}()
	cancel()
	require.ErrorIs(t, <-waiting, context.Canceled)
}

func TestANearbyReadWithoutAReplicaAsksTheLeader(t *testing.T) {
	c := startCluster(t, nil, "a", "b")
	_, err := c.node("a").CreateTopic(c.ctx(), TopicConfig{Name: "single", Partitions: 2, Replicas: 1})
	require.NoError(t, err)
	for i := range int32(2) {
		w := c.writer(c.node("a"), part("single", i))
		w.send(c.node("a"), "x")
		for _, id := range c.peers {
			f, err := c.node(id).FetchNear(c.ctx(), part("single", i), 0, 0, record.ReadCommitted)
			require.NoError(t, err)
			require.Len(t, f.Batches, 1)
		}
	}
}

// A node that has a record which is not committed does not show it, whether it takes
// itself for the leader or not.
func TestANearbyReadShowsNothingThatIsNotCommitted(t *testing.T) {
	c := startCluster(t, quickElections, "a", "b", "c")
	c.create("orders", 1)
	tp := part("orders", 0)
	id := c.leader(c.node("a"), tp)
	old, survivor := c.node(id), c.other(id)
	w := c.writer(old, tp)
	w.send(old, "x")
	c.network.Isolate(id)
	a, err := appendOnce(c.ctx(), old, tp, w.batch("lost"), record.AckLeader)
	require.NoError(t, err)
	require.Equal(t, record.Offset(1), a.BaseOffset)
	near := func(ctx context.Context) (record.Fetched, error) {
		return old.FetchNear(ctx, tp, 1, 0, record.ReadUncommitted)
	}
	hidden := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(c.ctx(), 20*time.Millisecond)
		defer cancel()
		_, err := near(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	hidden()
	require.Equal(t, record.Offset(1), w.send(survivor, "z"), "there is a new leader")
	hidden()
	c.network.Heal()
	f, err := near(c.ctx())
	require.NoError(t, err)
	var it record.Iterator
	var r record.Record
	require.NoError(t, it.Reset(f.Batches[0]))
	require.True(t, it.Next(&r))
	require.Equal(t, "z", string(r.Value))
}
