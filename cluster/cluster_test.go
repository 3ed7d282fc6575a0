package cluster

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

func TestEveryNodeServesEveryPartition(t *testing.T) {
	c := startCluster(t, nil, "a", "b", "c")
	c.create("orders", 3)
	leaders := map[string]bool{}
	for i := range int32(3) {
		tp := part("orders", i)
		var want []string
		for _, id := range c.peers {
			w := c.writer(c.node(id), tp)
			value := fmt.Sprintf("%d from %s", i, id)
			require.Equal(t, record.Offset(len(want)), w.send(c.node(id), value))
			want = append(want, value)
		}
		for _, id := range c.peers {
			require.Equal(t, want, c.read(c.node(id), tp, 0, 3), "read through %s", id)
			require.Equal(t, want[2:], c.read(c.node(id), tp, 2, 1), "read through %s", id)
			start, high, err := c.node(id).Offsets(c.ctx(), tp, record.ReadUncommitted)
			require.NoError(t, err)
			require.Equal(t, []record.Offset{0, 3}, []record.Offset{start, high})
		}
		leaders[c.leader(c.node("a"), tp)] = true
	}
	require.Len(t, leaders, 3, "leaders are spread")
}

func TestPartitionOnOtherNodesIsServed(t *testing.T) {
	c := startCluster(t, nil, "a", "b", "c")
	_, err := c.node("a").CreateTopic(c.ctx(), TopicConfig{Name: "single", Partitions: 3, Replicas: 1})
	require.NoError(t, err)
	for i := range int32(3) {
		w := c.writer(c.node("a"), part("single", i))
		for k, id := range c.peers {
			require.Equal(t, record.Offset(k), w.send(c.node(id), id))
		}
		for _, id := range c.peers {
			require.Equal(t, c.peers, c.read(c.node(id), part("single", i), 0, 3))
		}
	}
}

func TestStoppedLeaderIsReplacedAndComesBack(t *testing.T) {
	c := startCluster(t, quickElections, "a", "b", "c")
	c.create("orders", 1)
	tp := part("orders", 0)
	w := c.writer(c.node("a"), tp)
	w.send(c.node("a"), "one")

	old := c.leader(c.node("a"), tp)
	survivor := c.other(old)
	type got struct {
		values []string
		err    error
	}
	follower := make(chan got, 1)
	go func() { // waits for "two" while the leader goes away
		values, err := readValues(c.ctx(), survivor, tp, 1, 1)
		follower <- got{values, err}
	}()
	c.stop(old)
	require.Equal(t, record.Offset(1), w.send(survivor, "two"))
	require.Equal(t, got{values: []string{"two"}}, <-follower)
	require.NotEqual(t, old, c.leader(survivor, tp))

	c.start(old)
	require.Equal(t, []string{"one", "two"}, c.read(c.node(old), tp, 0, 2))
	require.Equal(t, record.Offset(2), w.send(c.node(old), "three"))
	require.Equal(t, []string{"one", "two", "three"}, c.read(survivor, tp, 0, 3))
}

func TestClusterComesBackWithItsTopics(t *testing.T) {
	c := startCluster(t, quickElections, "a", "b", "c")
	c.create("orders", 2)
	w := c.writer(c.node("a"), part("orders", 1))
	w.send(c.node("b"), "one")
	for _, id := range c.peers {
		c.stop(id)
	}
	for _, id := range c.peers {
		c.start(id)
	}
	count, err := c.node("c").Partitions(c.ctx(), "orders")
	require.NoError(t, err)
	require.Equal(t, 2, count)
	require.Equal(t, []string{"one"}, c.read(c.node("c"), part("orders", 1), 0, 1))
	id, _, err := c.node("a").NewProducer(c.ctx(), "")
	require.NoError(t, err)
	require.NotEqual(t, w.id, id, "ids are not given out again")
}

func TestCutOffLeaderHoldsNobodyForEver(t *testing.T) {
	c := startCluster(t, quickElections, "a", "b", "c")
	c.create("orders", 1)
	tp := part("orders", 0)
	old := c.leader(c.node("a"), tp)
	survivor := c.other(old)
	w := c.writer(survivor, tp)
	w.send(survivor, "one")
	type got struct {
		values []string
		err    error
	}
	reader := make(chan got, 1)
	go func() {
		values, err := readValues(c.ctx(), survivor, tp, 0, 2)
		reader <- got{values, err}
	}()
	c.network.Isolate(old)
	require.Equal(t, record.Offset(1), w.send(survivor, "two"))
	require.Equal(t, got{values: []string{"one", "two"}}, <-reader)

	ctx, cancel := context.WithTimeout(c.ctx(), 50*time.Millisecond)
	defer cancel()
	_, _, err := c.node(old).Offsets(ctx, tp, record.ReadUncommitted)
	require.ErrorIs(t, err, context.DeadlineExceeded, "the old leader cannot know")
	require.ErrorContains(t, err, "offsets of orders/0")

	c.network.Heal()
	require.Equal(t, []string{"one", "two"}, c.read(c.node(old), tp, 0, 2))
}

func TestALeaderThatMayBeReplacedDoesNotCallAPositionTooHigh(t *testing.T) {
	c := startCluster(t, nil, "a", "b", "c")
	c.create("orders", 1)
	tp := part("orders", 0)
	leader := c.leader(c.node("a"), tp)
	c.writer(c.node(leader), tp).send(c.node(leader), "one")
	for _, n := range []*Node{c.node(leader), c.other(leader)} {
		_, err := n.Fetch(c.ctx(), tp, 2, 0, record.ReadUncommitted)
		require.ErrorIs(t, err, record.ErrOffsetOutOfRange)
	}
	c.network.Isolate(leader) // the others may have more by now
	ctx, cancel := context.WithTimeout(c.ctx(), 100*time.Millisecond)
	defer cancel()
	_, err := c.node(leader).Fetch(ctx, tp, 2, 0, record.ReadUncommitted)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestBatchesOfOneCallerKeepTheirOrder(t *testing.T) {
	c := startCluster(t, nil, "a", "b", "c")
	c.create("orders", 1)
	tp := part("orders", 0)
	leader := c.leader(c.node("a"), tp)
	for _, n := range []*Node{c.node(leader), c.other(leader)} {
		const count = 200
		offsets := make([]record.Offset, count)
		errs := make([]error, count)
		var wg sync.WaitGroup
		wg.Add(count)
		for i := range count {
			n.Append(c.ctx(), record.TopicID{}, tp, testBatch(t, "x"), record.AckQuorum, func(a record.Appended, err error) {
				offsets[i], errs[i] = a.BaseOffset, err
				wg.Done()
			})
		}
		wg.Wait()
		for i := range count {
			require.NoError(t, errs[i])
			require.Equal(t, offsets[0]+record.Offset(i), offsets[i])
		}
	}
}

func TestBatchSentAgainIsADuplicate(t *testing.T) {
	c := startCluster(t, nil, "a", "b", "c")
	c.create("orders", 1)
	tp := part("orders", 0)
	w := c.writer(c.node("a"), tp)
	w.send(c.node("a"), "one")
	for i, id := range c.peers {
		a, err := appendOnce(c.ctx(), c.node(id), tp, w.batch("two"), record.AckQuorum)
		require.NoError(t, err)
		require.Equal(t, record.Offset(1), a.BaseOffset, "through %s", id)
		require.Equal(t, i > 0, a.Duplicate, "through %s", id)
	}
}

func TestWeakerAcksReachTheLeader(t *testing.T) {
	c := startCluster(t, nil, "a", "b", "c")
	c.create("orders", 1)
	tp := part("orders", 0)
	for i, id := range c.peers {
		a, err := appendOnce(c.ctx(), c.node(id), tp, testBatch(t, "leader"), record.AckLeader)
		require.NoError(t, err)
		require.Equal(t, record.Offset(2*i), a.BaseOffset)
		_, err = appendOnce(c.ctx(), c.node(id), tp, testBatch(t, "none"), record.AckNone)
		require.NoError(t, err)
		c.read(c.node(id), tp, record.Offset(2*i), 2)
	}
}

func TestProducerIDsAreUniqueOverNodes(t *testing.T) {
	c := startCluster(t, nil, "a", "b", "c")
	var mu sync.Mutex
	seen := map[record.ProducerID]bool{}
	var wg sync.WaitGroup
	ctx := c.ctx()
	for _, id := range c.peers {
		n := c.node(id)
		for range 4 {
			wg.Go(func() {
				for range 300 { // more than a block for each node
					id, epoch, err := n.NewProducer(ctx, "")
					mu.Lock()
					if err != nil || epoch != 0 || seen[id] {
						t.Errorf("id %d, epoch %d, seen %v: %v", id, epoch, seen[id], err)
					}
					seen[id] = true
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	require.Len(t, seen, 3*4*300)
}

func TestNewHolderOfAProducerNameFencesTheOld(t *testing.T) {
	c := startCluster(t, nil, "a", "b", "c")
	c.create("orders", 1)
	tp := part("orders", 0)
	id, epoch, err := c.node("a").NewProducer(c.ctx(), "checkout")
	require.NoError(t, err)
	old := &writer{testCluster: c, tp: tp, id: id, epoch: epoch}
	old.send(c.node("a"), "old")

	id2, epoch2, err := c.node("b").NewProducer(c.ctx(), "checkout")
	require.NoError(t, err)
	require.Equal(t, id, id2)
	require.Greater(t, epoch2, epoch)
	holder := &writer{testCluster: c, tp: tp, id: id2, epoch: epoch2}
	holder.send(c.node("b"), "new")

	for _, node := range c.peers {
		_, err = appendOnce(c.ctx(), c.node(node), tp, old.batch("late"), record.AckQuorum)
		var fenced *record.FencedError
		require.ErrorAs(t, err, &fenced, "through %s", node)
		require.Equal(t, int64(epoch2), fenced.Want)
		_, _, err = c.node(node).RenewProducer(c.ctx(), "checkout", id, epoch)
		require.ErrorAs(t, err, &fenced, "it does not fence the new one through %s", node)
		require.Equal(t, int64(epoch2), fenced.Want)
	}
	renewedID, renewed, err := c.node("c").RenewProducer(c.ctx(), "checkout", id2, epoch2)
	require.NoError(t, err)
	require.Equal(t, id2, renewedID)
	require.Greater(t, renewed, epoch2)
	other, _, err := c.node("c").NewProducer(c.ctx(), "billing")
	require.NoError(t, err)
	require.NotEqual(t, id, other)
}

func TestTopicIsMadeOnFirstUse(t *testing.T) {
	c := startCluster(t, func(cfg *Config) { cfg.AutoCreate = true }, "a", "b", "c")
	ctx := c.ctx()
	var wg sync.WaitGroup
	for _, id := range c.peers { // all at once
		n := c.node(id)
		wg.Go(func() {
			count, err := n.Partitions(ctx, "orders")
			if err != nil || count != 1 {
				t.Errorf("%d partitions: %v", count, err)
			}
		})
	}
	wg.Wait()
	topic, err := c.node("a").Topic(ctx, "orders")
	require.NoError(t, err)
	require.Equal(t, TopicConfig{Name: "orders", Partitions: 1, Replicas: 3, MinInSync: 2}, topic.Config)
	require.Equal(t, []Topic{topic}, c.node("a").Topics())
	c.writer(c.node("b"), part("orders", 0)).send(c.node("b"), "one")
	require.Equal(t, []string{"one"}, c.read(c.node("c"), part("orders", 0), 0, 1))

	_, err = c.node("a").Partitions(ctx, "bad name")
	require.ErrorIs(t, err, record.ErrInvalid)
	_, err = c.node("a").Partitions(ctx, "__made_up")
	require.ErrorIs(t, err, record.ErrUnknownTopic)
}

func TestBadInputIsRefusedThroughEveryNode(t *testing.T) {
	c := startCluster(t, nil, "a", "b", "c")
	c.create("orders", 1)
	tp := part("orders", 0)
	canceled, cancel := context.WithCancel(c.ctx())
	cancel()
	for _, id := range c.peers {
		n, ctx := c.node(id), c.ctx()
		create := func(cfg TopicConfig) error { _, err := n.CreateTopic(ctx, cfg); return err }
		fetch := func(tp record.TopicPartition, from record.Offset) error {
			_, err := n.Fetch(ctx, tp, from, 0, record.ReadCommitted)
			return err
		}
		write := func(tp record.TopicPartition, b record.Batch) error {
			_, err := appendOnce(ctx, n, tp, b, record.AckQuorum)
			return err
		}
		_, canceledFetch := n.Fetch(canceled, tp, 0, 0, record.ReadCommitted)
		_, _, canceledProducer := n.NewProducer(canceled, "x")
		_, unknownTopic := n.Topic(ctx, "nope")
		_, unknownStatus := n.Status(ctx, "nope")
		damaged := testBatch(t, "x")
		damaged[len(damaged)-1]++
		for name, tc := range map[string]struct {
			err  error
			is   error
			says string
		}{
			"empty topic name":        {create(TopicConfig{Partitions: 1}), record.ErrInvalid, "give the topic a name"},
			"negative partitions":     {create(TopicConfig{Name: "x", Partitions: -1}), record.ErrInvalid, "at least 1"},
			"more replicas":           {create(TopicConfig{Name: "x", Partitions: 1, Replicas: 4}), record.ErrInvalid, "3 or fewer"},
			"internal name":           {create(TopicConfig{Name: "__x", Partitions: 1}), record.ErrInvalid, "use another"},
			"existing topic":          {create(TopicConfig{Name: "orders", Partitions: 1}), record.ErrTopicExists, "orders"},
			"unknown topic":           {unknownTopic, record.ErrUnknownTopic, "create it first"},
			"status of unknown topic": {unknownStatus, record.ErrUnknownTopic, "nope"},
			"fetch unknown topic":     {fetch(part("nope", 0), 0), record.ErrUnknownTopic, "nope"},
			"fetch unknown partition": {fetch(part("orders", 1), 0), record.ErrUnknownTopic, "no partition 1"},
			"negative partition":      {fetch(part("orders", -1), 0), record.ErrInvalid, "orders/-1"},
			"negative offset":         {fetch(tp, -1), record.ErrInvalid, "begin at 0"},
			"offset behind the end":   {fetch(tp, 1000), record.ErrOffsetOutOfRange, "1000"},
			"append to unknown topic": {write(part("nope", 0), testBatch(t, "x")), record.ErrUnknownTopic, "nope"},
			"append to partition":     {write(part("orders", 7), testBatch(t, "x")), record.ErrUnknownTopic, "no partition 7"},
			"append to internal":      {write(part(MetadataTopic, 0), testBatch(t, "x")), record.ErrInvalid, "another"},
			"damaged batch":           {write(tp, damaged), record.ErrCorrupt, ""},
			"no batch":                {write(tp, nil), record.ErrCorrupt, ""},
			"canceled fetch":          {canceledFetch, context.Canceled, "orders/0"},
			"canceled producer":       {canceledProducer, context.Canceled, `producer "x"`},
		} {
			require.ErrorIs(t, tc.err, tc.is, "%s through %s", name, id)
			require.ErrorContains(t, tc.err, tc.says, "%s through %s", name, id)
		}
	}
}

func TestConfigReportsAllItsFaults(t *testing.T) {
	_, err := Open(context.Background(), Config{Peers: []string{"a", "a", ""}, ElectionTimeout: 1})
	require.ErrorIs(t, err, record.ErrInvalid)
	for _, says := range []string{"FS", "Dir", "Stable", "Endpoint", "ID is empty", "twice", "empty id", "ElectionTimeout"} {
		require.ErrorContains(t, err, says)
	}
}

func TestClosedNodeRefusesEveryCall(t *testing.T) {
	c := startCluster(t, nil, "a")
	c.create("orders", 1)
	n, ctx, tp := c.node("a"), c.ctx(), part("orders", 0)
	waiting := make(chan error, 1)
	go func() {
		_, err := n.Fetch(ctx, tp, 0, 0, record.ReadCommitted)
		waiting <- err
	}()
	require.NoError(t, n.Close())
	require.NoError(t, n.Close(), "twice")
	require.ErrorIs(t, <-waiting, record.ErrClosed)
	_, create := n.CreateTopic(ctx, TopicConfig{Name: "x", Partitions: 1})
	_, topic := n.Topic(ctx, "orders")
	_, partitions := n.Partitions(ctx, "orders")
	_, appended := appendOnce(ctx, n, tp, testBatch(t, "x"), record.AckQuorum)
	_, fetch := n.Fetch(ctx, tp, 0, 0, record.ReadCommitted)
	_, _, offsets := n.Offsets(ctx, tp, record.ReadUncommitted)
	_, _, producer := n.NewProducer(ctx, "")
	_, status := n.Status(ctx, "orders")
	for i, err := range []error{create, topic, partitions, appended, fetch, offsets, producer, status, n.TransferLeader(ctx, tp, ""), n.WaitReady(ctx, "orders")} {
		require.ErrorIs(t, err, record.ErrClosed, "call %d", i)
	}
}

func TestStatusShowsTheLeaderAndTheOffsets(t *testing.T) {
	c := startCluster(t, nil, "a", "b", "c")
	topic := c.create("orders", 2)
	c.writer(c.node("a"), part("orders", 1)).send(c.node("a"), "one")
	for _, id := range c.peers {
		status, err := c.node(id).Status(c.ctx(), "orders")
		require.NoError(t, err)
		require.Equal(t, topic.Config, status.Config)
		require.Len(t, status.Partitions, 2)
		for i, s := range status.Partitions {
			require.NoError(t, s.Err)
			require.Equal(t, int32(i), s.Partition)
			require.Equal(t, topic.Placement[i], s.Replicas)
			require.Equal(t, topic.Placement[i][0], s.Leader, "the first replica leads at first")
			require.Positive(t, s.Epoch)
			want := record.Offset(i)
			require.Equal(t, []record.Offset{0, want, want, want}, []record.Offset{s.StartOffset, s.LastStableOffset, s.HighWatermark, s.EndOffset})
			require.Equal(t, []string{"a", "b", "c"}, s.ISR)
			require.Len(t, s.Ends, 3)
			require.Equal(t, want, s.Ends[s.Leader])
		}
	}
}

func TestLeadershipIsTransferredOnRequest(t *testing.T) {
	c := startCluster(t, nil, "a", "b", "c")
	c.create("orders", 1)
	tp := part("orders", 0)
	w := c.writer(c.node("a"), tp)
	w.send(c.node("a"), "one")
	old := c.leader(c.node("a"), tp)
	require.NoError(t, c.other(old).TransferLeader(c.ctx(), tp, ""))
	w.send(c.other(old), "two")
	require.NotEqual(t, old, c.leader(c.other(old), tp))
}

func TestClosedNodesLeaveNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	c := startCluster(t, nil, "a", "b", "c")
	c.create("orders", 3)
	for _, id := range c.peers {
		c.writer(c.node(id), part("orders", 0)).send(c.node(id), "x")
	}
	for _, id := range c.peers {
		c.stop(id)
	}
	ended := func() bool { return runtime.NumGoroutine() <= before+1 } // Eventually's own
	if !assert.Eventually(t, ended, 5*time.Second, 5*time.Millisecond, "Raft's end just after Close returns, but they do") {
		stacks := make([]byte, 1<<20)
		t.Fatalf("goroutines are left:\n%s", stacks[:runtime.Stack(stacks, true)])
	}
}

func TestStatusShowsPartitionsNobodyLeads(t *testing.T) {
	c := startCluster(t, quickElections, "a", "b", "c")
	topic := c.create("orders", 1)
	c.stop("b")
	c.stop("c")
	p, err := c.node("a").known(part("orders", 0))
	require.NoError(t, err)
	for rep, _, _ := p.state(); ; { // it may have led last, and takes a moment to notice
		changed := rep.Changed()
		if node, _ := rep.Leader(); node != "a" {
			break
		}
		<-changed
	}
	ctx, cancel := context.WithTimeout(c.ctx(), 300*time.Millisecond)
	defer cancel()
	status, err := c.node("a").Status(ctx, "orders")
	require.NoError(t, err)
	require.Len(t, status.Partitions, 1)
	s := status.Partitions[0]
	require.ErrorIs(t, s.Err, context.DeadlineExceeded)
	require.ErrorContains(t, s.Err, "status of orders/0")
	require.Empty(t, s.Leader)
	require.Equal(t, topic.Placement[0], s.Replicas)
	require.Equal(t, record.NoOffset, s.HighWatermark)

	_, err = appendOnce(ctx, c.node("a"), part("orders", 0), testBatch(t, "x"), record.AckQuorum)
	require.Error(t, err)
	_, err = c.node("a").CreateTopic(ctx, TopicConfig{Name: "more", Partitions: 1})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, `create topic "more"`)
}

func TestOneOfManyCreatorsWins(t *testing.T) {
	c := startCluster(t, nil, "a", "b", "c")
	ctx := c.ctx()
	errs := make(chan error, 6)
	for _, id := range c.peers {
		n := c.node(id)
		for range 2 {
			go func() {
				_, err := n.CreateTopic(ctx, TopicConfig{Name: "orders", Partitions: 1})
				errs <- err
			}()
		}
	}
	made := 0
	for range 6 {
		if err := <-errs; err == nil {
			made++
		} else {
			require.ErrorIs(t, err, record.ErrTopicExists)
		}
	}
	require.Equal(t, 1, made)
}
