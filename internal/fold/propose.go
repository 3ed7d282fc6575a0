package fold

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorumlog/quorumlog/record"
)

// Propose makes one decision. If this node leads, it waits until everything of
// older epochs is folded, runs decide, appends the records it returned as one
// batch, and returns when they are folded.
//
// decide runs under the state's lock and must not change what Apply folds. Its
// error refuses and comes back as it is; no records means there is nothing to
// write. epoch is the one this node leads in. When that is over before the records
// are written and this node leads in the next one, as after the sleep of a quiet
// partition, decide runs again.
//
// *[record.NotLeaderError], [record.ErrClosed] and an error of the fold that
// came before decide ran mean that nothing was written. After decide ran, the
// end of ctx or of the fold gives *[record.OutcomeUnknownError].
func (f *Fold) Propose(ctx context.Context, decide func(epoch record.LeaderEpoch) ([]record.Record, error)) error {
	release, err := f.take(ctx)
	if err != nil {
		return err
	}
	defer release()
	var end record.Offset
	for {
		if err := f.catchUp(ctx); err != nil {
			return err
		}
		epoch := f.epoch
		records, err := f.decide(decide)
		if err != nil || len(records) == 0 {
			return err
		}
		batch, err := build(records)
		if err != nil {
			return err
		}
		if end, err = f.append(ctx, batch); err == nil {
			break
		}
		if now, e := f.partition.Leading(); e != nil || now == epoch || !errors.Is(err, record.ErrNotLeader) {
			return err
		}
	}
	if err := f.Wait(ctx, end); err != nil {
		f.epoch = 0 // the next decision must wait for these records too
		return &record.OutcomeUnknownError{Err: fmt.Errorf("written, but not seen yet: %w", err)}
	}
	return nil
}

// Read runs fn under the read lock on a state that holds everything that was
// committed before Read was called, whichever node wrote it. It costs a round
// trip to a quorum. *[record.NotLeaderError] if this node does not lead.
func (f *Fold) Read(ctx context.Context, fn func()) error {
	ctx, cancel := f.bound(ctx)
	defer cancel()
	_, high, err := f.partition.Barrier(ctx)
	if err != nil {
		return f.orClosed(err)
	}
	if err := f.Wait(ctx, high); err != nil {
		return f.orClosed(err)
	}
	f.View(fn)
	return nil
}

// take waits for this caller's turn.
func (f *Fold) take(ctx context.Context) (release func(), err error) {
	if f.life.Err() != nil {
		return nil, record.ErrClosed
	}
	if ctx.Err() != nil { // a free turn must not win over it by chance
		return nil, ctx.Err()
	}
	select {
	case f.turn <- struct{}{}:
		return func() { <-f.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-f.life.Done():
		return nil, record.ErrClosed
	}
}

// catchUp makes sure that the state is complete in the epoch this node leads in.
func (f *Fold) catchUp(ctx context.Context) error {
	epoch, err := f.partition.Leading()
	if err != nil {
		f.epoch = 0
		return err
	}
	if epoch == f.epoch {
		return nil
	}
	f.epoch = 0
	ctx, cancel := f.bound(ctx)
	defer cancel()
	epoch, high, err := f.partition.Barrier(ctx)
	if err != nil {
		return f.orClosed(err)
	}
	if err := f.Wait(ctx, high); err != nil {
		return f.orClosed(err)
	}
	f.epoch = epoch
	return nil
}

// decide runs the caller's decision, unless folding has stopped.
func (f *Fold) decide(decide func(record.LeaderEpoch) ([]record.Record, error)) ([]record.Record, error) {
	f.state.Lock()
	defer f.state.Unlock()
	if f.err != nil {
		return nil, f.err
	}
	return decide(f.epoch)
}

func build(records []record.Record) (record.Batch, error) {
	var b record.Builder
	for i := range records {
		if err := b.Append(&records[i]); err != nil {
			return nil, err
		}
	}
	return b.Build(record.BatchOptions{})
}

// append appends a batch and returns the offset behind it. After an error the
// next Propose starts with a barrier.
func (f *Fold) append(ctx context.Context, b record.Batch) (end record.Offset, err error) {
	count := record.Offset(b.Count())
	ctx, cancel := f.bound(ctx)
	defer cancel()
	appended, err := f.partition.Append(ctx, b, f.epoch)
	if err == nil {
		return appended.BaseOffset + count, nil
	}
	f.epoch = 0
	if ctx.Err() != nil && !errors.Is(err, record.ErrOutcomeUnknown) && !errors.Is(err, record.ErrNotLeader) {
		err = &record.OutcomeUnknownError{Err: f.orClosed(err)}
	}
	return 0, err
}

// bound returns a context that ends with ctx or with the fold.
func (f *Fold) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(f.life, cancel)
	return ctx, func() { stop(); cancel() }
}

// orClosed gives the reason a bound context ended, if it was the fold's end.
func (f *Fold) orClosed(err error) error {
	if f.life.Err() != nil && errors.Is(err, context.Canceled) {
		return record.ErrClosed
	}
	return err
}
