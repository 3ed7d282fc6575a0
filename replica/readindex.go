package replica

import (
	"context"

	"github.com/quorumlog/quorumlog/record"
)

// ReadIndex returns the epoch this replica leads in and a high watermark that has
// passed all that was committed when it was called. Unlike Barrier it writes
// nothing: a quorum confirms by a heartbeat that it still follows (Raft thesis,
// 6.4). A leader that does not yet know all that older epochs committed falls back
// to Barrier. *record.NotLeaderError if it does not lead, or no longer. A partition
// that sleeps sleeps on if a quorum confirms it.
func (r *Replica) ReadIndex(ctx context.Context) (record.LeaderEpoch, record.Offset, error) {
	if n := r.nap.Load(); r.confirmed(ctx, n) {
		return n.epoch, record.Offset(r.high.Load()), nil
	}
	release, err := r.stayAwake(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer release()
	e := r.raft()
	term := e.CurrentTerm()
	if !r.leads() {
		return 0, 0, r.notLeader()
	}
	if !r.CaughtUp() {
		return r.Barrier(ctx)
	}
	committed := r.store.offsetBehind(e.CommitIndex()) // before the quorum is asked
	if err := r.verify(ctx, e); err != nil {
		return 0, 0, err
	}
	if !r.leads() || r.raft().CurrentTerm() != term {
		return 0, 0, r.notLeader()
	}
	if err := r.Wait(ctx, committed-1); err != nil { // applied, too
		return 0, 0, err
	}
	return record.LeaderEpoch(term), record.Offset(r.high.Load()), nil
}

// verify returns when a quorum has confirmed that it follows this leader. Raft
// answers at the latest when leadership is lost or it ends.
func (r *Replica) verify(ctx context.Context, e *engine) error {
	e.transport.urgent.Add(1) // heartbeats do not wait for other groups'
	done := make(chan error, 1)
	go func() {
		done <- e.answers().wait(e.VerifyLeader())
		e.transport.urgent.Add(-1)
	}()
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
