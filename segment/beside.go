package segment

import (
	"fmt"

	"github.com/quorumlog/quorumlog/index"
)

// beside compares the files beside a .log with its entries, as Verify comes to them.
type beside struct {
	index side
	slots index.Index
	slot  index.Place // the next one
	more  bool        // there is one

	times  side
	latest index.Times
}

// side is what both files have in common: they speak of the first bytes of the
// .log. That may be fewer than there are, if they could not be written since.
type side struct {
	sum  index.Summary
	done bool // nothing more to compare
	bad  func(reason string)
}

func (s *side) open(v *verifier, err error) {
	s.done = false
	switch {
	case err != nil:
		s.fail(err.Error())
	case s.sum.LogSum != v.s.seed:
		s.fail("index of another segment")
	case s.sum.Size > v.x.Size:
		s.fail(fmt.Sprintf("index speaks of %d bytes, there are %d", s.sum.Size, v.x.Size))
	}
}

// fail reports the file; once is enough.
func (s *side) fail(reason string) {
	if !s.done {
		s.done = true
		s.bad(reason)
	}
}

// at is called where an entry begins, and at the end.
func (s *side) at(p index.Place, lastTerm uint64) {
	if s.done || p.Position < s.sum.Size {
		return
	}
	if p != (index.Place{Offset: s.sum.NextOffset, Entry: s.sum.NextEntry, Position: s.sum.Size}) || lastTerm != s.sum.LastTerm {
		s.fail("index does not fit what it speaks of")
	}
	s.done = true
}

// skip is called for bytes that are damaged.
func (s *side) skip(from, to int64) {
	s.done = s.done || from < s.sum.Size && s.sum.Size <= to
}

func (b *beside) at(p index.Place, lastTerm uint64) {
	if !b.index.done && b.more && b.slot.Position <= p.Position {
		if b.slot != p {
			b.index.fail(fmt.Sprintf("its slot for position %d is wrong", b.slot.Position))
		}
		b.slot, b.more = b.slots.Behind(p.Position)
	}
	b.index.at(p, lastTerm)
	b.times.at(p, lastTerm)
}

// passed is called for each entry, with the position behind it.
func (b *beside) passed(e *Entry, pos int64) {
	if !b.times.done && pos <= b.times.sum.Size && e.latest() > b.latest.Bound(e.Next()) {
		b.times.fail(fmt.Sprintf("it says that no record below offset %d is as late as one is", e.Next()))
	}
}

func (b *beside) skip(from, to int64) {
	b.slot, b.more = b.slots.Behind(to - 1)
	b.index.skip(from, to)
	b.times.skip(from, to)
}

func (b *beside) end() {
	b.index.fail("index does not fit what it speaks of")
	b.times.fail("index does not fit what it speaks of")
}
