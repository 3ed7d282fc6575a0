package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/record"
)

// AtomicMover is a [Mover] that has transactions, so that a move and the commit of
// the record's offset are one step. A Group whose mover is one moves by it, unless its
// offsets are not committed behind the handler ([OnReceipt], [ByHand]).
type AtomicMover interface {
	Mover
	// Move appends r as Send does, and has the group's coordinator take the offsets
	// of req (an OpPend that lacks the transaction's producer): both or neither. It
	// returns where r is.
	//
	// record.ErrOutcomeUnknown: nobody knows yet; until it is decided the group does
	// not answer OpCommitted. Any other error: neither, and record.ErrFenced means
	// that the member has lost the partition.
	Move(ctx context.Context, r record.Record, group string, req group.Request) (record.TopicPartition, record.Offset, error)
	// Alone makes the caller the one who redrives and drops a group's dead letters.
	// When it returns, whoever was before appends nothing any more, and all that one
	// has appended can be read. send appends records, all or none: record.ErrFenced
	// when another has become the one meanwhile. end frees what is held; ctx may have
	// ended.
	Alone(ctx context.Context, group string) (send func(ctx context.Context, records ...record.Record) error, end func(), err error)
}

// errBehind says that a record is not the first unfinished one of its partition,
// or that a seek has left it behind.
var errBehind = errors.New("records in front of it are not finished")

// atomicMover returns what moves and commits in one step, or nil.
func (g *Group) atomicMover() AtomicMover {
	if g.cfg.Commit == OnReceipt || g.cfg.Commit == ByHand {
		return nil
	}
	m, _ := g.cfg.Mover.(AtomicMover)
	return m
}

// moveAndCommit tries to move a record and to commit behind it, in one transaction.
// No seek passes it, and a commit meanwhile is of records in front. errBehind: nothing
// was tried, since the commit would lose those.
//
// A try that has begun goes on when ctx of Run has ended, as commits do: what became
// of it must be known before the record is handled again.
func (r *runner) moveAndCommit(c *claim, rec *record.Record, out record.Record) (record.TopicPartition, record.Offset, error) {
	g := r.g
	nowhere := record.TopicPartition{}
	if !r.atHead(c, rec) { // spares the others the wait
		return nowhere, record.NoOffset, errBehind
	}
	ctx, cancel := g.whileMember(r.store)
	defer cancel()
	ctx, end := context.WithTimeout(ctx, moveTimeout)
	defer end()
	select {
	case c.moving <- struct{}{}:
	case <-ctx.Done():
		return nowhere, record.NoOffset, ctx.Err()
	}
	defer func() { <-c.moving }()
	if !r.atHead(c, rec) {
		return nowhere, record.NoOffset, errBehind
	}
	next := rec.Offset + 1
	req := group.Request{
		Op: group.OpPend, Member: g.Member(), Offsets: []group.Offset{{TopicPartition: c.tp, Offset: next}},
	}
	if err := g.mayCommit(&req, func(tp record.TopicPartition) bool { return g.claims[tp] == c }); err != nil {
		return nowhere, record.NoOffset, err
	}
	tp, offset, err := r.atomic.Move(ctx, out, g.name, req)
	switch {
	case err == nil:
		g.mu.Lock()
		c.stored = max(c.stored, next)
		g.mu.Unlock()
	case errors.Is(err, record.ErrOutcomeUnknown):
		c.doubt.Store(int64(next))
	}
	return tp, offset, err
}

// wasMoved finds out what became of a move whose outcome was not known: the group's
// offset tells, and is not told before the transaction has ended.
func (r *runner) wasMoved(c *claim, rec *record.Record) (bool, error) {
	ctx, cancel := r.g.whileMember(r.store)
	defer cancel()
	ctx, end := context.WithTimeout(ctx, moveTimeout)
	defer end()
	committed, err := r.g.Committed(ctx, []record.TopicPartition{c.tp})
	if err != nil {
		return false, fmt.Errorf("whether offset %d of %v was moved is not known: %w", rec.Offset, rec.TopicPartition(), err)
	}
	c.doubt.Store(0)
	at, ok := committed[c.tp]
	moved := ok && at > rec.Offset
	if moved && r.g.keys != nil {
		r.g.keys.unread(c) // where the record is was not told
	}
	return moved, nil
}

// atHead reports whether rec is the first unfinished record of its window.
func (r *runner) atHead(c *claim, rec *record.Record) bool {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	r.g.recycle(c.win.settle())
	return c.win.head() == rec
}

// head returns the first record that is not finished, or nil.
func (w *window) head() *record.Record {
	if len(w.flight) == 0 {
		return nil
	}
	f := w.flight[0]
	if f.settled == len(f.batch.Records) {
		return nil
	}
	return &f.batch.Records[f.settled]
}

// stayBehind has the lane wait until its record is the first unfinished one.
func (w *window) stayBehind(l *lane) {
	l.state = laneBehind
	p := &l.pieces[0]
	w.behind[&p.in.batch.Records[p.from]] = l
}

// wakeHead readies the lane that waits until its record is the first unfinished
// one, if it is now.
func (r *runner) wakeHead(w *window) {
	if len(w.behind) == 0 {
		return
	}
	rec := w.head()
	if l := w.behind[rec]; l != nil {
		delete(w.behind, rec)
		r.resume(l)
	}
}
