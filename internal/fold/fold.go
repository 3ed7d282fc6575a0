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
// # How a log stays short
//
// A log of a few keys that are written again and again would grow for ever, and all
// of it be folded at each start. With [Compaction] the leader writes the state again
// at the end of the log when that has grown to a multiple of what the state took the
// last time, and trims what was before:
//
//	offsets    0 ...... from ......................... mark ...
//	           │         │ each key as it is now,      │
//	           │         │ in pieces between which     └ {"k":"rewritten"}
//	           │         │ others decide                 {"v":1,"from":…,"bytes":…}
//	           └ trimmed ┘
//
// from is where the first piece was decided on, and all keys that were there then are
// written before the mark. So whoever folds from there, or from any offset below, has the
// whole state when it has come to the mark: the last record of each key counts. bytes
// are those of the batches from there to the one with the mark; every node knows by it
// when the next rewriting is due, whoever leads by then. A rewriting without a mark, of a
// leader that was replaced, is records like any other.
//
// A node that was away while what it needs next was trimmed folds a second state from
// where the log begins, and shows it with the mark: until then it decides nothing, and
// shows what it had.
//
// # Followers
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
	// Trim removes what lies below offset, on all nodes: whole files, so some of it may
	// stay. *record.NotLeaderError if this node does not lead.
	Trim(ctx context.Context, offset record.Offset) error
}

// Config says what is folded into what. Partition is required, and Apply or Compaction.
type Config struct {
	Partition Partition
	// Apply folds one record into the state. The fold calls it in the order of
	// the log, under its lock, once for each record. An error stops the fold for
	// good: a record that is not understood must not be passed over.
	Apply func(r record.Record) error
	// Compaction keeps the log short, in place of Apply. Without it the log must keep
	// everything.
	Compaction *Compaction
	Logger     *slog.Logger // what an operator should know; default silent
}

// Fold is a state machine over a partition. It owns one goroutine, with compaction
// two, which Start starts and Close ends, and one while decisions are written together.
type Fold struct {
	partition  Partition
	compaction *Compaction
	logger     *slog.Logger

	life context.Context // ends with Close
	end  context.CancelFunc
	wg   sync.WaitGroup

	waiters waiters            // decisions that nobody has begun with
	turn    chan struct{}      // capacity 1: held by who makes decisions
	epoch   record.LeaderEpoch // in which the state is known to be complete, 0 for none; guarded by turn

	state   sync.RWMutex // guards the caller's state and what follows
	current State        // with compaction
	image
	err error // why folding stopped

	waiting sync.Mutex    // guards changed
	changed chan struct{} // closed and replaced when next or err changes

	grownUp chan struct{} // capacity 1: the log may be due to be shortened
}

// Start begins to follow the partition from its start.
func Start(cfg Config) *Fold {
	life, end := context.WithCancel(context.Background())
	f := &Fold{
		partition:  cfg.Partition,
		compaction: cfg.Compaction,
		logger:     cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		life:       life,
		end:        end,
		turn:       make(chan struct{}, 1),
		changed:    make(chan struct{}),
		grownUp:    make(chan struct{}, 1),
	}
	f.image = image{apply: cfg.Apply, whole: true}
	if cfg.Compaction != nil {
		f.show(f.rebuild(0))
		f.wg.Go(f.shorten)
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
