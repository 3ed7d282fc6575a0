package index

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/quorumlog/quorumlog/record"
)

// Times tells from where on a segment may hold a record of a time or a later
// one. Times are ms since 1970, any int64. The zero value knows nothing: see
// Known. Use NewTimes.
//
// It holds upper bounds, each of all records below an offset. They may be too
// high, which costs a reader time; none is ever too low. It is told the latest
// time that each batch's header claims, for control batches none.
type Times struct {
	known      bool
	baseOffset record.Offset
	latest     int64      // bound of all records
	slots      []timeSlot // neither field ever falls
}

// timeSlot says that no record below baseOffset+offset is later than latest.
type timeSlot struct {
	latest int64
	offset uint32
}

// NewTimes returns the time index of a segment that begins there and is empty.
func NewTimes(baseOffset record.Offset) Times {
	return Times{known: true, baseOffset: baseOffset, latest: math.MinInt64}
}

// Known reports whether x says anything.
func (x Times) Known() bool { return x.known }

// Latest returns the bound of all records: none is later.
func (x Times) Latest() int64 { return x.latest }

// Raise returns x for a segment with one batch more.
func (x Times) Raise(latest int64) Times {
	x.latest = max(x.latest, latest)
	return x
}

// Add returns x with a slot at offset, which must lie at or above the last one and
// within 32 bits of the segment's base: the bound so far is that of the records
// below offset. Like append it may share memory with x; only the newest value may
// be added to.
func (x Times) Add(offset record.Offset) Times {
	if x.known {
		x.slots = append(x.slots, timeSlot{latest: x.latest, offset: uint32(offset - x.baseOffset)})
	}
	return x
}

// Cut returns x without the slots above end, and the offset of the last slot
// that is left, or the base. Its bound is that of the records below that offset: Raise it for those
// from there to end.
func (x Times) Cut(end record.Offset) (Times, record.Offset) {
	n := sort.Search(len(x.slots), func(i int) bool { return x.at(i) > end })
	x.slots = slices.Clip(x.slots[:n]) // others may hold the longer one: Add must not write into it
	if n == 0 {
		x.latest = math.MinInt64
		return x, x.baseOffset
	}
	x.latest = x.slots[n-1].latest
	return x, x.at(n - 1)
}

// Below returns the highest offset known to have only records before t below
// it: the first one at or after t, if there is one, is not far behind.
func (x Times) Below(t int64) record.Offset {
	n := sort.Search(len(x.slots), func(i int) bool { return x.slots[i].latest >= t })
	if n == 0 {
		return x.baseOffset
	}
	return x.at(n - 1)
}

// Bound returns the bound of the records below end: none of them is later.
func (x Times) Bound(end record.Offset) int64 {
	if n := sort.Search(len(x.slots), func(i int) bool { return x.at(i) >= end }); n < len(x.slots) {
		return x.slots[n].latest
	}
	return x.latest
}

func (x Times) at(i int) record.Offset { return x.baseOffset + record.Offset(x.slots[i].offset) }

// Encode returns the .timeindex file.
func (x Times) Encode(s Summary) []byte {
	b := begin(timeMagic, s, x.baseOffset, uint64(x.latest), len(x.slots))
	for _, e := range x.slots {
		b = be.AppendUint64(b, uint64(e.latest))
		b = be.AppendUint32(b, e.offset)
	}
	return end(b)
}

// DecodeTimes reads a .timeindex file, as Decode does an .index.
func DecodeTimes(b []byte) (Times, Summary, error) {
	s, base, latest, slots, err := parse(timeMagic, b)
	if err != nil {
		return Times{}, Summary{}, fmt.Errorf("time %w", err)
	}
	x := NewTimes(base)
	x.latest = int64(latest)
	x.slots = make([]timeSlot, len(slots)/slotSize)
	for i := range x.slots {
		p := slots[slotSize*i:]
		x.slots[i] = timeSlot{latest: int64(be.Uint64(p)), offset: be.Uint32(p[8:])}
	}
	if err := x.check(s); err != nil {
		return Times{}, Summary{}, err
	}
	return x, s, nil
}

func (x Times) check(s Summary) error {
	before := timeSlot{latest: math.MinInt64}
	for i, e := range x.slots {
		if e.latest < before.latest || e.offset < before.offset {
			return fmt.Errorf("time index slot %d goes backwards", i)
		}
		before = e
	}
	if before.latest > x.latest || record.Offset(before.offset) > s.NextOffset-x.baseOffset {
		return errors.New("time index slots lie behind the end")
	}
	return nil
}
