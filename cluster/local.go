package cluster

import (
	"context"

	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/replica"
)

// local is a partition as this node's own replica shows it; a fold.Partition.
type local struct {
	rep  *replica.Replica
	tp   record.TopicPartition
	node string // this one
}

// Fetch waits until there is something to read.
func (l local) Fetch(ctx context.Context, from record.Offset, maxBytes int) (record.Fetched, error) {
	for {
		f, err := l.rep.Read(from, maxBytes, record.ReadUncommitted)
		if err != nil || len(f.Batches) > 0 {
			return f, err
		}
		if err := l.rep.Wait(ctx, from); err != nil {
			return record.Fetched{}, err
		}
	}
}

// Append waits until a quorum holds the batch.
func (l local) Append(ctx context.Context, b record.Batch, epoch record.LeaderEpoch) (record.Appended, error) {
	type result struct {
		a   record.Appended
		err error
	}
	ch := make(chan result, 1)
	l.rep.Append(ctx, b, replica.AppendOptions{Epoch: epoch}, func(a record.Appended, err error) { ch <- result{a, err} })
	r := <-ch // the replica ends the wait when ctx ends
	return r.a, r.err
}

// Barrier waits until what older epochs left is applied.
func (l local) Barrier(ctx context.Context) (record.LeaderEpoch, record.Offset, error) {
	return l.rep.Barrier(ctx)
}

// Trim moves the log start on all nodes.
func (l local) Trim(ctx context.Context, offset record.Offset) error {
	_, err := l.rep.TrimTo(ctx, offset)
	return err
}

// Leading returns the epoch this node leads in, as far as it knows.
func (l local) Leading() (record.LeaderEpoch, error) {
	node, epoch := l.rep.Leader()
	if node == l.node {
		return epoch, nil
	}
	return 0, &record.NotLeaderError{TopicPartition: l.tp, Leader: node, Epoch: epoch}
}
