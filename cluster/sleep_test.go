package cluster

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/record"
)

// awaitSleep waits until all partitions on a node sleep.
func awaitSleep(t testing.TB, ctx context.Context, n *Node) {
	t.Helper()
	for _, p := range n.all() {
		rep, _, _ := p.state()
		if rep == nil {
			continue
		}
		for {
			changed := rep.Changed()
			if rep.Status().Asleep {
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				require.FailNow(t, "does not sleep", "%v", p.tp)
			}
		}
	}
}

func sleepSoon(cfg *Config) {
	cfg.SleepAfter, cfg.ElectionTimeout = 50*time.Millisecond, 400*time.Millisecond
}

// TestATopicThatSleepsServesEveryNode: it is looked at without being woken, and
// woken by a write from anywhere.
func TestATopicThatSleepsServesEveryNode(t *testing.T) {
	c := startCluster(t, sleepSoon, "a", "b", "c")
	topic := c.create("orders", 1)
	tp := part("orders", 0)
	w := c.writer(c.node("a"), tp)
	require.EqualValues(t, 0, w.send(c.node("a"), "first"))
	sleeping := func() {
		for _, id := range c.peers {
			awaitSleep(t, c.ctx(), c.node(id))
		}
	}
	sleeping()
	asleep := func(id string) bool {
		rep, _, _ := c.node(id).byKey(partitionKey{topic.ID, 0}).state()
		return rep.Status().Asleep
	}
	for _, id := range c.peers {
		n := c.node(id)
		_, high, err := n.Offsets(c.ctx(), tp, record.ReadUncommitted)
		require.NoError(t, err)
		require.EqualValues(t, 1, high)
		require.Equal(t, []string{"first"}, c.read(n, tp, 0, 1))
		s, err := n.Status(c.ctx(), "orders")
		require.NoError(t, err)
		require.NotEmpty(t, s.Partitions[0].Leader)
		for _, on := range c.peers {
			require.True(t, asleep(on), "asked through %s, it woke up on %s", id, on)
		}
	}
	values := []string{"first"}
	for _, id := range c.peers {
		reader := make(chan []string, 1)
		from, ctx, other := record.Offset(len(values)), c.ctx(), c.other(id)
		go func() { // it waits at the end of what sleeps
			got, _ := readValues(ctx, other, tp, from, 1)
			reader <- got
		}()
		values = append(values, id)
		require.EqualValues(t, len(values)-1, w.send(c.node(id), id))
		require.Equal(t, []string{id}, <-reader)
		sleeping()
	}
	require.Equal(t, values, c.read(c.node("b"), tp, 0, len(values)))
}

// TestACoordinatorThatSleptServesItsGroups: its first write is of a new epoch.
func TestACoordinatorThatSleptServesItsGroups(t *testing.T) {
	c := startCluster(t, sleepSoon, "a", "b", "c")
	c.create("orders", 1)
	n := c.node("a")
	join := func(member string) {
		_, err := n.Group(c.ctx(), "billing", group.Request{Op: group.OpJoin, Member: member, Topics: []string{"orders"}})
		require.NoError(t, err)
	}
	join("m0")
	for _, member := range []string{"m1", "m2"} {
		for _, id := range c.peers {
			awaitSleep(t, c.ctx(), c.node(id))
		}
		began := time.Now()
		join(member)
		require.Less(t, time.Since(began), n.cfg.ElectionTimeout)
	}
}
