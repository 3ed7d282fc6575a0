package quorumlog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"sync"
	"time"

	"github.com/quorumlog/quorumlog/cluster"
	"github.com/quorumlog/quorumlog/consumer"
	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/replica"
	"github.com/quorumlog/quorumlog/transport"
	"github.com/quorumlog/quorumlog/txn"
)

// A node's producers can read back what they wrote.
var _ producer.Reader = (*cluster.Node)(nil)

// Node is one node: topics, partitions and all clients of them. Its methods may
// be called at once, from any goroutine. After Close they return ErrClosed.
type Node struct {
	cluster  *cluster.Node
	producer *producer.Producer // behind Produce
	atomic   clients            // behind ProduceAll
	home     *home
	endpoint transport.Endpoint
	mover    mover // of its groups

	closing sync.Once
	closed  error // of the first Close
}

// Open opens the node whose data is in dir, which is made if missing. It does
// not wait for other nodes; calls that need them do.
//
// Errors: ErrInvalid for a Config that makes no sense; a *LockedError that says
// who, when the directory is open already, in this process or another; a
// *DirError when it cannot be used.
func Open(dir string, cfg Config) (*Node, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	disk := vfs.NewOS()
	h, err := openHome(vfs.NewCapped(disk, vfs.DefaultLimit()), dir, cfg.ID, replica.OpenStable)
	if err != nil {
		return nil, errors.Join(err, disk.Close())
	}
	h.disk = disk
	return open(h, cfg)
}

// OpenMemory opens a node that keeps everything in memory and forgets it with
// Close: for tests and for what need not last. All else is as with Open; nodes
// in memory and on disk may be one cluster.
func OpenMemory(cfg Config) (*Node, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	h, err := openHome(vfs.NewMem(), "/", cfg.ID, func(string) (*replica.Stable, error) {
		return replica.NewMemoryStable(), nil
	})
	if err != nil {
		return nil, err
	}
	return open(h, cfg)
}

func open(h *home, cfg Config) (*Node, error) {
	endpoint, err := connect(cfg)
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	c, err := cluster.Open(context.Background(), cluster.Config{
		ID: cfg.ID, FS: h.fs, Dir: h.dir, Stable: h.stable, Endpoint: endpoint, Peers: cfg.peers(), Join: cfg.Join,
		AutoCreate: !cfg.NoAutoCreate, Defaults: cfg.Defaults,
		ElectionTimeout: cfg.ElectionTimeout, RetentionInterval: cfg.RetentionInterval, OffsetsRetention: cfg.OffsetsRetention,
		SleepAfter: cfg.SleepAfter, ProducerExpiry: cfg.ProducerExpiry, MaxProducers: cfg.MaxProducers, Flusher: h.flusher, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, errors.Join(err, endpoint.Close(), h.Close())
	}
	p, err := producer.New(c.Client(), producer.Config{Logger: cfg.Logger})
	if err != nil {
		return nil, errors.Join(err, c.Close(), endpoint.Close(), h.Close())
	}
	n := &Node{cluster: c, producer: p, home: h, endpoint: endpoint}
	n.mover = mover{c, p, cfg.Defaults, &n.atomic}
	n.atomic.node, n.atomic.open = cfg.ID, func(id string) (*txn.Client, error) { return n.Txn(id, TxnConfig{}) }
	return n, nil
}

// connect returns the node's place in its network.
func connect(cfg Config) (transport.Endpoint, error) {
	switch {
	case cfg.Listen != "":
		return transport.ListenTCP(cfg.tcp())
	case cfg.Network != nil:
		return cfg.Network.Join(cfg.ID)
	}
	return NewNetwork().Join(cfg.ID)
}

// flushOnClose bounds how long Close waits for records of Produce under way.
const flushOnClose = 5 * time.Second

// Close hands leadership to other nodes, writes what shortens the next start,
// and closes the directory. Close producers and groups before, so that they can
// say what became of their records; afterwards they only get ErrClosed. It
// takes a second or two at the most, and may be called again.
func (n *Node) Close() error {
	n.closing.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), flushOnClose)
		defer cancel()
		if err := n.producer.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			n.closed = err // who waited for an answer has been told
		}
		if err := n.atomic.close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			n.closed = errors.Join(n.closed, err)
		}
		n.closed = errors.Join(n.closed, n.cluster.Close(), n.endpoint.Close(), n.home.Close())
	})
	return n.closed
}

// ID returns the node's id.
func (n *Node) ID() string { return n.endpoint.ID() }

// Addr returns the address that the node listens on; nil without Config.Listen.
func (n *Node) Addr() net.Addr {
	if t, ok := n.endpoint.(*transport.TCP); ok {
		return t.Addr()
	}
	return nil
}

// CreateTopic makes a topic and waits, no longer than ctx, until each partition
// has a leader. Errors: *InvalidTopicError, ErrTopicExists.
func (n *Node) CreateTopic(ctx context.Context, cfg TopicConfig) error {
	_, err := n.cluster.CreateTopic(ctx, cfg)
	return err
}

// AddPartitions makes a topic have total partitions, and waits, no longer than ctx,
// until each has a leader. It may be called again with the same total. What is in the
// topic stays where it is. Open producers, reads and groups take the new partitions in
// within about a second; reads and groups from their first record on, wherever else
// they began.
//
// With another number of partitions most keys have another partition, which ends the
// order between the records of a key from before and from after. So a topic whose
// newest records have keys is refused, with *RefusedError, unless MoveKeys is given.
// Other errors: *InvalidTopicError when the topic has more partitions already,
// *UnknownTopicError.
func (n *Node) AddPartitions(ctx context.Context, topic string, total int, opts ...GrowOption) error {
	_, err := n.cluster.AddPartitions(ctx, topic, total, opts...)
	return err
}

// Produce writes one record and waits until it is on disk on a majority of the
// partition's replicas. It is idempotent: retries inside never write twice. The
// partition follows from the key; r.Topic is not used.
//
// When ctx ends first, a *OutcomeUnknownError says that the record may still be
// written. Concurrent calls share batches; a single goroutine that wants
// throughput uses Producer and SendAsync.
func (n *Node) Produce(ctx context.Context, topic string, r Record, opts ...SendOption) (Result, error) {
	r.Topic = topic
	return n.producer.Send(ctx, r, opts...)
}

// Producer returns a producer of its own. Close it before the node.
func (n *Node) Producer(cfg ProducerConfig) (*producer.Producer, error) {
	return producer.New(n.cluster.Client(), cfg)
}

// Read returns the records of a topic as a sequence, from the start and waiting
// for new ones unless the options say otherwise. It ends after the first error.
func (n *Node) Read(ctx context.Context, topic string, opts ...ReadOption) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		consumer.Read(ctx, n.cluster.Client(), topic, opts...)(yield) // each loop is a read of its own
	}
}

// Group joins a consumer group as a new member. Close it before the node.
func (n *Node) Group(ctx context.Context, name string, topics []string, cfg GroupConfig) (*consumer.Group, error) {
	if cfg.Mover == nil {
		cfg.Mover = n.mover
	}
	c := n.cluster.Client()
	return consumer.Join(ctx, c, c, name, topics, cfg)
}

// DeadLetters returns what a group has given up on: to list, to send back to the
// group, or to drop.
func (n *Node) DeadLetters(group string) *consumer.DeadLetters {
	return consumer.NewDeadLetters(n.cluster.Client(), n.mover, group)
}

// Lags returns how far a group is behind in each partition, in records and in
// time, also when it has no members.
func (n *Node) Lags(ctx context.Context, group string) ([]Lag, error) {
	return consumer.Lags(ctx, n.cluster, n.cluster, group)
}

// ResetGroup moves a group's committed offsets in the topics, or in all it has
// committed when none is named. *ActiveError while the group has members.
func (n *Node) ResetGroup(ctx context.Context, group string, topics []string, to ResetTo) ([]OffsetMove, error) {
	return consumer.Reset(ctx, n.cluster, n.cluster, group, topics, to)
}

// PlanReset returns what ResetGroup would do, and does nothing.
func (n *Node) PlanReset(ctx context.Context, group string, topics []string, to ResetTo) ([]OffsetMove, error) {
	return consumer.PlanReset(ctx, n.cluster, n.cluster, group, topics, to)
}

// Txn returns a client for transactions under a transactional id, which it takes with
// its first one: whoever had it before is fenced. Close it before the node.
func (n *Node) Txn(id string, cfg TxnConfig) (*Txn, error) {
	return txn.New(n.cluster.Client(), id, cfg)
}

// HalfProducer returns an instance of a producer group, whose records are stored unseen
// until a local transaction has decided about them. check answers for any record of the
// group, whichever instance has sent it. Close it before the node.
func (n *Node) HalfProducer(group string, check func(context.Context, Half) Decision, cfg HalfConfig) (*HalfProducer, error) {
	return txn.NewHalfProducer(n.cluster, group, check, cfg)
}

// OpenTransactions returns the transactions that are open in a topic, by partition,
// the oldest first: in each partition the first one holds readers back.
func (n *Node) OpenTransactions(ctx context.Context, topic string) ([]OpenTransaction, error) {
	return n.cluster.OpenTransactions(ctx, topic)
}

// AbortTransaction aborts a transaction that OpenTransactions has named, and returns
// when no partition waits for it any more. *EndedError: it has ended otherwise.
func (n *Node) AbortTransaction(ctx context.Context, topic string, o OpenTransaction) error {
	return n.cluster.AbortTransaction(ctx, topic, o)
}

// Retain removes at once what a topic need not keep, as happens in the background
// anyway, and returns what it was. A partition that failed is left out and named
// in the error.
func (n *Node) Retain(ctx context.Context, topic string) ([]PartitionPlan, error) {
	return n.cluster.Retain(ctx, topic)
}

// PlanRetention returns what Retain would remove, and why, and removes nothing.
func (n *Node) PlanRetention(ctx context.Context, topic string) ([]PartitionPlan, error) {
	return n.cluster.PlanRetention(ctx, topic)
}

// Status returns the state of a topic's partitions, as their leaders see it.
func (n *Node) Status(ctx context.Context, topic string) (TopicStatus, error) {
	return n.cluster.Status(ctx, topic)
}

// Watch yields the state of each partition on this node as its own replica sees
// it, and again whenever leader, epoch, log start, in-sync replicas (where it leads)
// or health change:
//
//	for s, err := range node.Watch(ctx) {
//		if err != nil {
//			return err // ctx has ended, or the node is closed
//		}
//		logger.Info("partition", "name", s.TopicPartition, "leader", s.Leader, "error", s.Err)
//	}
//
// Who takes long gets the newest state of each partition next, and holds up nobody.
func (n *Node) Watch(ctx context.Context) iter.Seq2[ReplicaStatus, error] {
	return n.cluster.Watch(ctx)
}

// WaitReady waits until every partition of the topics has a leader, or ctx ends.
func (n *Node) WaitReady(ctx context.Context, topics ...string) error {
	for _, topic := range topics {
		if err := n.cluster.WaitReady(ctx, topic); err != nil {
			return fmt.Errorf("topic %q is not ready: %w", topic, err)
		}
	}
	return nil
}
