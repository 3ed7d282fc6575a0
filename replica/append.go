package replica

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
)

const (
	// maxInFlight is how many proposals Raft holds at once, maxBarriers how many
	// barriers. Together they are Raft's MaxAppendEntries, which is also the size
	// of its queue: handing one over never blocks, which it must not, as Raft's
	// main goroutine takes r.mu.
	maxInFlight = 128
	maxBarriers = 32
	// maxQueueBytes bounds the batches that wait for their turn.
	maxQueueBytes = 64 << 20
)

// AppendOptions say how an append is done. The zero value is the safe one.
type AppendOptions struct {
	Acks record.Acks
	// Epoch, if above 0, refuses the batch unless this replica leads in that
	// epoch at the moment the batch takes its place in the log.
	Epoch record.LeaderEpoch
}

// proposalID names a proposal among its replica's, in the extensions of Raft's entry.
type proposalID [8]byte

// proposal is a batch on its way into the log. Replica.mu guards it until done is called.
type proposal struct {
	id      proposalID
	data    []byte // a batch or a command; nil once placed
	size    int
	opt     AppendOptions
	done    func(record.Appended, error) // nil once called
	unwatch func() bool                  // stops the watch on the proposer's context; nil if it never ends
	by      *engine                      // whose word future is; nil while p waits for its turn
	future  raft.ApplyFuture
	verdict verdict
	placed  bool // in the log: from now on only commit or truncation decides
	gone    bool // given up before it was placed
	entry   uint64
	base    record.Offset
	epoch   record.LeaderEpoch
}

// Append appends a batch to the partition, if this replica leads it. It never
// blocks. The batch must have been built by record.Builder, belongs to the
// replica from now on, and is never changed once it has its offset. Batches get
// their offsets in the order of the calls. done is called exactly once, perhaps
// before Append returns, and must not block.
//
// ctx bounds the wait for an answer only; when it ends before the batch was
// placed, the batch is not written and done gets the ctx's error. Other errors:
// *record.NotLeaderError, record.ErrOverloaded, record.ErrClosed,
// *record.TooLargeError, *record.BatchError, *record.NotEnoughReplicasError (look
// at Appended), *record.FencedError,
// *record.OutOfOrderError, *record.TransactionError, record.ErrDuplicate and those of the disk mean that
// nothing was written; *record.OutcomeUnknownError means nobody knows.
func (r *Replica) Append(ctx context.Context, b record.Batch, opt AppendOptions, done func(record.Appended, error)) {
	if err := r.admit(ctx, b, opt); err != nil {
		done(record.Appended{}, err)
		return
	}
	b.Stamp(0, record.NoLeaderEpoch) // not placed yet
	r.submit(ctx, &proposal{data: b, opt: opt}, done)
}

// submit proposes p and sees to it that done is called once.
func (r *Replica) submit(ctx context.Context, p *proposal, done func(record.Appended, error)) {
	p.size, p.done = len(p.data), done
	if ctx.Done() != nil {
		r.mu.Lock() // ctx may have ended: abandon must find what is set here
		p.unwatch = context.AfterFunc(ctx, func() { r.abandon(p, ctx.Err()) })
		r.mu.Unlock()
	}
	if err := r.propose(p); err != nil {
		r.finish(p, record.Appended{}, err)
	} else if p.opt.Acks == record.AckNone {
		r.finish(p, record.Appended{BaseOffset: record.NoOffset}, nil)
	}
}

// admit refuses early what would be refused later, so that the log holds few no-ops.
func (r *Replica) admit(ctx context.Context, b record.Batch, opt AppendOptions) error {
	if len(b) > MaxBatchBytes {
		return &record.TooLargeError{What: "batch", Size: len(b), Limit: MaxBatchBytes}
	}
	if err := b.Check(); err != nil {
		return err
	}
	if b.IsControl() {
		return fmt.Errorf("%v: %w: control batches are the replicas' own", r.cfg.TopicPartition, record.ErrInvalid)
	}
	// Only compaction may leave gaps between offsets, and an empty batch none.
	if n := int64(b.NextOffset() - b.BaseOffset()); b.Count() == 0 || int64(b.Count()) != n {
		return fmt.Errorf("%v: %w: the batch holds %d records in %d offsets", r.cfg.TopicPartition, record.ErrInvalid, b.Count(), n)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if node, epoch := r.Leader(); node != r.cfg.Node || opt.Epoch > 0 && opt.Epoch != epoch {
		return r.notLeader()
	}
	if opt.Acks == record.AckAll {
		return r.enough()
	}
	return nil
}

// propose gives p its turn: at once if Raft has room, else when it has.
func (r *Replica) propose(p *proposal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case p.gone: // ctx has ended meanwhile
		return nil
	case r.failed != nil:
		return r.failed
	case r.closed:
		return record.ErrClosed
	case r.queueBytes+p.size > maxQueueBytes && r.queueBytes > 0:
		return fmt.Errorf("%v: %w: %d bytes wait", r.cfg.TopicPartition, record.ErrOverloaded, r.queueBytes)
	}
	r.nextProposal++
	binary.BigEndian.PutUint64(p.id[:], r.nextProposal)
	r.proposals[p.id] = p
	r.queue = append(r.queue, p)
	r.queueBytes += p.size
	if n := r.nap.Load(); n != nil && len(r.queue) == 1 {
		r.wg.Go(func() { r.wake(n, wakeServe) }) // Close waits; it has not begun, since closed is not set
	}
	r.handOver()
	return nil
}

// handOver gives Raft as many waiting proposals as it has room for. r.mu is held.
func (r *Replica) handOver() {
	for len(r.queue) > 0 && r.inFlight < maxInFlight && !r.frozen {
		p := r.queue[0]
		r.queue[0] = nil
		r.queue = r.queue[1:]
		if p.gone {
			r.forget(p)
			continue
		}
		r.inFlight++
		p.by = r.raft()
		p.future = p.by.ApplyLog(raft.Log{Data: p.data, Extensions: p.id[:]}, 0)
		r.handed <- p // has room for maxInFlight
	}
}

// takeProposal returns the proposal that Extensions name, if it was made here.
// r.mu is held.
func (r *Replica) takeProposal(ext []byte) *proposal {
	if len(ext) != len(proposalID{}) {
		return nil
	}
	return r.proposals[proposalID(ext)]
}

// decide places p at offset end of the log in epoch, or refuses it. r.mu is held.
func (r *Replica) decide(p *proposal, epoch record.LeaderEpoch, end record.Offset) {
	switch {
	case p.gone:
		p.verdict = verdict{err: record.ErrClosed} // nobody waits for it
	case p.opt.Epoch > 0 && p.opt.Epoch != epoch:
		p.verdict = verdict{err: &record.NotLeaderError{TopicPartition: r.cfg.TopicPartition, Leader: r.cfg.Node, Epoch: epoch}}
	case !isCommand(p.data):
		if p.verdict = r.judge(p.data, epoch); p.verdict.err != nil {
			r.place(p.verdict.err)
		}
	}
	p.placed = true
	p.epoch = epoch
	p.base = end
	if p.verdict.duplicate {
		p.base = p.verdict.offset
	} else if p.verdict.accepted() && !isCommand(p.data) {
		record.Batch(p.data).Stamp(end, epoch)
	}
	p.data = nil
}

// place adds to an error of a verdict which partition it is about.
func (r *Replica) place(err error) {
	var order *record.OutOfOrderError
	if errors.As(err, &order) {
		order.TopicPartition = r.cfg.TopicPartition
	}
	var transaction *record.TransactionError
	if errors.As(err, &transaction) {
		transaction.TopicPartition = r.cfg.TopicPartition
	}
}

// unstage forgets what was staged at or above offset end. lost says that nobody
// knows what is on disk now: it may be in the log when that is opened again.
func (r *Replica) unstage(end record.Offset, proposals []*proposal, lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.producers.cut(max(end, r.folded))
	r.transactions.cut(max(end, r.folded))
	for _, p := range proposals {
		if p.placed = lost && p.verdict.accepted(); !p.placed {
			p.verdict = verdict{}
		}
	}
}

// stored answers those who asked for no more than the leader's own log.
func (r *Replica) stored(proposals []*proposal) {
	for _, p := range proposals {
		if p.opt.Acks == record.AckLeader && !p.verdict.duplicate {
			r.finish(p, r.appended(p), p.verdict.err)
		}
	}
}

func (r *Replica) appended(p *proposal) record.Appended {
	if p.opt.Acks == record.AckNone {
		return record.Appended{BaseOffset: record.NoOffset}
	}
	return record.Appended{
		BaseOffset: p.base, LeaderEpoch: p.epoch, Duplicate: p.verdict.duplicate,
		Synced: r.cfg.Flush == log.FlushEach, // on the other replicas too: the policy is the topic's
	}
}

// settle waits for Raft's word on each proposal, in the order of the log. It is
// the replica's own goroutine and ends when handed is closed.
func (r *Replica) settle() {
	answers := new(answers)
	for p := range r.handed {
		if answers.ended != p.by.ended { // Raft was started again
			answers = p.by.answers()
		}
		err := answers.wait(p.future)
		r.mu.Lock()
		r.inFlight--
		r.forget(p)
		if !r.closed && r.failed == nil {
			r.handOver()
		}
		p.gone = p.gone || !p.placed
		placed, v, appended, failed := p.placed, p.verdict, r.appended(p), r.failed
		r.mu.Unlock()
		switch {
		case v.err != nil: // a no-op took its place, so it is not in the log whatever becomes of that
			err = v.err
		case err == nil: // committed; a duplicate too, since its no-op lies behind the original
			if p.opt.Acks == record.AckAll {
				r.holdForAll(p)
				continue
			}
		case placed:
			if failed != nil && errors.Is(err, raft.ErrRaftShutdown) {
				err = failed // Raft said so too, and ended at once: either may be heard
			}
			err = &record.OutcomeUnknownError{TopicPartition: r.cfg.TopicPartition, Err: err}
		default:
			err = r.notWritten(err)
		}
		r.finish(p, appended, err)
	}
}

// forget takes p off the books. r.mu is held.
func (r *Replica) forget(p *proposal) {
	delete(r.proposals, p.id)
	r.queueBytes -= p.size
}

// refuseQueue answers everybody whose turn has not come.
func (r *Replica) refuseQueue(err error) {
	r.mu.Lock()
	queue := r.queue
	r.queue = nil
	for _, p := range queue {
		r.forget(p)
	}
	r.mu.Unlock()
	for _, p := range queue {
		r.finish(p, record.Appended{}, err)
	}
}

// notWritten turns Raft's error about an entry that never reached the log into ours.
func (r *Replica) notWritten(err error) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return r.notLeader()
	case errors.Is(err, raft.ErrRaftShutdown):
		return cmp.Or(r.stopped(), record.ErrClosed)
	}
	return fmt.Errorf("%v: not written: %w", r.cfg.TopicPartition, err)
}

// abandon ends the wait for p. What is placed may still be committed.
func (r *Replica) abandon(p *proposal, why error) {
	r.mu.Lock()
	err := why
	if p.placed {
		err = &record.OutcomeUnknownError{TopicPartition: r.cfg.TopicPartition, Err: why}
	} else {
		p.gone = true
	}
	r.mu.Unlock()
	r.finish(p, record.Appended{}, err)
}

// finish tells the proposer, once. No lock is held while it does. An error
// voids a.
func (r *Replica) finish(p *proposal, a record.Appended, err error) {
	r.mu.Lock()
	done, unwatch := p.done, p.unwatch
	p.done = nil
	r.mu.Unlock()
	if done == nil {
		return
	}
	if unwatch != nil {
		unwatch()
	}
	if err != nil {
		a = record.Appended{}
	}
	done(a, err)
}
