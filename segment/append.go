package segment

import (
	"fmt"
	"slices"

	"github.com/quorumlog/quorumlog/record"
)

// Writer is scratch for Append, to be kept by the one who appends.
type Writer struct {
	heads []byte
	bufs  [][]byte
}

// Append writes entries behind x, as one write, and returns what the segment
// holds then. They have been checked, and continue x. All entries below durable
// are known to be on disk. After an error the file may be longer than x: Cut it
// before the next Append. Data is read, not kept.
func (s *Segment) Append(w *Writer, x Extent, entries []Entry, durable record.EntryNumber) (Extent, error) {
	n := frameSize * len(entries)
	w.heads = slices.Grow(w.heads[:0], n)[:n] // no growing below: bufs point into it
	w.bufs = w.bufs[:0]
	y := x
	for i := range entries {
		e := &entries[i]
		f := e.frame(uint64(e.Number - durable))
		head := w.heads[frameSize*i:][:frameSize]
		f.put(head, s.seed)
		w.bufs = append(w.bufs, head)
		if len(e.Data) > 0 {
			w.bufs = append(w.bufs, e.Data)
		}
		var ok bool
		if y, ok = y.with(f, e, s.indexBytes); !ok {
			clear(w.bufs)
			return x, fmt.Errorf("%s: %w: entry %d", s.File(), ErrFull, e.Number)
		}
	}
	_, err := s.file.WriteVecAt(w.bufs, x.Size)
	clear(w.bufs) // they pin the batches
	if err != nil {
		return x, err
	}
	return y, nil
}
