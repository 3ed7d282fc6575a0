package log

import (
	"context"
	"errors"
	"io/fs"
	"path"

	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

// OffsetForTime returns the offset of the first record in log order, from offset
// from on and below bound, whose time is t or later, in ms since 1970; false if
// there is none. It is exact, also inside a batch and where times are out of order,
// as long as each batch's header gives the latest time of its records, as
// record.Builder's do: a batch whose header gives an earlier one is passed over.
// Control batches have no records.
//
// A from below Start means Start. Segments opened without a .timeindex are read
// once, which may take a second for each GiB and which ctx ends. A *CorruptError
// says that a batch that may be the one is damaged.
func (l *Log) OffsetForTime(ctx context.Context, t int64, from, bound record.Offset) (offset record.Offset, ok bool, err error) {
	err = l.look(func(v *view) error {
		for p := range v.parts {
			if p.ext.NextOffset <= from {
				continue
			}
			if p.seg.BaseOffset >= bound {
				break
			}
			if !p.seg.Acquire() {
				return errGone
			}
			var err error
			offset, ok, err = findTime(ctx, p, t, from, bound)
			if err = errors.Join(err, p.seg.Release()); err != nil || ok {
				return err
			}
		}
		offset, ok = record.NoOffset, false
		return nil
	})
	return offset, ok, err
}

func findTime(ctx context.Context, p part, t int64, from, bound record.Offset) (record.Offset, bool, error) {
	times, err := p.seg.Times(ctx, p.ext)
	if err != nil {
		return record.NoOffset, false, err
	}
	return p.seg.FindTime(p.ext, times, t, from, bound)
}

// withTimes returns what the .index of the active segment speaks of with its
// time index, which the writer goes on from: a missing or wrong one is built.
func (l *Log) withTimes(ctx context.Context, seg *segment.Segment, x segment.Extent) (segment.Extent, error) {
	y, why := seg.OpenTimes(x)
	if why == nil {
		return y, nil
	}
	var err error
	if x.Times, err = seg.Times(ctx, x); err != nil {
		return x, err
	}
	name := path.Base(seg.Name("")) + segment.TimeIndexSuffix
	l.report.ScannedBytes += x.Size - segment.HeaderSize
	l.report.RebuiltIndexes = append(l.report.RebuiltIndexes, name)
	if !errors.Is(why, fs.ErrNotExist) {
		l.cfg.Logger.Warn("index not used", "segment", seg.File(), "reason", why)
	}
	return x, nil
}
