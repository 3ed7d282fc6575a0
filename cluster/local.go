package cluster

import (
	"context"
	"errors"

	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/replica"
)

// reopened is the metadata partition as this node's own replica shows it, or the
// next one: it is opened again when it has stopped because of damage, and what was
// folded stays. A fold.Partition.
type reopened struct{ n *Node }

func (r reopened) local() (*replica.Replica, local) {
	rep := r.n.metaReplica.Load()
	return rep, local{rep, r.n.meta.tp, r.n.cfg.ID}
}

// Fetch waits until there is something to read, for the next replica too.
func (r reopened) Fetch(ctx context.Context, from record.Offset, maxBytes int) (record.Fetched, error) {
	for {
		here, _ := r.n.meta.signals() // before looking
		rep, l := r.local()
		f, err := l.Fetch(ctx, from, maxBytes)
		if err == nil || ctx.Err() != nil || !errors.Is(rep.Status().Err, record.ErrCorrupt) {
			return f, err
		}
		if r.n.metaReplica.Load() != rep {
			continue
		}
		select {
		case <-here:
		case <-ctx.Done():
			return record.Fetched{}, ctx.Err()
		}
	}
}

// Append waits until a quorum holds the batch.
func (r reopened) Append(ctx context.Context, b record.Batch, epoch record.LeaderEpoch) (record.Appended, error) {
	rep, l := r.local()
	a, err := l.Append(ctx, b, epoch)
	return a, r.n.meta.elsewhere(rep, err)
}

// Barrier waits until what older epochs left is applied.
func (r reopened) Barrier(ctx context.Context) (record.LeaderEpoch, record.Offset, error) {
	rep, l := r.local()
	epoch, high, err := l.Barrier(ctx)
	return epoch, high, r.n.meta.elsewhere(rep, err)
}

// Leading returns the epoch this node leads in, as far as it knows.
func (r reopened) Leading() (record.LeaderEpoch, error) {
	_, l := r.local()
	return l.Leading()
}

// Trim moves the log start on all nodes.
func (r reopened) Trim(ctx context.Context, offset record.Offset) error {
	rep, l := r.local()
	return r.n.meta.elsewhere(rep, l.Trim(ctx, offset))
}

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
