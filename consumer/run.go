package consumer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// Handler deals with one record. nil means done.
type Handler func(ctx context.Context, r record.Record) error

// PanicError is a panic of a handler, turned into an error.
type PanicError struct {
	record.TopicPartition
	Offset record.Offset
	Value  any    // what was passed to panic
	Stack  []byte // as runtime/debug.Stack gives it
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("%v: handler panicked at offset %d: %v", e.TopicPartition, e.Offset, e.Value)
}

// Unwrap returns the value of the panic when it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Run calls handle for each record of the owned partitions, one at a time, and
// commits after each batch what was handled: every record is handled at least
// once, and more than once only after a crash or a lost session.
//
// It returns the first error of the handler, *[PanicError] when it panicked,
// the error of ctx when that ended, [record.ErrClosed] after Close, and what
// Poll returns otherwise. In each case the records handled so far are
// committed first, and the rest comes again with the next Run. When ctx has
// ended, that last commit is tried for at most the session timeout.
func (g *Group) Run(ctx context.Context, handle Handler) error {
	done, err := g.enter()
	if err != nil {
		return err
	}
	defer done()
	commitCtx, cancel := outlive(ctx, g.cfg.SessionTimeout)
	defer cancel()
	for {
		b, err := g.Poll(ctx)
		if err != nil {
			return err
		}
		n, err := g.handle(ctx, b, handle)
		if n < len(b.Records) {
			g.putBack(b, n)
			b.next = b.Records[n].Offset
		}
		if n > 0 {
			switch commitErr := g.Commit(commitCtx, b); {
			case errors.Is(commitErr, record.ErrFenced):
				g.logger.Warn("partition lost while its records were handled, they will be handled again",
					"partition", b.TopicPartition(), "records", n, "err", commitErr)
			case commitErr != nil:
				err = errors.Join(err, commitErr)
			}
		}
		if err != nil {
			return err
		}
	}
}

// handle calls the handler for the records of b until one fails, the partition
// is wanted back, or the run is to end. It returns how many were handled.
func (g *Group) handle(ctx context.Context, b Batch, handle Handler) (int, error) {
	for i := range b.Records {
		select {
		case <-ctx.Done():
			return i, ctx.Err()
		case <-g.closing:
			return i, nil // Poll says the rest
		default:
		}
		if !b.claim.wanted.Load() {
			return i, nil
		}
		if err := guard(ctx, &b.Records[i], handle); err != nil {
			return i, err
		}
	}
	return len(b.Records), nil
}

// guard turns a panic of the handler into an error.
func guard(ctx context.Context, r *record.Record, handle Handler) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{TopicPartition: r.TopicPartition(), Offset: r.Offset, Value: v, Stack: debug.Stack()}
		}
	}()
	return handle(ctx, *r)
}

// enter notes that a Run has begun, so that Close can wait for it.
func (g *Group) enter() (done func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running != nil {
		return nil, fmt.Errorf("group %q: %w: Run is running already", g.name, record.ErrInvalid)
	}
	ended := make(chan struct{})
	g.running = ended
	return func() {
		g.mu.Lock()
		g.running = nil
		g.mu.Unlock()
		close(ended)
	}, nil
}

// outlive returns a context that ends d after ctx has ended.
func outlive(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if pause(longer, d) == nil {
			cancel()
		}
	})
	return longer, func() {
		stop()
		cancel()
	}
}
