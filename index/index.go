// Package index finds the position of an offset, an entry number or a time in a
// segment file. An index is sparse: one slot per few KiB of entries, from which a
// reader goes on entry by entry. It is derived from the .log beside it, which alone is
// truth: a file that is missing or does not check is built again.
//
// # The .index
//
//	 0                8       12     16            20           28
//	+----------------+-------+------+-------------+------------+--------------+
//	| magic QLOGINDX | ver 1 | crcA | log's crc   | base offset| base entry   |
//	+----------------+-------+------+-------------+------------+--------------+
//	 36            44           52          60         68       72
//	+-------------+------------+-----------+----------+--------+--------------+------+
//	| next offset | next entry | last term | log size | count  | count slots  | crcB |
//	+-------------+------------+-----------+----------+--------+--------------+------+
//
//	slot, 12 bytes: offset - base offset | entry - base entry | position
//
// Integers are big-endian and unsigned; checksums are CRC-32C. crcA covers
// bytes 0..12 and is in the same place in every version, so an unknown version
// is told from damage; crcB covers all bytes from 16 up to itself. "log's crc" is the
// checksum in the header of the .log that the index belongs to. Positions in a
// slot are of an entry's first byte in the .log.
//
// # The .timeindex
//
// The header is the same but for its magic and bytes 28..36, which hold the
// latest time of all records:
//
//	 0                8       12     16            20           28
//	+----------------+-------+------+-------------+------------+--------------+
//	| magic QLOGTIME | ver 1 | crcA | log's crc   | base offset| latest time  |
//	+----------------+-------+------+-------------+------------+--------------+
//
//	slot, 12 bytes: latest time (8) | offset - base offset (4)
//
// A slot's time is the latest of all records of the segment below its offset, so
// neither field ever falls from slot to slot. Times are signed, ms since 1970;
// -2^63 is that of no record. What counts is the max timestamp in the header of
// a batch; control batches do not count.
//
// # Crash rules
//
// A file says that the first "log size" bytes of the .log were on disk before
// it was, and what they hold. Each is replaced atomically, and both are removed
// before those bytes are cut. A .timeindex is used only if all that its header says of the
// .log is what the .index, or a scan, says.
//
// Index and Times are values, like slices: Add and Cut return the new one, the
// old one stays as it was, so readers may go on with it beside the one writer.
package index

import (
	"math"
	"slices"
	"sort"

	"github.com/quorumlog/quorumlog/record"
)

// Place is where an entry begins in the segment file.
type Place struct {
	Offset   record.Offset
	Entry    record.EntryNumber
	Position int64
}

// Index maps offsets and entry numbers of one segment to places. Use New.
type Index struct {
	baseOffset record.Offset
	baseEntry  record.EntryNumber
	slots      []slot // entries and positions rise, offsets never fall
}

type slot struct{ offset, entry, position uint32 }

// New returns an empty index of the segment that begins there.
func New(baseOffset record.Offset, baseEntry record.EntryNumber) Index {
	return Index{baseOffset: baseOffset, baseEntry: baseEntry}
}

// Fits reports whether p can be a slot: within 32 bits of the segment's base.
func (x Index) Fits(p Place) bool {
	return p.Offset >= x.baseOffset && uint64(p.Offset-x.baseOffset) <= math.MaxUint32 &&
		p.Entry >= x.baseEntry && uint64(p.Entry-x.baseEntry) <= math.MaxUint32 &&
		p.Position >= 0 && p.Position <= math.MaxUint32
}

// Add returns x with a slot for p, which must fit and lie behind the last one.
// Like append it may share memory with x; only the newest value may be added to.
func (x Index) Add(p Place) Index {
	x.slots = append(x.slots, slot{
		offset:   uint32(p.Offset - x.baseOffset),
		entry:    uint32(p.Entry - x.baseEntry),
		position: uint32(p.Position),
	})
	return x
}

// Cut returns x without the slots at position size and behind it.
func (x Index) Cut(size int64) Index {
	n := sort.Search(len(x.slots), func(i int) bool { return int64(x.slots[i].position) >= size })
	x.slots = slices.Clip(x.slots[:n]) // readers may hold the longer one: Add must not write into it
	return x
}

// Len returns the number of slots.
func (x Index) Len() int { return len(x.slots) }

// Last returns the last slot; false when there is none.
func (x Index) Last() (Place, bool) { return x.at(len(x.slots) - 1) }

// Offset returns the last slot at or below offset: the entry that holds it is
// there or follows. False when there is none.
func (x Index) Offset(offset record.Offset) (Place, bool) {
	return x.at(x.above(offset) - 1)
}

// Above returns the first slot above offset; false when there is none.
func (x Index) Above(offset record.Offset) (Place, bool) { return x.at(x.above(offset)) }

// Entry returns the last slot at or below entry n; false when there is none.
func (x Index) Entry(n record.EntryNumber) (Place, bool) {
	if n < x.baseEntry {
		return Place{}, false
	}
	rel := uint64(n - x.baseEntry)
	return x.at(sort.Search(len(x.slots), func(i int) bool { return uint64(x.slots[i].entry) > rel }) - 1)
}

// Behind returns the first slot behind a position; false when there is none.
func (x Index) Behind(position int64) (Place, bool) {
	return x.at(sort.Search(len(x.slots), func(i int) bool { return int64(x.slots[i].position) > position }))
}

func (x Index) above(offset record.Offset) int {
	rel := int64(offset) - int64(x.baseOffset) // both are not negative: no overflow
	return sort.Search(len(x.slots), func(i int) bool { return int64(x.slots[i].offset) > rel })
}

func (x Index) at(i int) (Place, bool) {
	if i < 0 || i >= len(x.slots) {
		return Place{}, false
	}
	s := x.slots[i]
	return Place{
		Offset:   x.baseOffset + record.Offset(s.offset),
		Entry:    x.baseEntry + record.EntryNumber(s.entry),
		Position: int64(s.position),
	}, true
}
