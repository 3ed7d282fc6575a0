package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/replica"
	"github.com/quorumlog/quorumlog/transport"
)

// calm is an election timeout that a busy machine does not reach. First
// leaders need no timeout.
const calm = time.Second

// quickElections is for tests that lose a leader.
func quickElections(cfg *Config) { cfg.ElectionTimeout = 300 * time.Millisecond }

// machine is what outlives a node's process: its disk and its place in the network.
type machine struct {
	id     string
	disk   *vfs.Mem
	stable *replica.Stable

	endpoint transport.Endpoint
	*Node    // nil while stopped
}

// testCluster is some nodes in one process.
type testCluster struct {
	*testing.T
	network  *transport.Network
	peers    []string // the nodes there are
	founders []string // those the cluster began with
	machines map[string]*machine
	configs  func(*Config)
}

// startCluster starts a node for each peer, with configs' changes.
func startCluster(t *testing.T, configs func(*Config), peers ...string) *testCluster {
	t.Helper()
	c := &testCluster{T: t, network: transport.NewNetwork(), peers: peers, founders: peers, machines: map[string]*machine{}, configs: configs}
	for _, id := range peers {
		c.machines[id] = &machine{id: id, disk: vfs.NewMem(), stable: replica.NewMemoryStable()}
		c.start(id)
	}
	t.Cleanup(func() {
		c.network.Heal()
		for _, id := range slices.Sorted(maps.Keys(c.machines)) {
			c.stop(id)
		}
	})
	return c
}

// join starts a node that was not there when the cluster began.
func (c *testCluster) join(id string) *Node {
	c.Helper()
	c.machines[id] = &machine{id: id, disk: vfs.NewMem(), stable: replica.NewMemoryStable()}
	c.peers = append(slices.Clone(c.peers), id)
	c.start(id)
	return c.node(id)
}

func (c *testCluster) start(id string) {
	c.Helper()
	m := c.machines[id]
	var err error
	m.endpoint, err = c.network.Join(id)
	require.NoError(c, err)
	cfg := Config{FS: m.disk, Dir: "data", Stable: m.stable, Endpoint: m.endpoint, Peers: c.founders, Join: !slices.Contains(c.founders, id), ElectionTimeout: calm}
	if c.configs != nil {
		c.configs(&cfg)
	}
	m.Node, err = Open(c.ctx(), cfg)
	require.NoError(c, err)
}

func (c *testCluster) stop(id string) {
	c.Helper()
	m := c.machines[id]
	if m.Node == nil {
		return
	}
	require.NoError(c, m.Close())
	require.NoError(c, m.endpoint.Close())
	m.Node = nil
}

// node returns a running node.
func (c *testCluster) node(id string) *Node {
	c.Helper()
	require.NotNil(c, c.machines[id].Node, "node %s is stopped", id)
	return c.machines[id].Node
}

// other returns a running node that is not one of those.
func (c *testCluster) other(ids ...string) *Node {
	c.Helper()
next:
	for _, id := range c.peers {
		for _, not := range ids {
			if id == not {
				continue next
			}
		}
		if c.machines[id].Node != nil {
			return c.machines[id].Node
		}
	}
	require.FailNow(c, "no node is left")
	return nil
}

// ctx bounds a test's waits; it is far longer than any should take.
func (c *testCluster) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	c.Cleanup(cancel)
	return ctx
}

// create makes a topic, kept and known on every node.
func (c *testCluster) create(name string, partitions int) Topic {
	c.Helper()
	t, err := c.other().CreateTopic(c.ctx(), TopicConfig{Name: name, Partitions: partitions, Replicas: len(c.peers)})
	require.NoError(c, err)
	for _, id := range c.peers { // Append waits neither for metadata nor for a leader
		known, err := c.node(id).Topic(c.ctx(), name)
		require.NoError(c, err)
		require.Equal(c, t, known)
		require.NoError(c, c.node(id).awaitLeaders(c.ctx(), t))
	}
	for _, id := range c.peers { // a node cannot tell at first whether its disk is new, and does not vote until it has caught up
		for _, p := range c.node(id).all() {
			require.Eventually(c, func() bool {
				rep, _, _ := p.state()
				return rep != nil && !rep.Status().Unsure
			}, 20*time.Second, time.Millisecond, "%v on node %s", p.tp, id)
		}
	}
	return t
}

// leader asks n who leads, and waits until somebody does.
func (c *testCluster) leader(n *Node, tp record.TopicPartition) string {
	c.Helper()
	ctx := c.ctx()
	p, err := n.find(ctx, tp)
	require.NoError(c, err)
	a, err := n.ask(ctx, p, "leader", request{Op: opReady})
	require.NoError(c, err)
	return a.Leader
}

// writer is an idempotent producer of one partition, one batch at a time.
type writer struct {
	*testCluster
	tp       record.TopicPartition
	id       record.ProducerID
	epoch    record.ProducerEpoch
	sequence record.Sequence
}

func (c *testCluster) writer(n *Node, tp record.TopicPartition) *writer {
	c.Helper()
	id, epoch, err := n.NewProducer(c.ctx(), "")
	require.NoError(c, err)
	return &writer{testCluster: c, tp: tp, id: id, epoch: epoch}
}

func (w *writer) batch(value string) record.Batch {
	w.Helper()
	var b record.Builder
	require.NoError(w, b.Append(&record.Record{Value: []byte(value)}))
	batch, err := b.Build(record.BatchOptions{Producer: &record.ProducerStamp{ID: w.id, Epoch: w.epoch, Sequence: w.sequence}})
	require.NoError(w, err)
	return batch
}

// send appends through n until it is certain that the record is written.
func (w *writer) send(n *Node, value string) record.Offset {
	w.Helper()
	ctx := w.ctx()
	for {
		a, err := appendOnce(ctx, n, w.tp, w.batch(value), record.AckQuorum)
		if err == nil {
			w.sequence = w.sequence.Add(1)
			return a.BaseOffset
		}
		require.True(w, retriable(err), "%v", err)
		require.NoError(w, ctx.Err(), "%v", err)
		w.leader(n, w.tp) // waits for one
	}
}

func appendOnce(ctx context.Context, n *Node, tp record.TopicPartition, b record.Batch, acks record.Acks) (record.Appended, error) {
	type result struct {
		a   record.Appended
		err error
	}
	ch := make(chan result, 2)
	n.Append(ctx, record.TopicID{}, tp, b, acks, func(a record.Appended, err error) { ch <- result{a, err} })
	r := <-ch
	return r.a, r.err
}

// read returns the values from an offset on, once there are count of them.
func (c *testCluster) read(n *Node, tp record.TopicPartition, from record.Offset, count int) []string {
	c.Helper()
	values, err := readValues(c.ctx(), n, tp, from, count)
	require.NoError(c, err)
	return values
}

func readValues(ctx context.Context, n *Node, tp record.TopicPartition, from record.Offset, count int) (values []string, err error) {
	for len(values) < count {
		f, err := n.Fetch(ctx, tp, from, 0, record.ReadCommitted)
		if err != nil {
			return values, err
		}
		if len(f.Batches) == 0 {
			return values, errors.New("a fetch came back with nothing")
		}
		for _, b := range f.Batches {
			var it record.Iterator
			if err := it.Reset(b); err != nil {
				return values, err
			}
			for r := (record.Record{}); it.Next(&r); {
				if r.Offset < from {
					continue
				}
				if r.Offset != from {
					return values, fmt.Errorf("read offset %d, want %d", r.Offset, from)
				}
				values = append(values, string(r.Value))
				from++
			}
			if err := it.Err(); err != nil {
				return values, err
			}
		}
	}
	return values, nil
}

func part(topic string, partition int32) record.TopicPartition {
	return record.TopicPartition{Topic: topic, Partition: partition}
}
