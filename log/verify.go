package log

import (
	"context"
	"errors"

	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

// Verify reads all that the log has on disk and compares it with what has been
// written: headers, entries and how they follow each other, lengths, and the
// files beside. What it finds is joined in the error, each a *CorruptError; it goes on behind
// damage, in the same segment too. An error of the disk in a segment is joined
// as well. ctx ends it, with what was found so far and ctx's error.
//
// It may run beside all other calls and holds the writer up for moments only. What is
// appended after it began may be left out, what is trimmed or truncated
// meanwhile is not missed. progress may be nil.
func (l *Log) Verify(ctx context.Context, progress func(Progress)) error {
	var errs []error
	m := newMeter(progress)
	v := l.view.Load()
	for p := range v.parts {
		m.TotalSegments++
		m.TotalBytes += p.ext.Size
	}
	for p := range v.parts {
		if l.closed.Load() {
			return errors.Join(append(errs, record.ErrClosed)...)
		}
		if err := l.verifyPart(ctx, p, m); err != nil {
			errs = append(errs, err)
		}
		if err := ctx.Err(); err != nil { // which may be in errs
			return errors.Join(append(errs, err)...)
		}
	}
	m.end()
	return errors.Join(errs...)
}

// verifyPart verifies p as it is now.
func (l *Log) verifyPart(ctx context.Context, p part, m *meter) error {
	defer func() { m.segment(p.ext.Size) }()
	for {
		m.Bytes = m.done
		now, sides, err := l.still(p)
		if err == errGone {
			return nil
		}
		if err != nil {
			return err
		}
		m.TotalBytes += now.ext.Size - p.ext.Size
		p = now.part
		var errs []error
		report := func(e *CorruptError) { errs = append(errs, e) }
		err = now.seg.Verify(ctx, now.ext, sides, report, m.read)
		err = errors.Join(errors.Join(errs...), err, now.seg.Release())
		if err == nil || ctx.Err() != nil || l.view.Load().cuts == now.cuts {
			return err
		}
		// Cut while it was read: that may be all that is wrong.
	}
}

// partNow is a part of the newest view.
type partNow struct {
	part
	cuts uint64
}

// still returns p as it is now, with a reference, and what the files beside it
// hold at the same moment; errGone if it is no part of the log any more.
func (l *Log) still(p part) (partNow, segment.Sides, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.view.Load()
	for now := range v.parts {
		if now.seg != p.seg || !now.seg.Acquire() {
			continue
		}
		sides, err := now.seg.Sides()
		if err != nil {
			return partNow{}, segment.Sides{}, errors.Join(err, now.seg.Release())
		}
		if l.failed != nil { // what the last write has left is not known
			sides = sides.Unknown(now.ext)
		}
		return partNow{part: now, cuts: v.cuts}, sides, nil
	}
	return partNow{}, segment.Sides{}, errGone
}
