package replica

import (
	"context"

	"github.com/hashicorp/raft"

	"github.com/quorumlog/quorumlog/record"
)

// leads reports whether this replica leads, awake or asleep.
func (r *Replica) leads() bool {
	if n := r.resting(); n != nil {
		return n.leader == r.cfg.Node
	}
	return r.raft().State() == raft.Leader
}

// Leader returns the node that leads, "" if this replica knows of none, and the
// epoch as far as it knows.
func (r *Replica) Leader() (node string, epoch record.LeaderEpoch) {
	if n := r.resting(); n != nil {
		return n.leader, n.epoch
	}
	_, id := r.raft().LeaderWithID()
	return string(id), record.LeaderEpoch(r.raft().CurrentTerm())
}

// Changed returns a channel that is closed when leadership changes next, when the
// replica falls asleep or wakes up, or when it ends. Take it before looking at
// Leader.
func (r *Replica) Changed() <-chan struct{} { return r.changed.wait() }

func (r *Replica) notLeader() error {
	node, epoch := r.Leader()
	if node == r.cfg.Node { // not any more, or not in the epoch asked for
		node = ""
	}
	return &record.NotLeaderError{TopicPartition: r.cfg.TopicPartition, Leader: node, Epoch: epoch}
}

// Barrier waits until everything that older epochs left in the log is applied,
// and returns the epoch this replica leads in and the high watermark then.
// *record.NotLeaderError if it does not lead, or no longer. A partition that
// sleeps sleeps on if a quorum confirms it.
func (r *Replica) Barrier(ctx context.Context) (record.LeaderEpoch, record.Offset, error) {
	if n := r.nap.Load(); r.confirmed(ctx, n) {
		return n.epoch, record.Offset(r.high.Load()), nil
	}
	release, err := r.stayAwake(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer release()
	term := r.raft().CurrentTerm()
	if !r.leads() {
		return 0, 0, r.notLeader()
	}
	select {
	case r.barriers <- struct{}{}:
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
	barrier := r.raft().Barrier(0)
	err = r.await(ctx, barrier, func() { <-r.barriers })
	if err != nil {
		return 0, 0, err
	}
	if !r.leads() || r.raft().CurrentTerm() != term {
		return 0, 0, r.notLeader()
	}
	return record.LeaderEpoch(term), record.Offset(r.high.Load()), nil
}

// await waits for Raft's word, which comes when leadership is lost or Raft ends
// at the latest, or for ctx to end; after is called when Raft is done with it.
func (r *Replica) await(ctx context.Context, f raft.Future, after func()) error {
	e := r.raft()
	return r.awaitAll(ctx, func() error {
		defer after()
		return e.answers().wait(f)
	})
}

// awaitAll is await for more than one word of Raft's.
func (r *Replica) awaitAll(ctx context.Context, words func() error) error {
	done := make(chan error, 1)
	go func() { done <- words() }()
	select {
	case err := <-done:
		if err != nil {
			return r.notWritten(err)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
