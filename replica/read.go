package replica

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorumlog/quorumlog/record"
)

// Read returns whole batches from the one that holds offset from, of about
// maxBytes but at least one if there is one. With ReadCommitted they lie below the
// last stable offset, and what was aborted is left out, as are markers: there may be
// none though Next has moved on. With ReadUncommitted they lie below the high
// watermark. It never waits. Any replica may be read, a follower is a little behind.
// *record.OffsetRangeError if from is below the log start, or above the end on the
// leader. The log start may lie inside a batch: the batch that holds it is returned
// whole, and the reader passes over what lies below.
func (r *Replica) Read(from record.Offset, maxBytes int, iso record.Isolation) (record.Fetched, error) {
	if from < 0 {
		return record.Fetched{}, fmt.Errorf("%v: %w: offset %d is negative", r.cfg.TopicPartition, record.ErrInvalid, from)
	}
	if err := r.stopped(); err != nil {
		return record.Fetched{}, err
	}
	start := r.startOffset()
	bound := r.bound(iso)
	f := record.Fetched{Next: from, StartOffset: start, LastStableOffset: r.bound(record.ReadCommitted)}
	f.HighWatermark = record.Offset(r.high.Load())
	b := r.store.log.Bounds()
	// A leader's log holds all that is committed; a follower may be behind.
	if from < start || from > b.End && r.leads() {
		return record.Fetched{}, &record.OffsetRangeError{TopicPartition: r.cfg.TopicPartition, Offset: from, Start: start, End: f.HighWatermark}
	}
	if from >= bound {
		return f, nil
	}
	batches, err := r.store.log.Read(from, bound, maxBytes)
	if err != nil {
		return f, r.readError(err)
	}
	if len(batches) == 0 {
		return f, nil
	}
	f.Next = batches[len(batches)-1].NextOffset()
	if iso == record.ReadCommitted {
		batches = r.aborted.committed(batches)
	}
	f.Batches = batches
	return f, nil
}

// readError turns an error of the log into what Read returns.
func (r *Replica) readError(err error) error {
	var outside *record.OffsetRangeError
	switch {
	case errors.As(err, &outside):
		outside.TopicPartition = r.cfg.TopicPartition
	case errors.Is(err, record.ErrCorrupt) && !r.single(): // another replica serves it while this one is mended
		r.fail(err)
		return r.stopped()
	}
	return err
}

// bound returns the offset below which there is something to read. Load the high
// watermark afterwards if both are needed: the last stable offset never lies above.
func (r *Replica) bound(iso record.Isolation) record.Offset {
	if iso == record.ReadUncommitted {
		return record.Offset(r.high.Load())
	}
	return record.Offset(r.lastStable.Load())
}

// CaughtUp reports whether this leader's high watermark has passed all that
// leaders before it can have committed. Until then, for a moment, it knows of less
// than they have shown to readers.
func (r *Replica) CaughtUp() bool {
	if n := r.resting(); n != nil { // it fell asleep like that
		return n.leader == r.cfg.Node
	}
	term := r.raft().CurrentTerm()
	return r.store.log.Bounds().LastTerm == term && r.high.Load() >= r.since.Load()
}

// Wait returns when the high watermark is above from. Otherwise it returns the
// ctx's error, record.ErrClosed, or why the replica has stopped.
func (r *Replica) Wait(ctx context.Context, from record.Offset) error {
	return r.WaitReadable(ctx, from, record.ReadUncommitted)
}

// WaitReadable returns when Read has something at from for iso. It fails as Wait does.
func (r *Replica) WaitReadable(ctx context.Context, from record.Offset, iso record.Isolation) error {
	for {
		moved := r.moved.wait()
		if r.bound(iso) > from {
			return nil
		}
		if err := r.stopped(); err != nil {
			return err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// stopped returns why the replica takes no more calls, nil while it does.
func (r *Replica) stopped() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed != nil {
		return r.failed
	}
	if r.closed {
		return record.ErrClosed
	}
	return nil
}
