package segment

import (
	"github.com/quorumlog/quorumlog/index"
	"github.com/quorumlog/quorumlog/record"
)

// Extent is what a segment holds at one moment. Being a value, it stays as it
// is for the reader that has it while the writer goes on.
type Extent struct {
	Size       int64 // bytes of the file, its header included
	NextOffset record.Offset
	NextEntry  record.EntryNumber
	LastTerm   uint64 // of entry NextEntry-1
	Index      index.Index
}

// Empty returns the extent of a segment without entries.
func (h Header) Empty() Extent {
	return Extent{
		Size: HeaderSize, NextOffset: h.BaseOffset, NextEntry: h.BaseEntry, LastTerm: h.PrevTerm,
		Index: index.New(h.BaseOffset, h.BaseEntry),
	}
}

// end is where the next entry goes.
func (x Extent) end() index.Place {
	return index.Place{Offset: x.NextOffset, Entry: x.NextEntry, Position: x.Size}
}

// with returns x with the entry of f behind it, next being the offset of the
// first record after it. The index gets a slot every indexBytes; it says false
// if the entry lies too far from the segment's base.
func (x Extent) with(f frame, next record.Offset, indexBytes int64) (Extent, bool) {
	at := x.end()
	if !x.Index.Fits(at) {
		return x, false
	}
	if last, ok := x.Index.Last(); !ok || at.Position-last.Position >= indexBytes {
		x.Index = x.Index.Add(at)
	}
	x.Size += f.size()
	x.NextEntry++
	x.NextOffset = next
	x.LastTerm = f.term
	return x, true
}

// follows says what is wrong with f as the entry behind x, "" if nothing.
func (x Extent) follows(f frame) string {
	switch {
	case f.number != x.NextEntry:
		return "its entry number does not follow"
	case f.offset != x.NextOffset:
		return "its offset does not follow"
	case f.term < x.LastTerm:
		return "its term goes back"
	}
	return ""
}

// below returns how many bytes of the file may hold what lies below bound.
func (x Extent) below(bound record.Offset) int64 {
	if at, ok := x.Index.Above(bound); ok {
		return at.Position
	}
	return x.Size
}
