package record

import (
	"encoding/binary"
)

// HeaderSize is the size of a batch's header: the least a batch can have. Bytes.
const HeaderSize = 61

// MaxBatchBytes is the most a batch can have, header included: 64 MiB. It keeps
// every size and position inside a batch within 32 bits, and bounds what one
// entry, one message and one read must hold in memory.
const MaxBatchBytes = 64 << 20

// Where the fields of the header begin, and what they mean; part of the format.
const (
	atBaseOffset      = 0  // int64
	atLength          = 8  // int32, bytes after this field
	atLeaderEpoch     = 12 // int32
	atMagic           = 16 // int8, 2
	atCRC             = 17 // uint32, CRC-32C of everything from attributes on
	atAttributes      = 21 // int16
	atLastOffsetDelta = 23 // int32
	atBaseTimestamp   = 27 // int64, ms
	atMaxTimestamp    = 35 // int64, ms
	atProducerID      = 43 // int64
	atProducerEpoch   = 51 // int16
	atBaseSequence    = 53 // int32
	atCount           = 57 // int32

	lengthEnd = atLength + 4 // what the length field does not count
	magic     = 2
)

// Bits of the attributes; part of the format.
const (
	attrCodec         = 0x07
	attrLogAppendTime = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
	attrDeleteHorizon = 0x40 // set by log compaction; changes nothing for a reader
	attrKnown         = attrCodec | attrLogAppendTime | attrTransactional | attrControl | attrDeleteHorizon
)

// Batch is the encoded form of one or more records: exactly one RecordBatch v2,
// header included, nothing before or after it.
//
// A Batch from elsewhere must pass CheckHeader (or come from Split) before any
// other method is called: they read the header without looking whether it is
// there. All methods but Stamp only read, so any number may run at once.
type Batch []byte

func (b Batch) int64At(i int) int64 { return int64(binary.BigEndian.Uint64(b[i:])) }
func (b Batch) int32At(i int) int32 { return int32(binary.BigEndian.Uint32(b[i:])) }
func (b Batch) int16At(i int) int16 { return int16(binary.BigEndian.Uint16(b[i:])) }

// Size returns the size of the whole batch in bytes, as its length field tells.
func (b Batch) Size() int { return lengthEnd + int(b.int32At(atLength)) }

// BaseOffset returns the offset of the first record, or of the first one there
// was before compaction. It is 0 until a leader stamps the batch.
func (b Batch) BaseOffset() Offset { return Offset(b.int64At(atBaseOffset)) }

// LastOffset returns the offset of the last record.
func (b Batch) LastOffset() Offset { return b.BaseOffset() + Offset(b.int32At(atLastOffsetDelta)) }

// NextOffset returns the offset after the last record: where the next batch begins.
func (b Batch) NextOffset() Offset { return b.LastOffset() + 1 }

// LeaderEpoch returns the epoch of the leader that stamped the batch, or NoLeaderEpoch.
func (b Batch) LeaderEpoch() LeaderEpoch { return LeaderEpoch(b.int32At(atLeaderEpoch)) }

// CRC returns the checksum that the header holds: CRC-32C of everything after it.
func (b Batch) CRC() uint32 { return binary.BigEndian.Uint32(b[atCRC:]) }

func (b Batch) attributes() int16 { return b.int16At(atAttributes) }

// Codec says how the records are compressed.
func (b Batch) Codec() Codec { return Codec(b.attributes() & attrCodec) }

// IsTransactional says whether the batch belongs to a transaction.
func (b Batch) IsTransactional() bool { return b.attributes()&attrTransactional != 0 }

// IsControl says whether the batch holds a marker instead of a user's records.
// Readers count its offset and do not show it.
func (b Batch) IsControl() bool { return b.attributes()&attrControl != 0 }

// HasLogAppendTime says whether the leader set the time of all records to the
// one of the append, which is MaxTimestamp.
func (b Batch) HasLogAppendTime() bool { return b.attributes()&attrLogAppendTime != 0 }

// BaseTimestamp returns the time of the first record, ms since 1970. Others of
// the batch may be earlier.
func (b Batch) BaseTimestamp() int64 { return b.int64At(atBaseTimestamp) }

// MaxTimestamp returns the latest time of any record, ms since 1970.
func (b Batch) MaxTimestamp() int64 { return b.int64At(atMaxTimestamp) }

// ProducerID returns the id of the producer, or NoProducerID.
func (b Batch) ProducerID() ProducerID { return ProducerID(b.int64At(atProducerID)) }

// ProducerEpoch returns the producer's epoch, -1 without a producer.
func (b Batch) ProducerEpoch() ProducerEpoch { return ProducerEpoch(b.int16At(atProducerEpoch)) }

// BaseSequence returns the sequence of the first record, or NoSequence.
func (b Batch) BaseSequence() Sequence { return Sequence(b.int32At(atBaseSequence)) }

// LastSequence returns the sequence of the last record, wrapped after 2^31-1,
// or NoSequence. It follows from the offsets, so compaction does not move it.
func (b Batch) LastSequence() Sequence {
	base := b.BaseSequence()
	if base < 0 {
		return NoSequence
	}
	return base.Add(b.int32At(atLastOffsetDelta))
}

// Count returns how many records the batch holds. After compaction that may be
// less than NextOffset - BaseOffset, even 0.
func (b Batch) Count() int32 { return b.int32At(atCount) }

// Stamp gives the batch its place: the leader's part of the header, written in
// place. The checksum does not cover it and stays right.
func (b Batch) Stamp(base Offset, epoch LeaderEpoch) {
	binary.BigEndian.PutUint64(b[atBaseOffset:], uint64(base))
	binary.BigEndian.PutUint32(b[atLeaderEpoch:], uint32(epoch))
}
