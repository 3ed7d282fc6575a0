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
	Times      index.Times // not known where only the .index was read: see Segment.Times
}

// Empty returns the extent of a segment without entries.
func (h Header) Empty() Extent {
	return Extent{
		Size: HeaderSize, NextOffset: h.BaseOffset, NextEntry: h.BaseEntry, LastTerm: h.PrevTerm,
		Index: index.New(h.BaseOffset, h.BaseEntry), Times: index.NewTimes(h.BaseOffset),
	}
}

// end is where the next entry goes.
func (x Extent) end() index.Place {
	return index.Place{Offset: x.NextOffset, Entry: x.NextEntry, Position: x.Size}
}

// slotsPerTime is how many slots of the index there are to one of the time
// index. Times are asked for more rarely than offsets, and then a few more KiB are read.
const slotsPerTime = 8

// with returns x with entry e behind it, whose header is f. The index gets a
// slot every indexBytes; it says false if the entry lies too far from the
// segment's base.
func (x Extent) with(f frame, e *Entry, indexBytes int64) (Extent, bool) {
	at := x.end()
	if !x.Index.Fits(at) {
		return x, false
	}
	if last, ok := x.Index.Last(); !ok || at.Position-last.Position >= indexBytes {
		x.Index = x.Index.Add(at)
		if x.Index.Len()%slotsPerTime == 0 {
			x.Times = x.Times.Add(at.Offset)
		}
	}
	x.Size += f.size()
	x.NextEntry++
	x.NextOffset = e.Next()
	x.LastTerm = f.term
	x.Times = x.Times.Raise(e.latest())
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
