package consumer

import (
	"context"
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

// Run calls handle for the records of the owned partitions, with
// [Config.Workers] records at a time: those of a partition in order, or, with
// more than one worker, those of a key in a partition. [Config.Commit] says
// when what is finished is committed, and [Config.Retry] what becomes of a
// record whose handler returns an error or panics.
//
// Run returns when that policy says so, which without one is the first error of
// the handler (*[PanicError] when it panicked); with the error of ctx when that
// has ended; with [record.ErrClosed] after Close; and with the errors that
// waiting cannot mend: a topic that is gone, damaged data. In each case it waits
// for the handlers under way and commits what is finished; the rest comes again
// with the next Run, and with it, if there is more than one worker, what was
// finished behind it. When ctx has ended, that last commit is tried for at most
// the session timeout.
//
// A partition that is to move to another member does so between two records.
func (g *Group) Run(ctx context.Context, handle Handler) error {
	store, cancel := outlive(ctx, g.cfg.SessionTimeout)
	defer cancel()
	r := newRunner(ctx, store, g, handle)
	done, err := g.enter(r)
	if err != nil {
		return err
	}
	defer done()
	return r.run()
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

// enter notes that a Run has begun, so that Close can wait for it. As with Poll,
// the batch that Poll returned last counts as dealt with.
func (g *Group) enter(r *runner) (done func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.runner != nil {
		return nil, fmt.Errorf("group %q: %w: Run is running already", g.name, record.ErrInvalid)
	}
	g.runner = r
	g.out = nil
	signal(g.tidy)
	return func() {
		g.mu.Lock()
		g.runner, g.active = nil, time.Now()
		g.mu.Unlock()
		close(r.ended)
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
