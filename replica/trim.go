package replica

import (
	"context"
	"fmt"

	"github.com/quorumlog/quorumlog/record"
)

// TrimTo moves the log start offset up to offset, on all replicas, and returns
// it once the quorum has decided. Records below are not readable from then on;
// the disk space of whole segments follows soon. The log start never passes the
// last stable offset and never goes back. Only the leader trims; errors are those of
// Append.
func (r *Replica) TrimTo(ctx context.Context, offset record.Offset) (record.Offset, error) {
	if offset < 0 {
		return 0, fmt.Errorf("%v: %w: trim to offset %d", r.cfg.TopicPartition, record.ErrInvalid, offset)
	}
	if node, _ := r.Leader(); node != r.cfg.Node {
		return 0, r.notLeader()
	}
	offset = min(offset, record.Offset(r.lastStable.Load()))
	if start := r.startOffset(); offset <= start {
		return start, nil
	}
	done := make(chan error, 1)
	r.submit(ctx, &proposal{data: command{commandTrim, offset}.encode()}, func(_ record.Appended, err error) { done <- err })
	if err := <-done; err != nil { // submit ends the wait with ctx
		return r.startOffset(), err
	}
	return r.startOffset(), nil
}

// startOffset returns the log start offset: what was decided, or the first
// offset the segments hold if that is higher. It never lies above the high
// watermark: a follower that went on from an anchor knows of a start that it has
// yet to reach. Load the high watermark afterwards if both are needed.
func (r *Replica) startOffset() record.Offset {
	start := min(r.start.Load(), r.high.Load())
	return max(record.Offset(start), r.store.log.Bounds().Start)
}

// trimSegments removes the segments below the log start. The checkpoint must
// hold everything that goes: a restart goes on from it, and a follower that needs
// what is gone is sent it.
func (r *Replica) trimSegments() {
	start := record.Offset(r.start.Load())
	first := r.store.log.FirstAfterTrim(start)
	if first == r.store.log.Bounds().First {
		return
	}
	if r.checkpoints.entry() < uint64(first)-1 {
		r.checkpoint()
		if r.checkpoints.entry() < uint64(first)-1 {
			return // no-ops at a segment's end are not applied yet; the next checkpoint or trim comes by
		}
	}
	if _, err := r.store.log.TrimTo(start); err != nil {
		r.cfg.Logger.Warn("trimming stopped; it goes on with the next trim", "error", err)
	}
}
