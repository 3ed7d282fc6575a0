package segment

import (
	"github.com/quorumlog/quorumlog/index"
	"github.com/quorumlog/quorumlog/record"
)

// minRead keeps readers with tiny limits from reading one batch twice.
const minRead = 4 << 10

// Read returns the batches from the entry at a place on that end above from and
// at or below bound, of about maxBytes with the entries' headers but at least one if there
// is one, and the place behind them. They are checked, and alias one fresh
// buffer. Of a damaged batch those before it are returned; when it comes first,
// a *CorruptError is.
func (s *Segment) Read(x Extent, at index.Place, from, bound record.Offset, maxBytes int) ([]record.Batch, index.Place, error) {
	end := x.below(bound)
	want := int64(max(maxBytes, minRead))
	var batches []record.Batch
	for at.Position < end {
		buf := make([]byte, min(want, end-at.Position))
		n, err := readAt(s.file, buf, at.Position)
		if err != nil {
			return nil, at, err
		}
		var more int64
		batches, at, more, err = s.batches(x, at, from, bound, buf[:n])
		switch {
		case len(batches) > 0:
			return batches, at, nil
		case err != nil:
			return nil, at, err
		case more < 0:
			return nil, at, nil
		case n < len(buf) || more > end-at.Position:
			return nil, at, s.damage(x, at, "the file ends in an entry")
		}
		want = max(want, more)
	}
	if at.Position == x.Size && at.Offset < min(bound, x.NextOffset) {
		return nil, at, s.damage(x, at, "the file ends before its last entry")
	}
	return nil, at, nil
}

// batches takes entries off buf, which is what the file has at a place. more is
// how many bytes the entry at the place returned needs, if buf ended in it;
// negative if it lies beyond bound.
func (s *Segment) batches(x Extent, at index.Place, from, bound record.Offset, buf []byte) (batches []record.Batch, next index.Place, more int64, err error) {
	for len(buf) >= frameSize {
		f, ok := decodeFrame(buf, s.seed)
		if !ok || f.number != at.Entry || f.offset != at.Offset {
			return batches, at, 0, s.damage(x, at, "there is no entry")
		}
		if f.size() > int64(len(buf)) {
			return batches, at, f.size(), nil
		}
		payload := buf[frameSize:f.size():f.size()]
		if reason := f.matches(payload); reason != "" {
			return batches, at, 0, s.damage(x, at, reason)
		}
		if f.kind == KindBatch {
			b := record.Batch(payload)
			if b.NextOffset() > bound {
				return batches, at, -1, nil
			}
			if b.NextOffset() > from {
				batches = append(batches, b)
			}
			at.Offset = b.NextOffset()
		}
		at.Entry++
		at.Position += f.size()
		buf = buf[f.size():]
	}
	if len(buf) > 0 {
		more = frameSize
	}
	return batches, at, more, nil
}

// ReadEntry returns the entry at a place, and the place behind it. Data is the
// caller's.
func (s *Segment) ReadEntry(x Extent, at index.Place) (Entry, index.Place, error) {
	w := s.walker(x)
	defer w.done()
	f, err := w.header(at)
	if err != nil {
		return Entry{}, index.Place{}, err
	}
	payload := make([]byte, f.length)
	n := copy(payload, w.have[frameSize:]) // the page begins with the header
	if n < len(payload) {
		m, err := readAt(s.file, payload[n:], at.Position+frameSize+int64(n))
		if err != nil {
			return Entry{}, index.Place{}, err
		}
		n += m
	}
	reason := "the file ends in an entry"
	if n == len(payload) {
		reason = f.matches(payload)
	}
	if reason != "" {
		return Entry{}, index.Place{}, s.damage(x, at, reason)
	}
	e := f.entry(payload)
	next := f.behind(at)
	next.Offset = e.Next()
	return e, next, nil
}

// ReadEntryHeader is ReadEntry without Data, and without checking it.
func (s *Segment) ReadEntryHeader(x Extent, at index.Place) (Entry, index.Place, error) {
	w := s.walker(x)
	defer w.done()
	f, err := w.header(at)
	return f.entry(nil), f.behind(at), err
}
