package consumer

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/quorumlog/quorumlog/record"
)

// Commit says that b is handled: the group resumes behind it. It returns when
// the offset is stored on a quorum, and keeps trying until ctx ends.
//
// *[record.FencedError] means that the member lost the partition meanwhile;
// somebody else will get the records again. Poll goes on with what is owned.
// Any number of goroutines may commit at once.
func (g *Group) Commit(ctx context.Context, b Batch) error {
	if b.claim == nil {
		return fmt.Errorf("commit: %w: the batch is not from Poll", record.ErrInvalid)
	}
	return g.commit(ctx, b.claim, b.generation, map[record.TopicPartition]record.Offset{b.claim.tp: b.next})
}

// CommitOffsets commits positions by hand: for each partition, which must be
// owned, the offset of the next record to handle. All or none are stored.
func (g *Group) CommitOffsets(ctx context.Context, offsets map[record.TopicPartition]record.Offset) error {
	for _, tp := range slices.SortedFunc(maps.Keys(offsets), record.TopicPartition.Compare) {
		if offsets[tp] < 0 {
			return fmt.Errorf("commit %v: %w: offset %d is negative", tp, record.ErrInvalid, offsets[tp])
		}
	}
	return nil
}
