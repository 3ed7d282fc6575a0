package segment

import (
	"context"
	"math"
)

// Over returns the extent behind the bad entry at the end of x: up to the next
// entry with a right header below the end of limit, or limit itself if there is
// none. What lies in between is a hole: x.Index leads over it, and the time of
// its records is not known. The hole's terms are not known either, so LastTerm
// is that of x unless limit is reached.
func (s *Segment) Over(ctx context.Context, x, limit Extent) (Extent, error) {
	w := s.scanner(x.Size, limit.Size, nil)
	b, err := w.bytes(x.Size, frameSize)
	if err != nil {
		return x, err
	}
	var f frame
	if len(b) == frameSize {
		f, _ = decodeFrame(b, s.seed)
	}
	y, err := s.behind(ctx, w, x, limit, f)
	if err != nil {
		return x, err
	}
	y.Index, y.Times = x.Index, x.Times.Raise(math.MaxInt64)
	if y.Index.Len() == 0 { // as there would be for the first entry
		y.Index = y.Index.Add(x.end())
	}
	if at := y.end(); y.Size > x.Size && y.Size < limit.Size && y.Index.Fits(at) {
		y.Index = y.Index.Add(at)
	}
	return y, nil
}

// Unbounded returns the limit for Over when only the size of the file is known.
func Unbounded(size int64) Extent {
	return Extent{Size: size, NextOffset: math.MaxInt64, NextEntry: math.MaxInt64, LastTerm: math.MaxUint64}
}

// behind returns the extent up to the first entry behind the bad one at y. It is
// where the bad one's header, f, says that it ends, if that is right; else
// wherever the header of a later entry is; or limit.
func (s *Segment) behind(ctx context.Context, w *scanner, y, limit Extent, f frame) (Extent, error) {
	fits := func(g frame, pos int64) bool {
		return g.number < limit.NextEntry && g.offset >= y.NextOffset && g.offset <= limit.NextOffset &&
			g.term >= y.LastTerm && g.term <= limit.LastTerm && pos+g.size() <= limit.Size
	}
	next := func(g frame, pos int64) Extent {
		return Extent{Size: pos, NextEntry: g.number, NextOffset: g.offset, LastTerm: y.LastTerm}
	}
	pos := y.Size + f.size()
	if f.kind.known() && f.number == y.NextEntry && pos <= limit.Size {
		if pos == limit.Size && f.number+1 == limit.NextEntry {
			return limit, nil
		}
		b, err := w.bytes(pos, frameSize)
		if err != nil {
			return y, err
		}
		if len(b) == frameSize {
			if g, ok := decodeFrame(b, s.seed); ok && g.number == f.number+1 && fits(g, pos) {
				return next(g, pos), nil
			}
		}
	}
	g, pos, err := s.search(ctx, y.Size, limit.Size, y.NextEntry, fits)
	if err != nil || !g.kind.known() {
		return limit, err
	}
	return next(g, pos), nil
}

// Fill writes entries, which begin at the end of x and have been checked, where
// the file has a hole, and syncs it. All before them must be on disk. Data is
// read, not kept.
func (s *Segment) Fill(w *Writer, x Extent, entries []Entry) error {
	if _, err := s.Append(w, x, entries, entries[0].Number); err != nil {
		return err
	}
	return s.file.Sync()
}
