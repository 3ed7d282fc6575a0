package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/quorumlog/quorumlog/index"
	"github.com/quorumlog/quorumlog/record"
)

// Sides is what a segment has on disk besides an extent at one moment: nobody
// may write while it is taken.
type Sides struct {
	size         int64  // of the .log
	index, times []byte // nil if there is no file
}

// Sides reads the files beside the .log.
func (s *Segment) Sides() (Sides, error) {
	var b Sides
	var errs [3]error
	b.size, errs[0] = s.file.Size()
	b.index, errs[1] = s.side(IndexSuffix)
	b.times, errs[2] = s.side(TimeIndexSuffix)
	return b, errors.Join(errs[:]...)
}

func (s *Segment) side(suffix string) ([]byte, error) {
	b, err := s.fsys.ReadFile(s.path + suffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // it is derived
	}
	return b, err
}

// Unknown returns sides that fit x, whatever is there.
func (b Sides) Unknown(x Extent) Sides { return Sides{size: x.Size} }

// Verify reads the whole file up to the end of x, and compares all that it and
// sides hold with what has been written. It goes on behind a bad entry, at the
// next one with a right header, and tells report of each place. read is told how
// many bytes more have been read. An error is of the disk or of ctx, and ends it.
func (s *Segment) Verify(ctx context.Context, x Extent, sides Sides, report func(*CorruptError), read func(bytes int64)) error {
	v := verifier{s: s, x: x, report: report, w: s.scanner(HeaderSize, x.Size, read)}
	if err := v.header(); err != nil {
		return err
	}
	read(HeaderSize)
	beside := v.beside(sides)
	y := s.Empty()
	for y.Size < x.Size {
		beside.at(y.end(), y.LastTerm)
		f, b, reason, err := v.w.entry(ctx, y)
		if err != nil {
			return err
		}
		if reason != "" {
			next, err := v.behind(ctx, y, f)
			if err != nil {
				return err
			}
			v.bad(y.Size, y.NextOffset, next.NextOffset, reason)
			beside.skip(y.Size, next.Size)
			y = next
			continue
		}
		e := f.entry(b[frameSize:])
		y.Size, y.NextEntry, y.NextOffset, y.LastTerm = y.Size+f.size(), y.NextEntry+1, e.Next(), f.term
		beside.passed(&e, y.Size)
	}
	v.w.told(x.Size)
	if y.end() != x.end() || y.LastTerm != x.LastTerm {
		v.bad(y.Size, y.NextOffset, x.NextOffset, fmt.Sprintf("the last entry is %d of term %d, not %d of term %d",
			y.NextEntry-1, y.LastTerm, x.NextEntry-1, x.LastTerm))
	}
	if sides.size != x.Size {
		v.bad(x.Size, x.NextOffset, x.NextOffset, fmt.Sprintf("the file has %d bytes, not %d", sides.size, x.Size))
	}
	beside.at(y.end(), y.LastTerm)
	beside.end()
	return nil
}

// verifier is one run of Verify.
type verifier struct {
	s      *Segment
	x      Extent
	w      *scanner
	report func(*CorruptError)
}

func (v *verifier) bad(pos int64, from, to record.Offset, reason string) {
	v.report(&CorruptError{File: v.s.File(), Position: pos, From: from, To: max(from, to), Reason: reason})
}

// header compares the file's header with what was read when it was opened.
func (v *verifier) header() error {
	b := make([]byte, HeaderSize)
	n, err := readAt(v.s.file, b, 0)
	if err == nil && !bytes.Equal(b[:n], v.s.Encode()) {
		v.bad(0, v.s.BaseOffset, v.x.NextOffset, "the file's header is not what was written")
	}
	return err
}

// behind returns the extent up to the first entry behind the bad one at y. It is
// where the bad one's header, f, says that it ends, if that is right; else
// wherever the header of a later entry is; or the end.
func (v *verifier) behind(ctx context.Context, y Extent, f frame) (Extent, error) {
	fits := func(g frame, pos int64) bool {
		return g.offset >= y.NextOffset && g.offset <= v.x.NextOffset && g.term >= y.LastTerm && pos+g.size() <= v.x.Size
	}
	next := func(g frame, pos int64) Extent {
		return Extent{Size: pos, NextEntry: g.number, NextOffset: g.offset, LastTerm: g.term}
	}
	pos := y.Size + f.size()
	if f.kind.known() && f.number == y.NextEntry && pos <= v.x.Size {
		if pos == v.x.Size {
			return v.x, nil
		}
		b, err := v.w.bytes(pos, frameSize)
		if err != nil {
			return v.x, err
		}
		if len(b) == frameSize {
			if g, ok := decodeFrame(b, v.s.seed); ok && g.number == f.number+1 && fits(g, pos) {
				return next(g, pos), nil
			}
		}
	}
	g, pos, err := v.s.search(ctx, y.Size, v.x.Size, y.NextEntry, fits)
	if err != nil || !g.kind.known() {
		return v.x, err
	}
	return next(g, pos), nil
}

// beside takes the files beside the .log apart.
func (v *verifier) beside(sides Sides) *beside {
	b := &beside{index: v.side(IndexSuffix), times: v.side(TimeIndexSuffix)}
	if sides.index != nil {
		var err error
		b.slots, b.index.sum, err = index.Decode(sides.index)
		b.index.open(v, err)
		b.slot, b.more = b.slots.Behind(-1)
	}
	if sides.times != nil {
		var err error
		b.latest, b.times.sum, err = index.DecodeTimes(sides.times)
		b.times.open(v, err)
	}
	return b
}

func (v *verifier) side(suffix string) side {
	return side{done: true, bad: func(reason string) {
		file, at := v.s.path+suffix, v.s.BaseOffset // it hurts no record
		v.report(&CorruptError{File: file, From: at, To: at, Reason: reason})
	}}
}
