package cluster

import (
	"context"
	"errors"

	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/record"
)

// Node is one member of a cluster. Its methods may be called at once.
type Node struct {
	cfg Config
}

var errTodo = errors.New("not built yet")

// Open starts the node. It does not wait for other nodes: calls that need them do.
func Open(ctx context.Context, cfg Config) (*Node, error) { return nil, errTodo }

// Close hands leaderships over and closes every replica. Idempotent.
func (n *Node) Close() error { return errTodo }

// CreateTopic makes a topic and waits, bounded by ctx, until each of its partitions has a leader.
func (n *Node) CreateTopic(ctx context.Context, cfg TopicConfig) (Topic, error) {
	return Topic{}, errTodo
}

// Topic returns a topic, or *record.UnknownTopicError.
func (n *Node) Topic(ctx context.Context, name string) (Topic, error) { return Topic{}, errTodo }

// Topics returns the topics this node knows of, sorted by name, without the internal ones.
func (n *Node) Topics() []Topic { return nil }

// Partitions returns how many partitions a topic has.
func (n *Node) Partitions(ctx context.Context, topic string) (int, error) { return 0, errTodo }

// Append hands a batch to the partition's leader.
func (n *Node) Append(ctx context.Context, tp record.TopicPartition, b record.Batch, acks record.Acks, done func(record.Appended, error)) {
	done(record.Appended{}, errTodo)
}

// Fetch returns whole batches from an offset on.
func (n *Node) Fetch(ctx context.Context, tp record.TopicPartition, from record.Offset, maxBytes int, iso record.Isolation) (record.Fetched, error) {
	return record.Fetched{}, errTodo
}

// Offsets returns the log start offset and the high watermark, as the leader knows them.
func (n *Node) Offsets(ctx context.Context, tp record.TopicPartition) (start, high record.Offset, err error) {
	return 0, 0, errTodo
}

// NewProducer returns the identity of an idempotent producer.
func (n *Node) NewProducer(ctx context.Context, name string) (record.ProducerID, record.ProducerEpoch, error) {
	return 0, 0, errTodo
}

// Group passes a request to the group's coordinator, wherever that is.
func (n *Node) Group(ctx context.Context, name string, req group.Request) (group.Response, error) {
	return group.Response{}, errTodo
}
