package record

import (
	"encoding/binary"
	"fmt"
	"time"
	"unsafe"
)

// DefaultMaxBytes is the limit of an Iterator's decompressed records.
const DefaultMaxBytes = 128 << 20

// Iterator decodes the records of one batch after the other:
//
//	it.Reset(batch)
//	for it.Next(&r) { … }
//	it.Err()
//
// Keys, values and headers alias the batch, or memory that was decompressed for
// this batch alone, so they may be kept. The zero value is ready. One goroutine
// at a time.
type Iterator struct {
	// MaxBytes bounds the decompressed records of a batch; more is a
	// *TooLargeError. Default DefaultMaxBytes.
	MaxBytes int

	batch   Batch
	rest    []byte // not decoded yet
	left    int32  // records to come
	next    int64  // smallest offset delta that may come
	headers []Header
	err     error
}

// Reset begins with the records of b. Its header is checked, its checksum is not.
func (it *Iterator) Reset(b Batch) error {
	*it = Iterator{MaxBytes: it.MaxBytes, batch: b}
	if it.err = b.CheckHeader(); it.err != nil {
		return it.err
	}
	limit := it.MaxBytes
	if limit <= 0 {
		limit = DefaultMaxBytes
	}
	rest, err := b.Codec().decompress(b[HeaderSize:], limit)
	if err != nil {
		if _, ok := err.(*TooLargeError); !ok {
			err = &BatchError{BaseOffset: b.BaseOffset(), Reason: fmt.Sprintf("%v: %v", b.Codec(), err)}
		}
		it.err = err
		return err
	}
	it.rest, it.left = rest, b.Count()
	return nil
}

// Err returns what ended the iteration early: a *BatchError or *TooLargeError.
func (it *Iterator) Err() error { return it.err }

// Next decodes the next record into r, except for Topic and Partition. It
// returns false at the end and on an error.
func (it *Iterator) Next(r *Record) bool {
	if it.err != nil {
		return false
	}
	if it.left == 0 {
		if len(it.rest) > 0 {
			it.fail("%d bytes follow the last record", len(it.rest))
		}
		return false
	}
	d := fields{b: it.rest}
	body := fields{b: d.take(d.varint())}
	if d.bad || len(body.b) == 0 {
		it.fail("a record ends too early")
		return false
	}
	body.take(1) // attributes, unused
	timeDelta, offsetDelta := body.varint(), body.varint()
	key, value := body.bytes(), body.bytes()
	headers := it.decodeHeaders(&body)
	last := it.batch.LastOffset() - it.batch.BaseOffset()
	switch {
	case it.err != nil:
		return false
	case body.bad || len(body.b) > 0:
		it.fail("a record's fields do not fill its length")
		return false
	case offsetDelta < it.next || offsetDelta > int64(last):
		it.fail("offset delta %d is outside [%d, %d]", offsetDelta, it.next, last)
		return false
	}
	ms := it.batch.BaseTimestamp() + timeDelta
	if it.batch.HasLogAppendTime() {
		ms = it.batch.MaxTimestamp()
	}
	r.Offset = it.batch.BaseOffset() + Offset(offsetDelta)
	r.LeaderEpoch = it.batch.LeaderEpoch()
	r.Time = time.UnixMilli(ms)
	r.Key, r.Value, r.Headers = key, value, headers
	it.next = offsetDelta + 1
	it.left--
	it.rest = d.b
	return true
}

// decodeHeaders carves the headers from a slab that is never reused.
func (it *Iterator) decodeHeaders(body *fields) []Header {
	n := body.varint()
	if n < 0 || n > int64(len(body.b)/2) { // a header has two bytes at least
		it.fail("%d headers do not fit", n)
		return nil
	}
	if n == 0 || body.bad {
		return nil
	}
	if int64(cap(it.headers)-len(it.headers)) < n {
		it.headers = make([]Header, 0, max(int(n), 64))
	}
	start := len(it.headers)
	for range n {
		key := body.bytes()
		it.headers = append(it.headers, Header{Key: unsafe.String(unsafe.SliceData(key), len(key)), Value: body.bytes()})
	}
	return it.headers[start:len(it.headers):len(it.headers)]
}

func (it *Iterator) fail(format string, args ...any) {
	if it.err == nil {
		it.err = &BatchError{BaseOffset: it.batch.BaseOffset(), Reason: fmt.Sprintf(format, args...)}
	}
}

// fields takes varints and byte strings off the front of b. After the first bad
// one it returns zeros.
type fields struct {
	b   []byte
	bad bool
}

func (f *fields) varint() int64 {
	v, n := binary.Varint(f.b)
	if n <= 0 {
		f.b, f.bad = nil, true
		return 0
	}
	f.b = f.b[n:]
	return v
}

func (f *fields) take(n int64) []byte {
	if f.bad || n < 0 || n > int64(len(f.b)) {
		f.b, f.bad = nil, true
		return nil
	}
	t := f.b[:n:n]
	f.b = f.b[n:]
	return t
}

// bytes returns a byte string; nil where the length is -1.
func (f *fields) bytes() []byte {
	n := f.varint()
	if n == -1 {
		return nil
	}
	return f.take(n)
}
