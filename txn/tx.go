package txn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/quorumlog/quorumlog/consumer"
	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/txn/coordinator"
)

// errOver is why a transaction takes nothing any more.
var errOver = fmt.Errorf("%w: the transaction has ended", record.ErrInvalid)

// Tx is a transaction that is open. Send and Consumed may be called at once.
type Tx struct {
	client *Client
	ctx    context.Context // of Begin
	who    coordinator.Response

	sent func(producer.Result, error) // for all records of Send

	over   atomic.Bool
	failed atomic.Pointer[error] // the first failure: it can only be aborted

	mu    sync.Mutex
	ended []func(committed bool) // who wants to know how it ends
}

func newTx(ctx context.Context, c *Client, who coordinator.Response) *Tx {
	tx := &Tx{client: c, ctx: ctx, who: who}
	tx.sent = func(_ producer.Result, err error) {
		if err != nil {
			tx.fail(err)
		}
	}
	return tx
}

// Send adds a record, to the partition its key says. It returns when the record is
// in the producer's buffer; a failure later on fails the transaction, and all calls
// from then on.
func (tx *Tx) Send(r record.Record) error {
	return tx.send(r, tx.sent)
}

// SendAsync is Send that tells where the record is: done is called, as that of
// producer.Producer.SendAsync, before Commit returns, unless SendAsync has failed
// at once.
func (tx *Tx) SendAsync(r record.Record, done func(producer.Result, error)) error {
	return tx.send(r, func(res producer.Result, err error) {
		tx.sent(res, err)
		done(res, err)
	})
}

func (tx *Tx) send(r record.Record, done func(producer.Result, error)) error {
	if err := tx.usable(); err != nil {
		return err
	}
	tx.client.producer.SendAsync(tx.ctx, r, done)
	return tx.failure()
}

// Consumed makes the offset behind b, a batch that g's Poll returned, part of the
// transaction. It returns when the group's coordinator knows. If the transaction is
// aborted, the next Poll returns the batch again; so call it first where the function
// may fail, since a batch it has not seen is not given back.
//
// *record.FencedError: the member has lost the partition; the transaction fails.
func (tx *Tx) Consumed(g *consumer.Group, b consumer.Batch) error {
	pend, err := tx.consuming(g, b)
	if err != nil {
		return err
	}
	return pend()
}

// consuming has b given back if the transaction is aborted, and returns what makes
// its offset part of the transaction.
func (tx *Tx) consuming(g *consumer.Group, b consumer.Batch) (pend func() error, err error) {
	if err := tx.usable(); err != nil {
		return nil, err
	}
	req, ended, err := g.Transact(b)
	if err != nil {
		return nil, tx.notConsumed(g.Name(), err)
	}
	tx.mu.Lock()
	tx.ended = append(tx.ended, ended)
	tx.mu.Unlock()
	return func() error { return tx.Pend(g.Name(), req) }, nil
}

// Pend makes the offsets of req, an OpPend of a group's member, part of the
// transaction: Consumed for who has made the request. Its errors are those of
// Consumed.
func (tx *Tx) Pend(name string, req group.Request) error {
	if err := tx.usable(); err != nil {
		return err
	}
	req.Producer, req.Epoch = tx.who.Producer, tx.who.Epoch
	ctx, cancel := tx.client.bound(tx.ctx)
	defer cancel()
	err := tx.client.members.add(ctx, nil, name)
	if err == nil {
		_, err = tx.client.cluster.Group(ctx, name, req)
	}
	if err != nil {
		return tx.notConsumed(name, err)
	}
	return nil
}

func (tx *Tx) notConsumed(name string, err error) error {
	err = fmt.Errorf("consumed offsets of group %q: %w", name, err)
	tx.fail(err)
	return err
}

// usable returns why the transaction takes nothing any more, or nil.
func (tx *Tx) usable() error {
	if tx.over.Load() {
		return errOver
	}
	return tx.failure()
}

// fail keeps the first failure.
func (tx *Tx) fail(err error) { tx.failed.CompareAndSwap(nil, &err) }

func (tx *Tx) failure() error {
	if err := tx.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// close takes the right to end the transaction.
func (tx *Tx) close() error {
	if !tx.over.CompareAndSwap(false, true) {
		return errOver
	}
	return nil
}

// Commit waits for every record and makes the transaction count. nil: committed.
// *AbortedError: a record or offset failed, or the transaction was ended from
// outside, and it is aborted. *record.OutcomeUnknownError: ctx ended while the
// verdict was on its way; the client goes on to end it.
func (tx *Tx) Commit(ctx context.Context) error {
	if err := tx.close(); err != nil {
		return err
	}
	err := tx.client.producer.End(ctx)
	if failed := tx.failure(); failed != nil {
		err = failed
	}
	if err != nil {
		return tx.settle(ctx, false, err)
	}
	return tx.settle(ctx, true, nil)
}

// Abort ends the transaction without effect. nil: aborted. When ctx ends before
// that is certain its error is returned, and the client or the coordinator aborts.
func (tx *Tx) Abort(ctx context.Context) error {
	err := tx.abort(ctx, errors.New("by its owner"))
	if errors.Is(err, ErrAborted) {
		return nil
	}
	return err
}

// abort is Abort that tells why.
func (tx *Tx) abort(ctx context.Context, why error) error {
	if err := tx.close(); err != nil {
		return err
	}
	return tx.settle(ctx, false, why)
}

// settle has the coordinator end the transaction. When the caller stops waiting it
// goes on, and the next transaction waits for it.
func (tx *Tx) settle(ctx context.Context, commit bool, why error) error {
	c := tx.client
	done := make(chan error, 1)
	started := c.spawn(func() {
		ctx, cancel := context.WithTimeout(c.life, settleTimeout)
		defer cancel()
		err := tx.end(ctx, commit, why)
		<-c.turn
		done <- err
	})
	if !started { // the coordinator aborts it
		<-c.turn
		return &AbortedError{ID: c.id, Err: record.ErrClosed}
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done: // a result beats the end of ctx
		return err
	default:
	}
	if !commit { // it cannot be committed any more
		return &AbortedError{ID: c.id, Err: why}
	}
	return &record.OutcomeUnknownError{Err: fmt.Errorf("commit of a transaction of %q: %w", c.id, ctx.Err())}
}

// end ends the transaction and tells who wants to know.
func (tx *Tx) end(ctx context.Context, commit bool, why error) error {
	c := tx.client
	if !commit {
		if err := c.producer.Discard(ctx, why); err != nil {
			c.logger.Warn("records of an aborted transaction are still on their way", "id", c.id, "err", err)
		}
	}
	if !c.members.any() {
		tx.tell(commit) // no coordinator has heard of it
		if commit {
			return nil
		}
		return &AbortedError{ID: c.id, Err: why}
	}
	who, err := c.ask(ctx, coordinator.Request{Op: coordinator.OpEnd, Producer: tx.who.Producer, Epoch: tx.who.Epoch, Commit: commit})
	var ended *coordinator.EndedError
	switch {
	case err == nil:
		c.who = &who
		tx.tell(commit)
		if commit {
			return nil
		}
		return &AbortedError{ID: c.id, Err: why}
	case errors.As(err, &ended):
		c.who = nil
		committed := ended.Outcome == coordinator.CompleteCommit
		tx.tell(committed)
		switch {
		case committed && commit:
			return nil
		case commit:
			why = err
		}
		return &AbortedError{ID: c.id, Err: why}
	}
	c.who = nil
	if commit {
		c.unresolved = tx
		return &record.OutcomeUnknownError{Err: fmt.Errorf("commit of a transaction of %q: %w", c.id, err)}
	}
	tx.tell(false) // whoever is next, and the timeout, abort it
	return &AbortedError{ID: c.id, Err: errors.Join(why, err)}
}

// tell says how the transaction has ended.
func (tx *Tx) tell(committed bool) {
	tx.mu.Lock()
	ended := tx.ended
	tx.ended = nil
	tx.mu.Unlock()
	for _, fn := range ended {
		fn(committed)
	}
}
