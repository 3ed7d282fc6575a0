package cluster

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/replica"
)

// OffsetForTime returns the offset of the first record of a partition, in offset
// order, whose time is t or later; false if no record is. What was acknowledged
// before the call counts. It asks the leader, and the next one after a change,
// until ctx ends.
func (n *Node) OffsetForTime(ctx context.Context, tp record.TopicPartition, t time.Time) (record.Offset, bool, error) {
	ctx, leave, err := n.enter(ctx)
	if err != nil {
		return record.NoOffset, false, err
	}
	defer leave()
	p, err := n.find(ctx, tp)
	if err != nil {
		return record.NoOffset, false, err
	}
	a, err := n.ask(ctx, p, fmt.Sprintf("offset of %v for %v", tp, t), request{Op: opOffsetForTime, Time: millis(t)})
	if err != nil || a.Offset == record.NoOffset {
		return record.NoOffset, false, err
	}
	return a.Offset, true, nil
}

// millis returns the first ms since 1970 that is not before t, as near as 64 bits come.
func millis(t time.Time) int64 {
	if t.After(time.UnixMilli(math.MaxInt64)) {
		return math.MaxInt64
	}
	if t.Before(time.UnixMilli(math.MinInt64)) {
		return math.MinInt64
	}
	ms := t.UnixMilli()
	if time.UnixMilli(ms).Before(t) {
		ms++
	}
	return ms
}

// answerOffsetForTime is the leader's part.
func answerOffsetForTime(ctx context.Context, rep *replica.Replica, t int64) (record.Offset, error) {
	if _, _, err := rep.ReadIndex(ctx); err != nil { // the high watermark of a new leader may be behind
		return record.NoOffset, err
	}
	offset, _, err := rep.OffsetForTime(ctx, t)
	return offset, err
}
