package segment

import (
	"math"

	"github.com/quorumlog/quorumlog/record"
)

// Kind says what an entry holds.
type Kind uint8

// Constants of the format.
const (
	KindBatch         Kind = 1 // a record batch; takes offsets
	KindNoop          Kind = 2 // Raft's no-op, or a refused batch; takes none
	KindBarrier       Kind = 3 // Raft's barrier; takes none
	KindConfiguration Kind = 4 // Raft's membership; takes none
	KindCommand       Kind = 5 // the replicas' own, such as a trim; takes none
)

// Entry is one entry of a partition's log.
type Entry struct {
	Number record.EntryNumber
	Term   uint64
	Kind   Kind
	// Offset is the base offset of a batch. For other kinds it is the log end
	// offset at that place: the offset the next record gets.
	Offset record.Offset
	// Data is the payload: for KindBatch a stamped record.Batch whose base
	// offset is Offset and whose leader epoch is Term.
	Data []byte
}

// Next returns the offset of the first record after e.
func (e *Entry) Next() record.Offset {
	if e.Kind != KindBatch {
		return e.Offset
	}
	return record.Batch(e.Data).NextOffset()
}

// latest returns the latest time of e's records as far as they count for
// Segment.FindTime, math.MinInt64 without one.
func (e *Entry) latest() int64 {
	if e.Kind != KindBatch || record.Batch(e.Data).IsControl() {
		return math.MinInt64
	}
	return record.Batch(e.Data).MaxTimestamp()
}
