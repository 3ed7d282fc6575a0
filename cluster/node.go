package cluster

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlog/quorumlog/internal/fold"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/replica"
	"github.com/quorumlog/quorumlog/transport"
)

// Services of the endpoint.
const (
	serviceRaft transport.Service = 1 + iota
	serviceProduce
	serviceFetch
	serviceControl
)

// MetadataTopic is the topic of one partition, on every node, that everything
// else is found through.
const MetadataTopic = "__cluster_metadata"

// metadataID is the same in every cluster: it must be known before anything is.
var metadataID = record.TopicID([]byte("quorumlog.meta.1"))

// Node is one member of a cluster. Its methods may be called at once. It owns
// the replicas placed on it, one goroutine that opens and closes them, one that
// has them forget what need not be kept, one that steers moves while this node
// leads the metadata partition, one that catches up and, with Config.Join, one that
// joins while it starts, and one for each request of another node that has to wait;
// Close waits for all of them.
type Node struct {
	cfg           Config
	tryTimeout    time.Duration // of one try of a control request
	appendTimeout time.Duration // of a batch on its way to another node
	mux           *replica.Mux

	life    context.Context // ends when Close begins
	end     context.CancelFunc
	closing sync.Once
	closed  error // of Close

	mu      sync.Mutex // guards ended, and wg against Add beside Wait
	ended   bool
	wg      sync.WaitGroup
	tabling sync.RWMutex // guards table
	table   table

	meta        *partition
	metaReplica atomic.Pointer[replica.Replica] // the last one that was opened
	fold        *fold.Fold
	metadata    *metadata // under fold.View

	placed    chan struct{} // capacity 1: there may be replicas to open or to close
	decided   chan struct{} // capacity 1: there may be something to steer
	memory    atomic.Int64  // up to this offset of the metadata partitions may have been here before; -1 unknown
	current   atomic.Bool   // all that was decided before this node started is folded
	obstacles obstacles     // of the moves that this node steers
	ids       producerIDs
}

// Open starts the node. It does not wait for other nodes: calls that need them do.
func Open(ctx context.Context, cfg Config) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	n := &Node{
		cfg:           cfg,
		tryTimeout:    max(time.Second, 2*cfg.ElectionTimeout),
		appendTimeout: max(2*time.Second, 4*cfg.ElectionTimeout),
		mux:           replica.NewMux(cfg.Endpoint, serviceRaft),
		table:         table{self: cfg.ID, byName: map[string][]*partition{}, byKey: map[partitionKey]*partition{}},
		metadata:      newMetadata(),
		placed:        make(chan struct{}, 1),
		decided:       make(chan struct{}, 1),
		ids:           producerIDs{turn: make(chan struct{}, 1)},
	}
	n.metadata.founders = cfg.Peers
	n.memory.Store(-1)
	n.life, n.end = context.WithCancel(context.Background())
	n.meta = n.table.add(record.TopicPartition{Topic: MetadataTopic}, metadataID, cfg.Peers)
	rep, err := n.openReplica(ctx, n.meta, TopicConfig{})
	if err != nil {
		n.end()
		return nil, errors.Join(err, n.mux.Close())
	}
	if end := rep.Status().EndOffset; end > 0 {
		n.memory.Store(int64(end)) // this disk was there before, and has what was placed here until then
	}
	n.meta.opened(rep, nil, nil)
	n.metaReplica.Store(rep)
	n.fold = fold.Start(fold.Config{Partition: reopened{n}, Apply: n.apply, Logger: cfg.Logger})
	n.spawn(n.reconcile)
	n.spawn(n.retain)
	n.spawn(n.steer)
	n.spawn(n.catchUp)
	if cfg.Join {
		n.spawn(n.join)
	}
	cfg.Endpoint.Handle(serviceProduce, n.handleProduce)
	cfg.Endpoint.Handle(serviceFetch, n.handleFetch)
	cfg.Endpoint.Handle(serviceControl, n.handleControl)
	return n, nil
}

// apply folds one record of the metadata partition.
func (n *Node) apply(r record.Record) error {
	news, err := n.metadata.fold(r)
	if err != nil {
		return err
	}
	switch {
	case news.made != nil:
		n.addTopic(*news.made, r.Offset)
		nudge(n.placed)
	case news.grown != nil:
		n.addTopic(*news.grown, r.Offset)
		nudge(n.placed)
	case news.deleted != nil:
		n.dropTopic(*news.deleted)
		nudge(n.placed)
	case news.placed != nil:
		if p := n.byKey(*news.placed); p != nil {
			p.assign(n.metadata.placed[p.key])
			nudge(n.placed)
		}
	case news.nodes:
		n.meta.assign(assignment{Replicas: n.metadata.members()})
	}
	nudge(n.decided)
	return nil
}

// nudge wakes the one goroutine that waits on ch, or lets its next wait pass.
func nudge(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// catchUp folds all that was decided before this node started. Only then can it
// tell which directories are left over.
func (n *Node) catchUp(life context.Context) {
	const what = "catch up with the metadata"
	a, err := n.ask(life, n.meta, what, request{Op: opSync})
	if err != nil {
		return
	}
	n.memory.CompareAndSwap(-1, int64(a.Upto)) // the disk is new; whether the cluster is, nobody can tell
	if n.learned(life, what, a.Upto) == nil {
		n.current.Store(true)
		nudge(n.placed)
	}
}

// spawn runs f in a goroutine that Close waits for; false if it is too late.
func (n *Node) spawn(f func(life context.Context)) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended {
		return false
	}
	n.wg.Go(func() { f(n.life) })
	return true
}

// Close hands leaderships over, closes every replica and ends every call with
// record.ErrClosed. Idempotent. The endpoint and the Stable stay open.
func (n *Node) Close() error {
	n.closing.Do(func() { n.closed = n.close() })
	return n.closed
}

func (n *Node) close() error {
	for _, svc := range []transport.Service{serviceProduce, serviceFetch, serviceControl} {
		n.cfg.Endpoint.Handle(svc, nil)
	}
	n.mu.Lock()
	n.ended = true
	n.mu.Unlock()
	n.end()
	n.wg.Wait()
	var closes errgroup.Group
	closes.SetLimit(64) // they wait for other nodes and for the disk
	for _, p := range append(n.all(), n.takeDropped()...) {
		closes.Go(func() error {
			if p == n.meta {
				n.fold.Close()
			}
			return p.close()
		})
	}
	return errors.Join(closes.Wait(), n.mux.Close())
}
