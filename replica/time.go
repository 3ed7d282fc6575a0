package replica

import (
	"context"

	"github.com/quorumlog/quorumlog/record"
)

// OffsetForTime returns the offset of the first record below the high watermark,
// in offset order, whose time is t or later, in ms since 1970; false if there is
// none. Any replica may be asked, a follower is a little behind. ctx ends the
// reading of segments that have no time index.
func (r *Replica) OffsetForTime(ctx context.Context, t int64) (record.Offset, bool, error) {
	if err := r.stopped(); err != nil {
		return record.NoOffset, false, err
	}
	return r.store.log.OffsetForTime(ctx, t, r.startOffset(), record.Offset(r.high.Load()))
}
