// Package fold turns a replicated partition into a replicated state machine: a
// log and a fold over it. Every coordinator is one: it decides by looking at
// its state, appends what it decided as records, and changes its state only by
// folding what the log holds. So whoever leads next comes to the same state.
//
// # How a decision is made
//
//	Propose ── leads in a new epoch? ── Barrier, fold up to the high watermark
//	   │
//	   ├── decide(state) ── refused, or nothing to write ── done
//	   │
//	   └── Append one batch, fenced by the epoch ── fold up to its end ── done
//
// Decisions are made one after the other, and the next one sees what the last one
// wrote. Those of different keys, which wait while one is being written, are
// written together: see [Fold.ProposeFor]. When the fate of an append is unknown,
// the next Propose runs a Barrier again: behind it the batch is either folded or
// gone for good.
//
// A leader that was replaced may not know it yet. Its appends are refused by
// the epoch; a decision that writes nothing may rest on state that is as old as
// the election of the new leader. Where that is not good enough, use
// [Fold.Read], which asks a quorum.
//
// The fold follows the partition on every node, so that a follower has little
// to catch up with when it becomes leader. It reads below the high watermark
// only: what is folded is never taken back.
//
// All methods may be called at once.
package fold

import (
	"cmp"
	"context"
	"log/slog"
	"sync"

	"github.com/quorumlog/quorumlog/record"
)

// Partition is one replicated partition as its own node sees it. Any number of
// goroutines may call it at once.
type Partition interface {
	// Fetch returns whole batches, beginning with the one that holds from, from
	// below the high watermark. It waits until there is one, or ctx ends. An
	// empty answer without an error makes the fold ask again.
	Fetch(ctx context.Context, from record.Offset, maxBytes int) (record.Fetched, error)
	// Append returns when the batch is committed on a quorum. It refuses the
	// batch with *record.NotLeaderError unless this node leads in epoch. The
	// batch is given away. BaseOffset of the answer must be the batch's.
	Append(ctx context.Context, b record.Batch, epoch record.LeaderEpoch) (record.Appended, error)
	// Barrier asks a quorum. When it returns, everything of older epochs and
	// every append that returned before is below the high watermark, which it
	// returns with the epoch this node leads in. *record.NotLeaderError if it
	// does not lead.
	Barrier(ctx context.Context) (record.LeaderEpoch, record.Offset, error)
	// Leading returns the epoch in which this node believes to lead, else a
	// *record.NotLeaderError. It must not wait.
	Leading() (record.LeaderEpoch, error)
}

// Config says what is folded into what. Partition and Apply are required.
type Config struct {
	Partition Partition
	// Apply folds one record into the state. The fold calls it in the order of
	// the log, under its lock, once for each record. An error stops the fold for
	// good: a record that is not understood must not be passed over.
	Apply  func(r record.Record) error
	Logger *slog.Logger // what an operator should know; default silent
}

// Fold is a state machine over a partition. It owns one goroutine, which Start
// starts and Close ends, and one while decisions are written together.
type Fold struct {
	partition Partition
	apply     func(record.Record) error
	logger    *slog.Logger

	life context.Context // ends with Close
	end  context.CancelFunc
	wg   sync.WaitGroup

	waiters waiters            // decisions that nobody has begun with
	turn    chan struct{}      // capacity 1: held by who makes decisions
	epoch   record.LeaderEpoch // in which the state is known to be complete, 0 for none; guarded by turn

	state sync.RWMutex // guards the caller's state, next and err
	next  record.Offset
	err   error // why folding stopped

	waiting sync.Mutex    // guards changed
	changed chan struct{} // closed and replaced when next or err changes
}

// Start begins to follow the partition from its start.
func Start(cfg Config) *Fold {
	life, end := context.WithCancel(context.Background())
	f := &Fold{
		partition: cfg.Partition,
		apply:     cfg.Apply,
		logger:    cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		life:      life,
		end:       end,
		turn:      make(chan struct{}, 1),
		changed:   make(chan struct{}),
	}
	f.wg.Go(f.follow)
	return f
}

// Close ends the fold. Calls in progress return [record.ErrClosed], or what
// became of their append if that is known already. Idempotent.
func (f *Fold) Close() {
	f.end()
	f.waiters.close()
	f.wg.Wait()
}

// View runs fn under the read lock: the state does not change meanwhile. It
// shows what this node has folded, on a follower too.
func (f *Fold) View(fn func()) {
	f.state.RLock()
	defer f.state.RUnlock()
	fn()
}

// Wait returns when everything below offset is folded. If folding has stopped
// for good, it returns the reason.
func (f *Fold) Wait(ctx context.Context, offset record.Offset) error {
	for {
		f.waiting.Lock()
		changed := f.changed
		f.waiting.Unlock()
		f.state.RLock()
		next, err := f.next, f.err
		f.state.RUnlock()
		switch {
		case next >= offset:
			return nil
		case err != nil:
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-f.life.Done():
			return record.ErrClosed
		}
	}
}

// advanced wakes those who wait for next or err.
func (f *Fold) advanced() {
	f.waiting.Lock()
	close(f.changed)
	f.changed = make(chan struct{})
	f.waiting.Unlock()
}
