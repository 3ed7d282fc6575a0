package fold

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
// partition, decide runs again. It never runs after Propose has returned.
//
// *[record.NotLeaderError], [record.ErrClosed] and an error of the fold that
// came before decide ran mean that nothing was written. After decide ran, the
// end of ctx or of the fold gives *[record.OutcomeUnknownError].
func (f *Fold) Propose(ctx context.Context, decide func(epoch record.LeaderEpoch) ([]record.Record, error)) error {
	return f.ProposeFor(ctx, "", decide)
}

// ProposeFor is Propose for a decision that neither looks at nor writes anything but
// what is key's, which is not "". It does not see what decisions about other keys are
// about to write: those that wait together are written together.
func (f *Fold) ProposeFor(ctx context.Context, key string, decide func(epoch record.LeaderEpoch) ([]record.Record, error)) error {
	if f.life.Err() != nil {
		return record.ErrClosed
	}
	if ctx.Err() != nil { // a free turn must not win over it by chance
		return ctx.Err()
	}
	p := &proposal{key: key, decide: decide, done: make(chan error, 1)}
	f.waiters.add(p)
	select {
	case f.turn <- struct{}{}:
	case err := <-p.done: // somebody took it along
		return err
	case <-ctx.Done():
		return f.leave(p, ctx.Err())
	case <-f.life.Done():
		return f.leave(p, record.ErrClosed)
	}
	switch all := f.waiters.with(p); {
	case len(all) == 0: // taken along, and through by now
		<-f.turn
		return <-p.done
	case len(all) == 1:
		f.write(ctx, all)
		<-f.turn
		return <-p.done
	default: // nobody's ctx may end the others' wait
		started := f.waiters.spawn(&f.wg, func() {
			f.write(f.life, all)
			<-f.turn
		})
		if !started {
			finish(all, record.ErrClosed)
			<-f.turn
		}
	}
	select {
	case err := <-p.done:
		return err
	case <-ctx.Done():
		return f.leave(p, ctx.Err())
	}
}

// leave ends the wait for p because of why.
func (f *Fold) leave(p *proposal, why error) error {
	f.waiters.remove(p)
	if !p.leave() { // and never will be, so that it is through with nothing is no result
		return why
	}
	select {
	case err := <-p.done: // a result beats the end of the wait
		if err != errLeft { // that is one which was to be made again
			return err
		}
	default:
	}
	return &record.OutcomeUnknownError{Err: why}
}

// write decides on all, which are of different keys, and writes what they come to.
// The turn is held.
func (f *Fold) write(ctx context.Context, all []*proposal) {
	for {
		if err := f.catchUp(ctx); err != nil {
			finish(all, err)
			return
		}
		epoch := f.epoch
		records, left := f.decide(all)
		if len(left) == 0 {
			return
		}
		all = left
		batch, err := build(records)
		if err == nil {
			err = f.append(ctx, batch)
		}
		if len(all) > 1 && errors.Is(err, record.ErrTooLarge) {
			for i := range all {
				f.write(ctx, all[i:i+1])
			}
			return
		}
		now, follows := f.partition.Leading()
		if err != nil && follows == nil && now != epoch && errors.Is(err, record.ErrNotLeader) {
			continue
		}
		finish(all, err)
		return
	}
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

// decide makes decisions, unless folding has stopped. It returns those that have
// something to write, and all of that.
func (f *Fold) decide(all []*proposal) (records []record.Record, left []*proposal) {
	f.state.Lock()
	defer f.state.Unlock()
	if f.err != nil {
		finish(all, f.err)
		return nil, nil
	}
	for _, p := range all {
		rs, err := p.run(f.epoch)
		if err != nil || len(rs) == 0 {
			p.done <- err
			continue
		}
		records, left = append(records, rs...), append(left, p)
	}
	return records, left
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

// append appends a batch and returns when it is folded. After an error the next
// decision starts with a barrier.
func (f *Fold) append(ctx context.Context, b record.Batch) error {
	own := slices.Clone(b)
	bounded, cancel := f.bound(ctx)
	defer cancel()
	appended, err := f.partition.Append(bounded, b, f.epoch)
	if err != nil {
		f.epoch = 0
		if bounded.Err() != nil && !errors.Is(err, record.ErrOutcomeUnknown) && !errors.Is(err, record.ErrNotLeader) {
			err = &record.OutcomeUnknownError{Err: f.orClosed(err)}
		}
		return err
	}
	own.Stamp(appended.BaseOffset, appended.LeaderEpoch)
	f.foldOwn(own)
	if err := f.Wait(ctx, own.NextOffset()); err != nil {
		f.epoch = 0 // the next decision must wait for these records too
		return &record.OutcomeUnknownError{Err: fmt.Errorf("written, but not seen yet: %w", err)}
	}
	return nil
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
