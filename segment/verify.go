package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/quorumlog/quorumlog/index"
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
			next, err := s.behind(ctx, v.w, y, x, f)
			if err != nil {
				return err
			}
			v.bad(y, next, reason)
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
		v.bad(y, x, fmt.Sprintf("the last entry is %d of term %d, not %d of term %d",
			y.NextEntry-1, y.LastTerm, x.NextEntry-1, x.LastTerm))
	}
	if sides.size != x.Size {
		v.bad(x, x, fmt.Sprintf("the file has %d bytes, not %d", sides.size, x.Size))
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

// bad reports that what lies between two extents is not what was written.
func (v *verifier) bad(from, to Extent, reason string) { v.report(v.s.Hole(from, to, reason)) }

// header compares the file's header with what was read when it was opened.
func (v *verifier) header() error {
	b := make([]byte, HeaderSize)
	n, err := readAt(v.s.file, b, 0)
	if err == nil && !bytes.Equal(b[:n], v.s.Encode()) {
		v.report(&CorruptError{File: v.s.File(), From: v.s.BaseOffset, To: v.x.NextOffset, Reason: "the file's header is not what was written"})
	}
	return err
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
