package quorumlog

import (
	"context"
	"errors"
	"slices"

	"github.com/quorumlog/quorumlog/cluster"
	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/record"
)

// mover makes the topics for records that groups move, and appends them.
type mover struct {
	cluster  *cluster.Node
	producer *producer.Producer
	defaults TopicConfig
}

// EnsureTopic makes a topic like those made on first use, which keeps everything.
func (m mover) EnsureTopic(ctx context.Context, name string, partitions int) error {
	if m.HasTopic(name) {
		return nil
	}
	cfg := m.defaults
	cfg.Name, cfg.Partitions = name, partitions
	cfg.RetentionAge, cfg.RetentionBytes = 0, 0
	_, err := m.cluster.CreateTopic(ctx, cfg)
	if errors.Is(err, record.ErrTopicExists) {
		return nil
	}
	return err
}

// HasTopic looks at what this node knows.
func (m mover) HasTopic(name string) bool {
	return slices.ContainsFunc(m.cluster.Topics(), func(t cluster.Topic) bool { return t.Name() == name })
}

// Send returns when a quorum holds the record.
func (m mover) Send(ctx context.Context, r record.Record) (record.TopicPartition, record.Offset, error) {
	res, err := m.producer.Send(ctx, r)
	return record.TopicPartition{Topic: res.Topic, Partition: res.Partition}, res.Offset, err
}
