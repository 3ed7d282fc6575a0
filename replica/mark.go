package replica

import (
	"context"

	"github.com/quorumlog/quorumlog/record"
)

// OpenTransaction lets a producer write a transaction to the partition from now
// on. Who calls it must be certain that the transaction will be ended here with
// Mark, whatever happens. It is forgotten when this replica stops leading before
// the first batch is in the log; then the producer is refused with
// *record.TransactionError until it is called at the next leader. It may be called
// again. *record.FencedError if the transaction has ended here already.
func (r *Replica) OpenTransaction(ctx context.Context, id record.ProducerID, epoch record.ProducerEpoch) error {
	release, err := r.stayAwake(ctx) // what wakes up leads in another epoch
	if err != nil {
		return err
	}
	defer release()
	node, term := r.Leader()
	if node != r.cfg.Node {
		return r.notLeader()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.transactions.get(id); epoch < s.epoch {
		return fenced(id, epoch, s.epoch)
	}
	r.transactions.permits[id] = permit{epoch, term}
	return nil
}

// Mark ends a transaction in the partition, and returns when the marker is on a
// quorum. It takes effect once, however often it is called, and none at all when a
// newer transaction of the producer is open. Only the leader takes markers; errors
// are those of Append. *record.FencedError: a newer coordinator has been here.
func (r *Replica) Mark(ctx context.Context, m record.Marker) error {
	b, err := m.Batch()
	if err != nil {
		return err
	}
	if node, _ := r.Leader(); node != r.cfg.Node {
		return r.notLeader()
	}
	done := make(chan error, 1)
	r.submit(ctx, &proposal{data: b}, func(_ record.Appended, err error) { done <- err })
	return <-done // submit ends the wait with ctx
}

// judge decides on a batch that is to be appended at offset end in epoch. r.mu is
// held.
func (r *Replica) judge(b record.Batch, epoch record.LeaderEpoch) verdict {
	if b.IsControl() {
		return r.transactions.checkMarker(b)
	}
	if v := r.transactions.check(b, epoch); !v.accepted() {
		return v
	}
	return r.producers.check(b)
}
