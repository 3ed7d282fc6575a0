package segment

import (
	"hash/crc32"
	"math"

	"github.com/quorumlog/quorumlog/record"
)

// Constants of the format.
const (
	frameSize = 40 // an entry's header
	// manyUnsynced stands in the field for itself and everything above.
	manyUnsynced = 1<<24 - 1
)

// frame is an entry's header.
type frame struct {
	length   uint32 // of the payload
	number   record.EntryNumber
	term     uint64
	offset   record.Offset
	sum      uint32 // of the payload
	kind     Kind
	unsynced uint32 // at most manyUnsynced
}

// put writes f into b. seed is the checksum of the file header.
func (f frame) put(b []byte, seed uint32) {
	b = b[:frameSize]
	be.PutUint32(b[4:], f.length)
	be.PutUint64(b[8:], uint64(f.number))
	be.PutUint64(b[16:], f.term)
	be.PutUint64(b[24:], uint64(f.offset))
	be.PutUint32(b[32:], f.sum)
	be.PutUint32(b[36:], uint32(f.kind)<<24|f.unsynced)
	be.PutUint32(b, crc32.Update(seed, castagnoli, b[4:]))
}

// decodeFrame reads an entry's header from b, of at least frameSize bytes; false
// if the bytes are none.
func decodeFrame(b []byte, seed uint32) (frame, bool) {
	b = b[:frameSize]
	f := frame{
		length:   be.Uint32(b[4:]),
		number:   record.EntryNumber(be.Uint64(b[8:])),
		term:     be.Uint64(b[16:]),
		offset:   record.Offset(be.Uint64(b[24:])),
		sum:      be.Uint32(b[32:]),
		kind:     Kind(b[36]),
		unsynced: be.Uint32(b[36:]) & manyUnsynced,
	}
	ok := f.kind.known() && f.length <= MaxPayload && f.offset >= 0 &&
		be.Uint32(b) == crc32.Update(seed, castagnoli, b[4:])
	return f, ok
}

// size returns the bytes that the entry takes in the file.
func (f frame) size() int64 { return frameSize + int64(f.length) }

// matches says what is wrong with a payload, "" if it is the one that was written.
func (f frame) matches(payload []byte) string {
	if f.kind != KindBatch {
		if crc32.Checksum(payload, castagnoli) != f.sum {
			return "payload has a wrong checksum"
		}
		return ""
	}
	b := record.Batch(payload)
	switch err := b.Check(); {
	case err != nil:
		return err.Error()
	case b.CRC() != f.sum || b.BaseOffset() != f.offset || f.term > math.MaxInt32 || b.LeaderEpoch() != record.LeaderEpoch(f.term):
		return "batch is not the one that the entry's header tells of"
	}
	return ""
}

// entry returns the entry that f heads.
func (f frame) entry(payload []byte) Entry {
	return Entry{Number: f.number, Term: f.term, Kind: f.kind, Offset: f.offset, Data: payload}
}
