package log

import (
	"sort"

	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

// part is one segment and what it holds.
type part struct {
	seg *segment.Segment
	ext segment.Extent
}

// view is what the log holds at one moment. Readers load the newest and go on
// with it beside the writer; a view, once published, is never changed.
type view struct {
	sealed []part // full ones, oldest first, without a gap
	active part   // the last one, which is appended to
	// cuts counts how often something was taken off the end. A reader whose view
	// has another number than the newest may have read bytes that were not there
	// when its view was made, and reads again.
	cuts uint64
}

func (v *view) first() part {
	if len(v.sealed) > 0 {
		return v.sealed[0]
	}
	return v.active
}

func (v *view) bounds() Bounds {
	first := v.first().seg
	return Bounds{
		First: first.BaseEntry, Next: v.active.ext.NextEntry,
		PrevTerm: first.PrevTerm, LastTerm: v.active.ext.LastTerm,
		Start: first.BaseOffset, End: v.active.ext.NextOffset,
	}
}

// parts returns all segments, oldest first.
func (v *view) parts(yield func(part) bool) {
	for _, p := range v.sealed {
		if !yield(p) {
			return
		}
	}
	yield(v.active)
}

// offset returns the segment that holds an offset of the log, or the active one.
func (v *view) offset(offset record.Offset) part {
	return v.at(sort.Search(len(v.sealed), func(i int) bool { return v.sealed[i].ext.NextOffset > offset }))
}

// entry returns the segment that holds an entry of the log, or the active one.
func (v *view) entry(n record.EntryNumber) part {
	return v.at(v.searchEntry(n))
}

func (v *view) searchEntry(n record.EntryNumber) int {
	return sort.Search(len(v.sealed), func(i int) bool { return v.sealed[i].ext.NextEntry > n })
}

func (v *view) at(i int) part {
	if i < len(v.sealed) {
		return v.sealed[i]
	}
	return v.active
}
