package quorumlog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/quorumlog/quorumlog/cluster"
	"github.com/quorumlog/quorumlog/consumer"
	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/txn/coordinator"
)

var _ consumer.AtomicMover = mover{}

// mover makes the topics for records that groups move, and appends them.
type mover struct {
	cluster  *cluster.Node
	producer *producer.Producer
	defaults TopicConfig
	atomic   *clients
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

// Move appends the record and stores the group's offsets in one transaction.
func (m mover) Move(ctx context.Context, r record.Record, name string, req group.Request) (record.TopicPartition, record.Offset, error) {
	var res producer.Result
	lost := false
	err := m.atomic.do(ctx, func(tx *Tx) error {
		if err := tx.Pend(name, req); err != nil { // a member that has lost its partition writes nothing
			lost = errors.Is(err, record.ErrFenced)
			return err
		}
		return tx.SendAsync(r, func(to producer.Result, _ error) { res = to })
	})
	switch {
	case err == nil:
		return record.TopicPartition{Topic: res.Topic, Partition: res.Partition}, res.Offset, nil
	case lost, errors.Is(err, record.ErrOutcomeUnknown):
	case errors.Is(err, record.ErrFenced), errors.Is(err, coordinator.ErrEnded): // the transaction was, as when it took too long: another may do better
		err = fmt.Errorf("%w: %v", record.ErrUnreachable, err)
	}
	return record.TopicPartition{}, record.NoOffset, err
}

// Alone takes a transactional id for the group's dead letters.
func (m mover) Alone(ctx context.Context, group string) (send func(context.Context, ...Record) error, end func(), err error) {
	client, err := m.atomic.open("__dead-letters." + group)
	if err != nil {
		return nil, nil, err
	}
	end = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushOnClose)
		defer cancel()
		_ = client.Close(ctx) // what is open is aborted
	}
	if err := client.Do(ctx, func(*Tx) error { return nil }); err != nil { // takes the id
		end()
		return nil, nil, err
	}
	return func(ctx context.Context, records ...Record) error {
		return client.Do(ctx, func(tx *Tx) error { return sendAll(tx, records) })
	}, end, nil
}
