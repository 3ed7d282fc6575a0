package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"
	"slices"
	"time"
)

// MaxBatchBytes bounds what a Builder builds, before compression.
const MaxBatchBytes = 64 << 20

// BatchOptions say what stands in a batch's header. The zero value is a plain,
// uncompressed batch without an identity.
type BatchOptions struct {
	Codec         Codec
	Producer      *ProducerStamp // nil for none
	Transactional bool
	Control       bool
}

// ProducerStamp is the identity of an idempotent producer and the sequence of a
// batch's first record.
type ProducerStamp struct {
	ID       ProducerID
	Epoch    ProducerEpoch
	Sequence Sequence
}

// Builder encodes records into batches. The zero value is ready; Reset makes it
// ready again and keeps its memory. One goroutine at a time.
type Builder struct {
	buf     []byte // encoded records, behind room for the header
	count   int32
	base    int64 // ms, of the first record
	maxTime int64
}

// uvarintSize returns the encoded size of v in bytes.
func uvarintSize(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

func zigzag(v int64) uint64 { return uint64(v<<1) ^ uint64(v>>63) }

func varintSize(v int64) int { return uvarintSize(zigzag(v)) }

func bytesSize(b []byte) int {
	if b == nil {
		return 1 // length -1
	}
	return varintSize(int64(len(b))) + len(b)
}

func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	return append(binary.AppendVarint(dst, int64(len(b))), b...)
}

// bodySize returns the encoded size of r without its own length.
func bodySize(r *Record, timeDelta, offsetDelta int64) int {
	n := 1 + varintSize(timeDelta) + varintSize(offsetDelta) + bytesSize(r.Key) + bytesSize(r.Value) + varintSize(int64(len(r.Headers)))
	for i := range r.Headers {
		h := &r.Headers[i]
		n += varintSize(int64(len(h.Key))) + len(h.Key) + bytesSize(h.Value)
	}
	return n
}

// SizeOf returns an upper bound of the encoded size of r in bytes.
func SizeOf(r *Record) int {
	n := bodySize(r, 0, 0) + 2*binary.MaxVarintLen64
	return n + binary.MaxVarintLen32
}

// Append encodes r into the batch. It copies what it needs, so r may be reused.
// A zero r.Time is now. *TooLargeError if the batch would pass MaxBatchBytes;
// it is then as before.
func (b *Builder) Append(r *Record) error {
	var ms int64
	if r.Time.IsZero() {
		ms = time.Now().UnixMilli()
	} else {
		ms = r.Time.UnixMilli()
	}
	if b.count == 0 {
		b.buf = slices.Grow(b.buf[:0], HeaderSize)[:HeaderSize]
		b.base, b.maxTime = ms, ms
	}
	timeDelta, offsetDelta := ms-b.base, int64(b.count)
	body := bodySize(r, timeDelta, offsetDelta)
	if total := len(b.buf) + varintSize(int64(body)) + body; total > MaxBatchBytes {
		return &TooLargeError{What: "batch", Size: total, Limit: MaxBatchBytes}
	}
	buf := binary.AppendVarint(b.buf, int64(body))
	buf = append(buf, 0) // attributes, unused
	buf = binary.AppendVarint(buf, timeDelta)
	buf = binary.AppendVarint(buf, offsetDelta)
	buf = appendBytes(buf, r.Key)
	buf = appendBytes(buf, r.Value)
	buf = binary.AppendVarint(buf, int64(len(r.Headers)))
	for i := range r.Headers {
		h := &r.Headers[i]
		buf = binary.AppendVarint(buf, int64(len(h.Key)))
		buf = append(buf, h.Key...)
		buf = appendBytes(buf, h.Value)
	}
	b.buf = buf
	b.maxTime = max(b.maxTime, ms)
	b.count++
	return nil
}

// Len returns the size of the batch in bytes if it were built now, uncompressed.
func (b *Builder) Len() int {
	if b.count == 0 {
		return HeaderSize
	}
	return len(b.buf)
}

// Count returns the number of records in the batch.
func (b *Builder) Count() int32 { return b.count }

// Reset empties the builder and keeps its memory.
func (b *Builder) Reset() { b.buf, b.count = b.buf[:0], 0 }

// Build returns the batch in memory of its own, not placed yet: base offset 0,
// leader epoch NoLeaderEpoch. The builder is unchanged. ErrInvalid when it is empty.
func (b *Builder) Build(opt BatchOptions) (Batch, error) {
	if b.count == 0 {
		return nil, fmt.Errorf("%w: a batch needs a record", ErrInvalid)
	}
	out, err := opt.Codec.compress(make([]byte, HeaderSize, len(b.buf)), b.buf[HeaderSize:])
	if err != nil {
		return nil, err
	}
	batch := Batch(out)
	attributes := uint16(opt.Codec)
	if opt.Transactional {
		attributes |= attrTransactional
	}
	if opt.Control {
		attributes |= attrControl
	}
	batch.Stamp(0, NoLeaderEpoch)
	be := binary.BigEndian
	be.PutUint32(batch[posLength:], uint32(len(batch)-lengthOverhead))
	batch[posMagic] = magic
	be.PutUint16(batch[posAttributes:], attributes)
	be.PutUint32(batch[posLastOffsetDelta:], uint32(b.count-1))
	be.PutUint64(batch[posBaseTimestamp:], uint64(b.base))
	be.PutUint64(batch[posMaxTimestamp:], uint64(b.maxTime))
	be.PutUint32(batch[posCount:], uint32(b.count))
	batch.seal(opt.Producer)
	return batch, nil
}

// seal writes the producer's fields and the checksum.
func (b Batch) seal(p *ProducerStamp) {
	if p == nil {
		p = &ProducerStamp{ID: NoProducerID, Epoch: -1, Sequence: NoSequence}
	}
	be := binary.BigEndian
	be.PutUint64(b[posProducerID:], uint64(p.ID))
	be.PutUint16(b[posProducerEpoch:], uint16(p.Epoch))
	be.PutUint32(b[posBaseSequence:], uint32(p.Sequence))
	be.PutUint32(b[posCRC:], crc32.Checksum(b[posAttributes:], castagnoli))
}

// Reissue returns a copy of b under another stamp (nil for none) that is not
// placed yet. It reads nothing that Stamp writes, so b may be in a log already.
func (b Batch) Reissue(p *ProducerStamp) Batch {
	c := make(Batch, len(b))
	copy(c[posLength:posLeaderEpoch], b[posLength:])
	copy(c[posMagic:], b[posMagic:])
	c.Stamp(0, NoLeaderEpoch)
	c.seal(p)
	return c
}
