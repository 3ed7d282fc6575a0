package segment

import (
	"fmt"

	"github.com/quorumlog/quorumlog/index"
	"github.com/quorumlog/quorumlog/record"
)

// FindOffset returns where the entry begins that holds offset, which x has. It
// reads entries' headers only, from the nearest slot of the index on.
func (s *Segment) FindOffset(x Extent, offset record.Offset) (index.Place, error) {
	at, ok := x.Index.Offset(offset)
	if !ok {
		return index.Place{}, fmt.Errorf("%s: %w: offset %d", s.File(), record.ErrOffsetOutOfRange, offset)
	}
	at, _, err := s.find(x, at, func(next index.Place) bool { return next.Offset > offset })
	return at, err
}

// Before returns the extent of the entries before n, which x has.
func (s *Segment) Before(x Extent, n record.EntryNumber) (Extent, error) {
	if n <= s.BaseEntry {
		return s.Empty(), nil
	}
	at, ok := x.Index.Entry(n - 1)
	if !ok {
		return Extent{}, fmt.Errorf("%s: no entry %d", s.File(), n)
	}
	at, term, err := s.find(x, at, func(next index.Place) bool { return next.Entry >= n })
	if err != nil {
		return Extent{}, err
	}
	next, _, err := s.next(x, at)
	if err != nil {
		return Extent{}, err
	}
	return Extent{
		Size: next.Position, NextOffset: next.Offset, NextEntry: next.Entry, LastTerm: term,
		Index: x.Index.Cut(next.Position),
	}, nil
}

// FindEntry returns where entry n begins, which x has.
func (s *Segment) FindEntry(x Extent, n record.EntryNumber) (index.Place, error) {
	at, ok := x.Index.Entry(n)
	if !ok {
		return index.Place{}, fmt.Errorf("%s: no entry %d", s.File(), n)
	}
	at, _, err := s.find(x, at, func(next index.Place) bool { return next.Entry > n })
	return at, err
}

func (s *Segment) next(x Extent, at index.Place) (index.Place, uint64, error) {
	w := s.walker(x)
	defer w.done()
	f, next, err := w.step(at)
	return next, f.term, err
}

// find walks from at to the first entry whose follower is past what is looked
// for, and returns its place and term.
func (s *Segment) find(x Extent, at index.Place, past func(next index.Place) bool) (index.Place, uint64, error) {
	w := s.walker(x)
	defer w.done()
	for {
		f, next, err := w.step(at)
		if err != nil || past(next) {
			return at, f.term, err
		}
		if next.Position == x.Size {
			return at, 0, s.damage(x, at, "the entry looked for is not there")
		}
		at = next
	}
}

// step returns the header of the entry at a place, and where the next one
// begins. The offset there comes from that one's own header: a batch's size in
// offsets stands in its payload, which is not read here.
func (w *walker) step(at index.Place) (frame, index.Place, error) {
	f, ok, err := w.frame(at.Position)
	if err != nil {
		return frame{}, index.Place{}, err
	}
	next := index.Place{Entry: at.Entry + 1, Position: at.Position + f.size()}
	if !ok || f.number != at.Entry || f.offset != at.Offset || next.Position > w.x.Size {
		return frame{}, index.Place{}, w.s.damage(w.x, at, "there is no entry")
	}
	if next.Position == w.x.Size {
		next.Offset = w.x.NextOffset
		return f, next, nil
	}
	g, ok, err := w.frame(next.Position)
	if err != nil {
		return frame{}, index.Place{}, err
	}
	next.Offset = g.offset
	if !ok || g.number != next.Entry || g.offset < f.offset {
		next.Offset = at.Offset
		return frame{}, index.Place{}, w.s.damage(w.x, next, "there is no entry")
	}
	return f, next, nil
}

// frame reads the header of an entry; false if there is none.
func (w *walker) frame(pos int64) (frame, bool, error) {
	b, err := w.bytes(pos, frameSize)
	if err != nil || len(b) < frameSize {
		return frame{}, false, err
	}
	f, ok := decodeFrame(b, w.s.seed)
	return f, ok, nil
}

// damage describes the bad entry at a place, with the narrowest range of
// offsets that what is around it tells.
func (s *Segment) damage(x Extent, at index.Place, reason string) error {
	e := &CorruptError{File: s.File(), Position: at.Position, From: at.Offset, To: x.NextOffset, Reason: reason}
	if slot, ok := x.Index.Entry(at.Entry); ok {
		e.From = max(e.From, slot.Offset)
	}
	if slot, ok := x.Index.Behind(at.Position); ok {
		e.To = slot.Offset
	}
	w := s.walker(x)
	defer w.done()
	if f, ok, err := w.frame(at.Position); ok && err == nil && f.number == at.Entry {
		e.From = f.offset
		if g, ok, err := w.frame(at.Position + f.size()); ok && err == nil && g.number == at.Entry+1 {
			e.To = g.offset
		}
	}
	return e
}
