package cluster

import (
	"context"
	"fmt"
	"path"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/replica"
)

// load writes numbered records to a partition until stop is called, which returns
// how many were acknowledged. It is one idempotent producer.
func (c *testCluster) load(n *Node, tp record.TopicPartition) (stop func() int) {
	c.Helper()
	w := c.writer(n, tp)
	var over atomic.Bool
	done := make(chan int)
	go func() {
		sent := 0
		for ; !over.Load(); sent++ {
			w.send(n, fmt.Sprint(sent))
		}
		done <- sent
	}()
	return func() int {
		over.Store(true)
		return <-done
	}
}

// holds waits until a partition lies exactly on nodes, in the log's own words and
// on the disks: whoever does not hold it has no directory of it.
func (c *testCluster) holds(tp record.TopicPartition, nodes ...string) {
	c.Helper()
	want := slices.Sorted(slices.Values(nodes))
	for _, id := range c.peers {
		if c.machines[id].Node == nil {
			continue
		}
		n := c.node(id)
		p, err := n.find(c.ctx(), tp)
		require.NoError(c, err)
		c.until(fmt.Sprintf("%v lies on %q for %s", tp, nodes, id), func() bool {
			return slices.Equal(slices.Sorted(slices.Values(p.assigned().Replicas)), want) && !p.assigned().moving()
		})
		c.until(fmt.Sprintf("disk of %s", id), func() bool {
			found, err := c.machines[id].disk.List("data/partitions")
			require.NoError(c, err)
			rep, _, _ := p.state()
			return slices.Contains(found, partitionDir(p)) == slices.Contains(nodes, id) && (rep != nil) == slices.Contains(nodes, id)
		})
	}
	n := c.node(c.leader(c.other(), tp))
	p, err := n.find(c.ctx(), tp)
	require.NoError(c, err)
	rep, _, _ := p.state()
	require.Equal(c, replica.Members{Voters: want}, rep.Members())
}

// until waits for what happens on goroutines of the nodes.
func (c *testCluster) until(what string, ok func() bool) {
	c.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for ctx := c.ctx(); !ok(); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			require.FailNow(c, "did not happen", what)
		}
	}
}

// numbers are the values that load writes.
func numbers(count int) (values []string) {
	for i := range count {
		values = append(values, fmt.Sprint(i))
	}
	return values
}

func TestAPartitionMovesToANewNodeUnderLoad(t *testing.T) {
	c := startCluster(t, nil, "a", "b", "c")
	c.create("orders", 1)
	tp := part("orders", 0)
	n := c.node("a")
	stop := c.load(n, tp)
	c.join("d")
	require.NoError(t, n.AddNode(c.ctx(), "d"))
	require.Equal(t, []NodeInfo{
		{ID: "a", State: NodeActive, Replicas: 1, Leaders: 1}, {ID: "b", State: NodeActive, Replicas: 1},
		{ID: "c", State: NodeActive, Replicas: 1}, {ID: "d", State: NodeActive},
	}, n.Nodes())

	// Each founder in turn makes room, the leader too; then all come back at once.
	require.NoError(t, n.MoveReplica(c.ctx(), tp, "a", "d"))
	c.holds(tp, "d", "b", "c")
	require.Equal(t, "d", c.leader(n, tp), "who took the first one's place leads")
	require.NoError(t, c.node("d").MoveReplica(c.ctx(), tp, "b", "a"))
	require.NoError(t, c.node("d").MoveReplica(c.ctx(), tp, "c", "b"))
	c.holds(tp, "d", "a", "b")
	var seen []Progress
	require.NoError(t, n.Reassign(c.ctx(), []Move{{Partition: tp, To: []string{"c", "b"}}}, func(p Progress) { seen = append(seen, p) }))
	c.holds(tp, "c", "b")
	require.NoError(t, n.Reassign(c.ctx(), []Move{{Partition: tp, To: []string{"c", "d", "a"}}}, nil))
	c.holds(tp, "c", "d", "a")
	require.Equal(t, Progress{Done: 1, Total: 1}, seen[len(seen)-1])

	sent := stop()
	for _, id := range c.peers {
		require.Equal(t, numbers(sent), c.read(c.node(id), tp, 0, sent), "read through %s", id)
		_, high, err := c.node(id).Offsets(c.ctx(), tp, record.ReadCommitted)
		require.NoError(t, err)
		require.Equal(t, record.Offset(sent), high, "nothing is there twice")
	}
	moves, err := n.Moves(c.ctx())
	require.NoError(t, err)
	require.Empty(t, moves)
}

func TestANodeThatJoinedComesBackAsWhatItIs(t *testing.T) {
	c := startCluster(t, quickElections, "a", "b", "c")
	c.create("orders", 1)
	tp := part("orders", 0)
	n := c.node("b")
	c.join("d")
	require.NoError(t, n.AddNode(c.ctx(), "d"))
	require.NoError(t, n.MoveReplica(c.ctx(), tp, "a", "d"))
	w := c.writer(n, tp)
	w.send(n, "one")
	for _, id := range c.peers {
		c.stop(id)
	}
	for _, id := range c.peers {
		c.start(id)
	}
	n = c.node("b")
	require.Equal(t, []string{"one"}, c.read(c.node("d"), tp, 0, 1))
	w.send(n, "two")
	c.holds(tp, "d", "b", "c")
	c.until("d is a voter of the metadata partition", func() bool {
		return slices.Contains(c.node("a").metaReplica.Load().Members().Voters, "d")
	})
}

func TestADeadNodeIsReplaced(t *testing.T) {
	c := startCluster(t, quickElections, "a", "b", "c")
	c.create("orders", 2)
	n := c.node("a")
	_, err := n.groupPartition(c.ctx(), "billing") // makes __consumer_offsets
	require.NoError(t, err)
	var writers []*writer
	for i := range int32(2) {
		w := c.writer(n, part("orders", i))
		w.send(n, "before")
		writers = append(writers, w)
	}
	c.stop("c")
	c.peers = []string{"a", "b"}
	require.ErrorIs(t, n.RemoveNode(c.ctx(), "c"), replica.ErrUnsafeChange, "it still holds replicas")
	require.ErrorIs(t, n.DrainNode(c.ctx(), "c", nil), replica.ErrUnsafeChange, "there is no room")
	require.ErrorIs(t, n.ReplaceNode(c.ctx(), "c", "d", nil), replica.ErrUnsafeChange, "d is not there yet")
	c.join("d")
	require.NoError(t, n.AddNode(c.ctx(), "d"))
	require.NoError(t, n.ReplaceNode(c.ctx(), "c", "d", nil))
	for i, w := range writers {
		w.send(n, "after")
		c.holds(part("orders", int32(i)), "a", "b", "d")
		require.Equal(t, []string{"before", "after"}, c.read(c.node("d"), part("orders", int32(i)), 0, 2))
	}
	for i := range int32(offsetsPartitions) {
		c.holds(part(OffsetsTopic, i), "a", "b", "d")
	}
	require.Equal(t, NodeInfo{ID: "c", State: NodeRemoved}, n.Nodes()[2])

	// What was removed and comes back disturbs nobody, and is told.
	_, before := n.metaReplica.Load().Leader()
	c.start("c")
	require.ErrorIs(t, c.node("c").repeatJoin(c.ctx()), replica.ErrUnsafeChange)
	writers[0].send(c.node("d"), "still")
	_, after := n.metaReplica.Load().Leader()
	require.Equal(t, before, after, "no term has risen")
	require.NoError(t, n.AddNode(c.ctx(), "c"), "but it may be added again")
	require.Equal(t, NodeActive, n.Nodes()[2].State)
	c.until("it hears that it holds nothing any more", func() bool {
		found, err := c.machines["c"].disk.List("data/partitions")
		require.NoError(t, err)
		return len(found) <= 1
	})
}

// repeatJoin is what join asks for.
func (n *Node) repeatJoin(ctx context.Context) error {
	_, err := n.ask(ctx, n.meta, "join", request{Op: opAddNode, Node: n.cfg.ID, Itself: true})
	return err
}

func TestANodeIsDrainedAndRemoved(t *testing.T) {
	c := startCluster(t, nil, "a", "b", "c")
	c.create("orders", 3)
	n := c.node("b")
	stop := c.load(n, part("orders", 0))
	c.join("d")
	require.NoError(t, n.AddNode(c.ctx(), "d"))
	require.ErrorIs(t, n.RemoveNode(c.ctx(), "a"), replica.ErrUnsafeChange, "it must be drained first")
	require.NoError(t, c.node("a").TransferLeader(c.ctx(), part("orders", 0), "a"))
	var last Progress
	require.NoError(t, n.DrainNode(c.ctx(), "a", func(p Progress) { last = p }))
	require.Equal(t, Progress{Done: 3, Total: 3}, last)
	for i := range int32(3) {
		c.holds(part("orders", i), "b", "c", "d")
		require.NotEqual(t, "a", c.leader(n, part("orders", i)))
	}
	node, _ := n.metaReplica.Load().Leader()
	require.NotEqual(t, "a", node)
	_, err := n.CreateTopic(c.ctx(), TopicConfig{Name: "later", Partitions: 4})
	require.NoError(t, err)
	for i := range int32(4) {
		p, err := n.known(part("later", i))
		require.NoError(t, err)
		require.NotContains(t, p.assigned().Replicas, "a", "a node that is drained gets nothing new")
	}
	require.NoError(t, n.RemoveNode(c.ctx(), "a"))
	require.NotContains(t, n.metaReplica.Load().Members().Voters, "a")
	require.ErrorIs(t, n.RemoveNode(c.ctx(), "b"), replica.ErrUnsafeChange, "a node does not remove itself")
	sent := stop()
	require.Equal(t, numbers(sent), c.read(c.node("d"), part("orders", 0), 0, sent))
}

func TestMovesThatMakeNoSenseAreRefused(t *testing.T) {
	c := startCluster(t, nil, "a", "b", "c")
	c.create("orders", 1)
	n, tp := c.node("a"), part("orders", 0)
	for reason, to := range map[string][]string{
		"last copy":               {},
		"named twice":             {"a", "a"},
		"not part of the cluster": {"a", "x"},
		"MinInSync of the topic":  {"a"},
	} {
		err := n.Reassign(c.ctx(), []Move{{Partition: tp, To: to}}, nil)
		require.ErrorIs(t, err, replica.ErrUnsafeChange)
		require.ErrorContains(t, err, reason)
	}
	err := n.Reassign(c.ctx(), []Move{{Partition: tp, From: []string{"x"}, To: []string{"a", "b"}}}, nil)
	require.ErrorContains(t, err, "make a new plan")
	require.ErrorIs(t, n.Reassign(c.ctx(), []Move{{Partition: part("orders", 9), To: []string{"a"}}}, nil), record.ErrUnknownTopic)
	require.ErrorContains(t, n.MoveReplica(c.ctx(), tp, "x", "a"), "name one of them")
	var refused *RefusedError
	require.ErrorAs(t, c.node("b").DrainNode(c.ctx(), "a", nil), &refused)
	require.Contains(t, refused.Reason, "add a node first")
	require.ErrorIs(t, n.TransferLeader(c.ctx(), tp, "x"), replica.ErrUnsafeChange)
	c.holds(tp, "a", "b", "c")
}

// TestAMoveGoesOnWithAnotherMetadataLeader stops who steers at every step of a
// move: the decisions and the members of the group are all there is to know.
func TestAMoveGoesOnWithAnotherMetadataLeader(t *testing.T) {
	c := startCluster(t, quickElections, "a", "b", "c")
	c.create("orders", 1)
	tp := part("orders", 0)
	c.join("d")
	require.NoError(t, c.node("a").AddNode(c.ctx(), "d"))
	c.until("four voters", func() bool { return len(c.node("a").metaReplica.Load().Members().Voters) == 4 })
	w := c.writer(c.node("a"), tp)
	var want []string
	for turn := range 6 {
		from, to := "a", "d"
		if turn%2 == 1 {
			from, to = to, from
		}
		leader := c.leader(c.node("b"), record.TopicPartition{Topic: MetadataTopic})
		asker := c.other(leader)
		asked := make(chan error, 1)
		go func() { asked <- asker.MoveReplica(c.ctx(), tp, from, to) }()
		p, err := asker.find(c.ctx(), tp)
		require.NoError(t, err)
		c.until("decided, and so far along", func() bool { a := p.assigned(); return a.Version >= int64(3*turn+1+turn%3) })
		c.stop(leader)
		c.start(leader)
		require.NoError(t, <-asked)
		want = append(want, fmt.Sprint(turn))
		w.send(c.other(leader), fmt.Sprint(turn))
		c.holds(tp, to, "b", "c")
	}
	require.Equal(t, want, c.read(c.node("c"), tp, 0, len(want)))
}

func TestAMoveToANodeThatIsDownWaitsAndCanBeTurnedAround(t *testing.T) {
	c := startCluster(t, quickElections, "a", "b", "c")
	c.create("orders", 1)
	tp := part("orders", 0)
	n := c.node("a")
	c.join("d")
	require.NoError(t, n.AddNode(c.ctx(), "d"))
	c.stop("d")
	ctx, cancel := context.WithCancel(c.ctx())
	moved := make(chan error, 1)
	go func() { moved <- n.MoveReplica(ctx, tp, "b", "d") }()
	c.until("the move says what it waits for", func() bool {
		moves, err := c.node("c").Moves(c.ctx())
		require.NoError(t, err)
		return len(moves) == 1 && moves[0].Waiting != "" && slices.Equal(moves[0].To, []string{"a", "d", "c"})
	})
	cancel()
	require.ErrorIs(t, <-moved, context.Canceled)
	w := c.writer(n, tp)
	w.send(n, "writes go on")
	require.NoError(t, n.Reassign(c.ctx(), []Move{{Partition: tp, To: []string{"a", "b", "c"}}}, nil))
	c.holds(tp, "a", "b", "c")
	c.start("d")
	c.holds(tp, "a", "b", "c")
}

func TestDirectoriesThatWereLeftBehindAreDeleted(t *testing.T) {
	c := startCluster(t, quickElections, "a", "b", "c")
	c.create("orders", 1)
	c.create("gone", 1)
	n := c.node("a")
	c.join("d")
	require.NoError(t, n.AddNode(c.ctx(), "d"))
	c.stop("c") // and does not see what happens
	require.NoError(t, n.MoveReplica(c.ctx(), part("orders", 0), "c", "d"))
	require.NoError(t, n.DeleteTopic(c.ctx(), "gone"))
	disk := c.machines["c"].disk
	for _, name := range []string{"half.01234567-0" + discarded, "stranger.01234567-0"} {
		require.NoError(t, disk.MkdirAll(path.Join("data/partitions", name)))
		f, err := disk.Create(path.Join("data/partitions", name, "file"))
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	c.start("c")
	c.holds(part("orders", 0), "a", "b", "d")
	c.until("leftovers are deleted", func() bool {
		found, err := disk.List("data/partitions")
		require.NoError(t, err)
		return slices.Equal(found, []string{partitionDir(c.node("c").meta), "stranger.01234567-0"})
	})
}

// TestPartitionsThatSleepMove lets a partition fall asleep before and between moves.
func TestPartitionsThatSleepMove(t *testing.T) {
	c := startCluster(t, func(cfg *Config) { quickElections(cfg); cfg.SleepAfter = 50 * time.Millisecond }, "a", "b", "c")
	c.create("orders", 1)
	n, tp := c.node("a"), part("orders", 0)
	w := c.writer(n, tp)
	c.join("d")
	require.NoError(t, n.AddNode(c.ctx(), "d"))
	var want []string
	asleep := func(nodes ...string) {
		for _, id := range nodes {
			p, err := c.node(id).find(c.ctx(), tp)
			require.NoError(t, err)
			c.until("sleep on "+id, func() bool { rep, _, _ := p.state(); return rep != nil && rep.Status().Asleep })
		}
	}
	lies := []string{"a", "b", "c"}
	for i, mv := range [][2]string{{"b", "d"}, {"a", "b"}, {"c", "a"}} {
		value := fmt.Sprint(i)
		w.send(n, value)
		want = append(want, value)
		asleep(lies...)
		require.NoError(t, n.MoveReplica(c.ctx(), tp, mv[0], mv[1]))
		lies[slices.Index(lies, mv[0])] = mv[1]
		c.holds(tp, lies...)
	}
	asleep(lies...)
	c.stop("d") // the leader's node or not, the rest wakes up and it can be replaced
	c.peers = []string{"a", "b", "c"}
	require.NoError(t, n.ReplaceNode(c.ctx(), "d", "c", nil))
	c.holds(tp, "a", "b", "c")
	require.Equal(t, want, c.read(n, tp, 0, len(want)))
}

func TestEveryFounderMayGo(t *testing.T) {
	c := startCluster(t, quickElections, "a", "b", "c")
	c.create("orders", 2)
	tp := part("orders", 1)
	w := c.writer(c.node("a"), tp)
	w.send(c.node("a"), "from the founders")
	for _, pair := range [][2]string{{"c", "d"}, {"a", "e"}, {"b", "f"}} {
		old, new := pair[0], pair[1]
		n := c.join(new)
		require.NoError(t, n.AddNode(c.ctx(), new))
		require.NoError(t, n.ReplaceNode(c.ctx(), old, new, nil))
		c.stop(old)
		c.peers = slices.DeleteFunc(slices.Clone(c.peers), func(id string) bool { return id == old })
	}
	for _, id := range c.peers {
		c.stop(id)
	}
	for _, id := range c.peers { // their Peers are all gone
		c.start(id)
	}
	_, err := c.node("d").Partitions(c.ctx(), "orders") // Append does not wait for the metadata
	require.NoError(t, err)
	w.send(c.node("d"), "to their heirs")
	require.Equal(t, []string{"from the founders", "to their heirs"}, c.read(c.node("e"), tp, 0, 2))
	c.holds(tp, "d", "e", "f")
	require.Equal(t, []string{"d", "e", "f"}, c.node("f").metaReplica.Load().Members().Voters)
}

func TestFewNodesVoteForTheMetadata(t *testing.T) {
	c := startCluster(t, quickElections, "a", "b", "c", "d", "e")
	c.join("f")
	n := c.node("a")
	require.NoError(t, n.AddNode(c.ctx(), "f"))
	want := replica.Members{Voters: []string{"a", "b", "c", "d", "e"}, Learners: []string{"f"}}
	require.Equal(t, want, n.metaReplica.Load().Members(), "the sixth only follows")
	_, err := c.node("f").CreateTopic(c.ctx(), TopicConfig{Name: "orders", Partitions: 6})
	require.NoError(t, err)
	w := c.writer(c.node("f"), part("orders", 0))
	w.send(c.node("f"), "all the same it serves")
	require.NoError(t, n.DrainNode(c.ctx(), "e", nil))
	require.NoError(t, n.RemoveNode(c.ctx(), "e"))
	c.until("the sixth votes in its place", func() bool {
		return slices.Equal(n.metaReplica.Load().Members().Voters, []string{"a", "b", "c", "d", "f"})
	})
}

// TestOnlyWhatHasLeftByAllThatIsDecidedIsDeleted: a node that folds the metadata late,
// as after a start, comes by a time when a partition was elsewhere that is here now.
func TestOnlyWhatHasLeftByAllThatIsDecidedIsDeleted(t *testing.T) {
	c := startCluster(t, quickElections, "a", "b", "c")
	c.create("here", 1)
	c.create("away", 1)
	n := c.node("c")
	here, away := part("here", 0), part("away", 0)
	require.NoError(t, n.Reassign(c.ctx(), []Move{{Partition: away, To: []string{"a", "b"}}}, nil))
	c.holds(away, "a", "b")
	disk := c.machines["c"].disk
	dir := func(tp record.TopicPartition) string {
		p, err := n.find(c.ctx(), tp)
		require.NoError(t, err)
		return partitionDir(p)
	}
	require.NoError(t, disk.MkdirAll(path.Join("data/partitions", dir(away))))

	c.network.Isolate("c")
	require.Equal(t, []string{dir(here), dir(away)}, n.discardGone(c.ctx(), []string{dir(here), dir(away)}), "nobody tells what is decided by now")
	c.network.Heal()
	c.until("both are decided on", func() bool { return n.discardGone(c.ctx(), []string{dir(here), dir(away)}) == nil })
	found, err := disk.List("data/partitions")
	require.NoError(t, err)
	require.Contains(t, found, dir(here))
	require.NotContains(t, found, dir(away))
}
