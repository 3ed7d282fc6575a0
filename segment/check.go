package segment

import (
	"fmt"
	"hash/crc32"
	"math"

	"github.com/quorumlog/quorumlog/record"
)

// MaxPayload is the most bytes an entry's Data may have. A longer one in a file is damage.
const MaxPayload = record.MaxBatchBytes

func (k Kind) known() bool { return k >= KindBatch && k <= KindCommand }

// Size returns the bytes that e takes in a file.
func (e *Entry) Size() int64 { return frameSize + int64(len(e.Data)) }

// Check reports whether e could be read back: a known kind, a batch that is
// whole and stamped with e's offset and term. It reads all of Data. The errors
// are a *record.TooLargeError, or match record.ErrInvalid or record.ErrCorrupt.
func (e *Entry) Check() error {
	switch {
	case !e.Kind.known():
		return fmt.Errorf("%w: entry %d has the unknown kind %d", record.ErrInvalid, e.Number, e.Kind)
	case e.Number < 1 || e.Offset < 0:
		return fmt.Errorf("%w: entry %d at offset %d", record.ErrInvalid, e.Number, e.Offset)
	case len(e.Data) > MaxPayload:
		return &record.TooLargeError{What: "entry", Size: len(e.Data), Limit: MaxPayload}
	case e.Kind != KindBatch:
		return nil
	}
	b := record.Batch(e.Data)
	if err := b.Check(); err != nil {
		return fmt.Errorf("entry %d: %w", e.Number, err)
	}
	if b.BaseOffset() != e.Offset || e.Term > math.MaxInt32 || b.LeaderEpoch() != record.LeaderEpoch(e.Term) {
		return fmt.Errorf("%w: entry %d has offset %d and term %d, its batch is stamped %d and %d",
			record.ErrInvalid, e.Number, e.Offset, e.Term, b.BaseOffset(), b.LeaderEpoch())
	}
	return nil
}

// frame returns the header of e, which has been checked.
func (e *Entry) frame(unsynced uint64) frame {
	f := frame{
		length: uint32(len(e.Data)), number: e.Number, term: e.Term, offset: e.Offset, kind: e.Kind,
		unsynced: uint32(min(unsynced, manyUnsynced)),
	}
	if e.Kind == KindBatch {
		f.sum = record.Batch(e.Data).CRC()
	} else {
		f.sum = crc32.Checksum(e.Data, castagnoli)
	}
	return f
}
