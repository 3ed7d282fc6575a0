package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Batch is one whole record batch, header and records, exactly as it is stored
// and replicated. See the package comment for its bytes. Accessors are safe
// once CheckHeader has returned nil.
type Batch []byte

// HeaderSize is the size of a batch without records. Constant of the format.
const HeaderSize = 61

// Positions of the fields. Constants of the format.
const (
	posBaseOffset      = 0
	posLength          = 8
	posLeaderEpoch     = 12
	posMagic           = 16
	posCRC             = 17
	posAttributes      = 21
	posLastOffsetDelta = 23
	posBaseTimestamp   = 27
	posMaxTimestamp    = 35
	posProducerID      = 43
	posProducerEpoch   = 51
	posBaseSequence    = 53
	posCount           = 57

	lengthOverhead = posLeaderEpoch // bytes that the length field does not count

	magic = 2

	attrCodec         = 0x07
	attrLogAppendTime = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (b Batch) u16(pos int) uint16 { return binary.BigEndian.Uint16(b[pos:]) }
func (b Batch) u32(pos int) uint32 { return binary.BigEndian.Uint32(b[pos:]) }
func (b Batch) u64(pos int) uint64 { return binary.BigEndian.Uint64(b[pos:]) }

// Size returns the size in bytes that the header claims.
func (b Batch) Size() int { return lengthOverhead + int(int32(b.u32(posLength))) }

// BaseOffset returns the offset of the first record.
func (b Batch) BaseOffset() Offset { return Offset(b.u64(posBaseOffset)) }

// LastOffset returns the offset of the last record.
func (b Batch) LastOffset() Offset { return b.BaseOffset() + Offset(int32(b.u32(posLastOffsetDelta))) }

// NextOffset returns the offset of the first record after the batch.
func (b Batch) NextOffset() Offset { return b.LastOffset() + 1 }

// LeaderEpoch returns the epoch of the leader that placed the batch.
func (b Batch) LeaderEpoch() LeaderEpoch { return LeaderEpoch(b.u32(posLeaderEpoch)) }

// CRC returns the CRC-32C that the header claims.
func (b Batch) CRC() uint32 { return b.u32(posCRC) }

// Codec returns how the records are compressed.
func (b Batch) Codec() Codec { return Codec(b.u16(posAttributes) & attrCodec) }

// HasLogAppendTime reports whether MaxTimestamp is the time of every record.
func (b Batch) HasLogAppendTime() bool { return b.u16(posAttributes)&attrLogAppendTime != 0 }

// IsTransactional reports whether the batch belongs to a transaction.
func (b Batch) IsTransactional() bool { return b.u16(posAttributes)&attrTransactional != 0 }

// IsControl reports whether the batch is a marker, not user data.
func (b Batch) IsControl() bool { return b.u16(posAttributes)&attrControl != 0 }

// BaseTimestamp returns what records' times are relative to, in ms since 1970.
func (b Batch) BaseTimestamp() int64 { return int64(b.u64(posBaseTimestamp)) }

// MaxTimestamp returns the largest time of a record, in ms since 1970.
func (b Batch) MaxTimestamp() int64 { return int64(b.u64(posMaxTimestamp)) }

// ProducerID returns who wrote the batch, or NoProducerID.
func (b Batch) ProducerID() ProducerID { return ProducerID(b.u64(posProducerID)) }

// ProducerEpoch returns the incarnation of the producer.
func (b Batch) ProducerEpoch() ProducerEpoch { return ProducerEpoch(b.u16(posProducerEpoch)) }

// BaseSequence returns the sequence of the first record, or NoSequence.
func (b Batch) BaseSequence() Sequence { return Sequence(b.u32(posBaseSequence)) }

// LastSequence returns the sequence of the last record, or NoSequence.
func (b Batch) LastSequence() Sequence {
	first := b.BaseSequence()
	if first == NoSequence {
		return NoSequence
	}
	return first.Add(int32(b.u32(posLastOffsetDelta)))
}

// Count returns the number of records.
func (b Batch) Count() int32 { return int32(b.u32(posCount)) }

// Stamp sets base offset and leader epoch in place. Both lie outside the CRC.
func (b Batch) Stamp(base Offset, epoch LeaderEpoch) {
	binary.BigEndian.PutUint64(b[posBaseOffset:], uint64(base))
	binary.BigEndian.PutUint32(b[posLeaderEpoch:], uint32(epoch))
}

// CheckHeader checks that b is one batch as far as its header tells: size,
// magic, known codec, and counts that fit each other. The error is a *BatchError.
func (b Batch) CheckHeader() error {
	if len(b) < HeaderSize {
		return &BatchError{BaseOffset: NoOffset, Reason: fmt.Sprintf("%d bytes are less than a header", len(b))}
	}
	bad := func(format string, args ...any) error {
		return &BatchError{BaseOffset: b.BaseOffset(), Reason: fmt.Sprintf(format, args...)}
	}
	delta, count := int32(b.u32(posLastOffsetDelta)), b.Count()
	switch {
	case b[posMagic] != magic:
		return bad("magic is %d, want %d", b[posMagic], magic)
	case b.Size() != len(b):
		return bad("its length says %d bytes, there are %d", b.Size(), len(b))
	case !b.Codec().known():
		return bad("codec %d is unknown", b.Codec())
	case delta < 0 || count < 0:
		return bad("last offset delta %d and count %d are not counts", delta, count)
	case int64(count) > int64(delta)+1:
		return bad("%d records do not fit into %d offsets", count, int64(delta)+1)
	case b.BaseOffset() < 0 || b.NextOffset() < 0:
		return bad("offset is out of range")
	}
	return nil
}

// Check is CheckHeader and the checksum. The error is a *BatchError.
func (b Batch) Check() error {
	if err := b.CheckHeader(); err != nil {
		return err
	}
	if sum := crc32.Checksum(b[posAttributes:], castagnoli); sum != b.CRC() {
		return &BatchError{BaseOffset: b.BaseOffset(), Reason: fmt.Sprintf("checksum is %08x, its bytes give %08x", b.CRC(), sum)}
	}
	return nil
}

// Split takes the first batch off the front of buf. Its header is checked, its
// checksum is not. The error is a *BatchError.
func Split(buf []byte) (b Batch, rest []byte, err error) {
	if len(buf) < HeaderSize {
		return nil, buf, &BatchError{BaseOffset: NoOffset, Reason: fmt.Sprintf("%d bytes are less than a header", len(buf))}
	}
	n := Batch(buf).Size()
	if n < HeaderSize || n > len(buf) {
		return nil, buf, &BatchError{BaseOffset: Batch(buf).BaseOffset(), Reason: fmt.Sprintf("its length says %d bytes, there are %d", n, len(buf))}
	}
	b = Batch(buf[:n:n])
	if err := b.CheckHeader(); err != nil {
		return nil, buf, err
	}
	return b, buf[n:], nil
}
