package record

import (
	"encoding/binary"
	"fmt"
	"time"
)

// BatchOptions says what a batch is apart from its records. BatchOptions{} is
// an uncompressed batch without protection against duplicates.
type BatchOptions struct {
	Codec         Codec          // default None
	Producer      *ProducerStamp // nil: none
	Transactional bool           // part of the producer's open transaction
	Control       bool           // a marker; see ControlType
}

// Builder collects records and encodes them as one batch. The zero value is
// ready. One goroutine may use it at a time.
type Builder struct {
	buf           []byte // room for the header, then the encoded records
	count         int32
	base, maximum int64 // timestamps, ms
}

// Append adds r, whose bytes are copied at once. A zero r.Time means now; time
// finer than a millisecond is cut off. Offset, epoch, topic and partition do
// not count. It returns a *TooLargeError, and adds nothing, when the batch
// would pass MaxBatchBytes without compression.
func (b *Builder) Append(r *Record) error {
	now := int64(0)
	if r.Time.IsZero() {
		now = time.Now().UnixMilli()
	}
	return b.AppendAt(r, now)
}

// AppendAt is Append for who knows the time already: a zero r.Time means now, in
// milliseconds since 1970.
func (b *Builder) AppendAt(r *Record, now int64) error {
	if r.Time.IsZero() {
		return b.append(r, now)
	}
	return b.append(r, r.Time.UnixMilli())
}

func (b *Builder) append(r *Record, timestamp int64) error {
	base, maximum := b.base, max(b.maximum, timestamp)
	if b.count == 0 {
		base, maximum = timestamp, timestamp
	}
	delta := timestamp - base
	body := 1 + varintSize(delta) + varintSize(int64(b.count)) + fieldsSize(r)
	size := varintSize(int64(body)) + body
	switch {
	case size > MaxBatchBytes-HeaderSize:
		return &TooLargeError{What: "record", Size: size, Limit: MaxBatchBytes - HeaderSize}
	case size > MaxBatchBytes-b.Len():
		return &TooLargeError{What: "batch", Size: b.Len() + size, Limit: MaxBatchBytes}
	}
	if len(b.buf) == 0 {
		b.buf = append(b.buf, make([]byte, HeaderSize)...)
	}
	buf := binary.AppendVarint(b.buf, int64(body))
	buf = append(buf, 0) // attributes of the record: none are defined
	buf = binary.AppendVarint(buf, delta)
	buf = binary.AppendVarint(buf, int64(b.count))
	buf = appendBytes(buf, r.Key)
	buf = appendBytes(buf, r.Value)
	buf = binary.AppendVarint(buf, int64(len(r.Headers)))
	for i := range r.Headers {
		h := &r.Headers[i]
		buf = binary.AppendVarint(buf, int64(len(h.Key)))
		buf = append(buf, h.Key...)
		buf = appendBytes(buf, h.Value)
	}
	b.buf, b.base, b.maximum = buf, base, maximum
	b.count++
	return nil
}

// Len returns the size in bytes that the batch has now, before compression.
func (b *Builder) Len() int { return max(len(b.buf), HeaderSize) }

// Count returns how many records have been added.
func (b *Builder) Count() int32 { return b.count }

// Reset forgets the records and keeps the memory.
func (b *Builder) Reset() {
	*b = Builder{buf: b.buf[:0]}
}

// Build encodes the records as a batch in fresh memory, which is the caller's:
// base offset 0, NoLeaderEpoch, ready to be stamped. Records that the codec
// does not make smaller stay uncompressed, so the batch is never above Len.
// The builder is unchanged: it can build again, grow, or be Reset. Without a
// record, or with options that make no sense, it returns ErrInvalid.
func (b *Builder) Build(opt BatchOptions) (Batch, error) {
	if err := opt.validate(); err != nil {
		return nil, err
	}
	if b.count == 0 {
		return nil, fmt.Errorf("%w: a batch needs a record", ErrInvalid)
	}
	out, codec, err := pack(opt.Codec, b.buf)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", opt.Codec, err)
	}
	b.putHeader(out, codec, opt)
	return out, nil
}

func (b *Builder) putHeader(out Batch, codec Codec, opt BatchOptions) {
	attributes := int16(codec)
	if opt.Transactional {
		attributes |= attrTransactional
	}
	if opt.Control {
		attributes |= attrControl
	}
	be := binary.BigEndian
	be.PutUint32(out[atLength:], uint32(len(out)-lengthEnd))
	out[atMagic] = magic
	be.PutUint16(out[atAttributes:], uint16(attributes))
	be.PutUint32(out[atLastOffsetDelta:], uint32(b.count-1))
	be.PutUint64(out[atBaseTimestamp:], uint64(b.base))
	be.PutUint64(out[atMaxTimestamp:], uint64(b.maximum))
	be.PutUint32(out[atCount:], uint32(b.count))
	out.seal(opt.Producer)
}

func (o BatchOptions) validate() error {
	if !o.Codec.known() {
		return fmt.Errorf("%w: unknown codec %d", ErrInvalid, o.Codec)
	}
	return o.Producer.validate(o.Control)
}

// SizeOf returns how many bytes r takes in a batch before compression, or a few
// more: what it takes depends on its neighbours. With HeaderSize added it
// bounds the size of a batch of r alone.
func SizeOf(r *Record) int {
	return 5 + 1 + 10 + 5 + fieldsSize(r) // length, attributes, time and offset at their longest
}

// fieldsSize returns the encoded size of key, value and headers.
func fieldsSize(r *Record) int {
	n := bytesSize(r.Key) + bytesSize(r.Value) + varintSize(int64(len(r.Headers)))
	for i := range r.Headers {
		h := &r.Headers[i]
		n += varintSize(int64(len(h.Key))) + len(h.Key) + bytesSize(h.Value)
	}
	return n
}

func bytesSize(b []byte) int {
	if b == nil {
		return 1
	}
	return varintSize(int64(len(b))) + len(b)
}

// appendBytes writes nil, which is not the same as empty, as length -1.
func appendBytes(buf, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(buf, -1)
	}
	buf = binary.AppendVarint(buf, int64(len(b)))
	return append(buf, b...)
}
