package segment

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorumlog/quorumlog/index"
	"github.com/quorumlog/quorumlog/record"
)

// FindOffset returns a place in x from which a reader comes to the batch that
// holds offset; Read skips what may lie before it. It reads entries' headers
// only, from the nearest slot of the index on.
func (s *Segment) FindOffset(x Extent, offset record.Offset) (index.Place, error) {
	at, ok := x.Index.Offset(offset)
	if !ok || offset >= x.NextOffset {
		return index.Place{}, fmt.Errorf("%s: %w: offset %d", s.File(), record.ErrOffsetOutOfRange, offset)
	}
	w := s.walker(x)
	defer w.done()
	for {
		_, next, err := w.step(at)
		if errors.Is(err, record.ErrCorrupt) { // this entry or the next
			var ok bool
			if next, ok, err = s.over(x, at); err == nil && !ok {
				return at, nil // Read finds out which, and whether it matters
			}
		}
		if err != nil || next.Offset > offset {
			return at, err
		}
		at = next
	}
}

// FindEntry returns where entry n begins, which x has.
func (s *Segment) FindEntry(x Extent, n record.EntryNumber) (index.Place, error) {
	at, ok := x.Index.Entry(n)
	if !ok || n >= x.NextEntry {
		return index.Place{}, fmt.Errorf("%s: no entry %d", s.File(), n)
	}
	w := s.walker(x)
	defer w.done()
	for at.Entry < n {
		f, err := w.header(at)
		if err == nil {
			at = f.behind(at)
			continue
		}
		if !errors.Is(err, record.ErrCorrupt) {
			return index.Place{}, err
		}
		next, ok, overErr := s.over(x, at)
		if overErr != nil {
			return index.Place{}, overErr
		}
		if !ok || next.Entry > n { // it is the damaged one, or gone with it
			return index.Place{}, err
		}
		at = next
	}
	return at, nil
}

// over returns the place of the first entry behind the one at a place that has a
// right header, up to the next slot of the index; false if there is none.
func (s *Segment) over(x Extent, at index.Place) (index.Place, bool, error) {
	end := x.Size
	if slot, ok := x.Index.Behind(at.Position); ok {
		end = min(x.Size, slot.Position+frameSize)
	}
	f, pos, err := s.search(context.Background(), at.Position, end, at.Entry, func(f frame, pos int64) bool {
		return f.offset >= at.Offset && f.offset <= x.NextOffset && pos+f.size() <= x.Size
	})
	return index.Place{Offset: f.offset, Entry: f.number, Position: pos}, f.kind.known(), err
}

// Before returns the extent of the entries before n, which x has.
func (s *Segment) Before(x Extent, n record.EntryNumber) (Extent, error) {
	if n <= s.BaseEntry {
		return s.Empty(), nil
	}
	at, err := s.FindEntry(x, n-1)
	if err != nil {
		return Extent{}, err
	}
	last, next, err := s.ReadEntry(x, at) // not the header of n, which may be damaged
	if err != nil {
		return Extent{}, err
	}
	y := Extent{
		Size: next.Position, NextOffset: next.Offset, NextEntry: next.Entry, LastTerm: last.Term,
		Index: x.Index.Cut(next.Position),
	}
	y.Times, err = s.timesBefore(x, y)
	return y, err
}

// header returns the header of the entry at a place, whose offset may be unknown.
func (w *walker) header(at index.Place) (frame, error) {
	f, ok, err := w.frame(at.Position)
	if err != nil {
		return frame{}, err
	}
	if !ok || f.number != at.Entry || at.Offset != record.NoOffset && f.offset != at.Offset || at.Position+f.size() > w.x.Size {
		return frame{}, w.s.damage(w.x, at, "there is no entry")
	}
	return f, nil
}

// behind returns the place behind f's entry, which is at a place. Without the
// payload the offset behind a batch is not known.
func (f frame) behind(at index.Place) index.Place {
	next := index.Place{Offset: f.offset, Entry: at.Entry + 1, Position: at.Position + f.size()}
	if f.kind == KindBatch {
		next.Offset = record.NoOffset
	}
	return next
}

// step returns the header of the entry at a place, and the place behind it,
// whose offset it takes from the header there.
func (w *walker) step(at index.Place) (frame, index.Place, error) {
	f, err := w.header(at)
	if err != nil {
		return frame{}, index.Place{}, err
	}
	next := f.behind(at)
	if next.Position == w.x.Size {
		next.Offset = w.x.NextOffset
		return f, next, nil
	}
	g, err := w.header(next)
	next.Offset = g.offset
	return f, next, err
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
	e := &CorruptError{File: s.File(), Position: at.Position, From: at.Offset, To: x.NextOffset, FirstEntry: at.Entry, NextEntry: x.NextEntry, Reason: reason}
	if slot, ok := x.Index.Entry(at.Entry); ok {
		e.From = max(e.From, slot.Offset)
	}
	if slot, ok := x.Index.Behind(at.Position); ok {
		e.To, e.NextEntry = slot.Offset, slot.Entry
	}
	w := s.walker(x)
	defer w.done()
	if f, ok, err := w.frame(at.Position); ok && err == nil && f.number == at.Entry {
		e.From = f.offset
		if g, ok, err := w.frame(at.Position + f.size()); ok && err == nil && g.number == at.Entry+1 {
			e.To, e.NextEntry = g.offset, g.number
			return e
		}
	}
	if next, ok, err := s.over(x, at); ok && err == nil {
		e.To, e.NextEntry = next.Offset, next.Entry
	}
	return e
}
