package record

import (
	"fmt"
	"time"
	"unsafe"
)

// defaultMaxBytes is twice MaxBatchBytes: any batch of our own opens, and so do
// larger ones of others that compress well.
const defaultMaxBytes = 2 * MaxBatchBytes

// Iterator reads the records of a batch, one after the other, without an
// allocation per record. The zero value is ready for Reset, which may be called
// any number of times. One goroutine may use it at a time.
//
//	var it record.Iterator
//	if err := it.Reset(b); err != nil {
//		return err
//	}
//	for it.Next(&r) {
//		// use r
//	}
//	return it.Err()
type Iterator struct {
	// MaxBytes bounds the decompressed size of a batch, in bytes, so that a
	// small one cannot fill the memory. Default 128 MiB.
	MaxBytes int

	batch   Batch
	records reader
	read    int32 // records so far
	last    int64 // offset delta of the record before, -1 at the start
	slab    []Header
	err     error

	// Of the header, which is looked at for every record.
	count     int32
	base      Offset
	epoch     LeaderEpoch
	lastDelta int64
	baseTime  int64 // that of the batch where its attributes say so
	sameTime  bool
	timestamp int64     // of the record before
	time      time.Time // the same
}

// Reset begins at the first record of b. It checks the header and opens the
// compression, but not the checksum: that is Check's, once, where bytes come
// from a disk or a network. b must not change while records of it are in use.
// It returns a *BatchError, or a *TooLargeError above MaxBytes.
func (it *Iterator) Reset(b Batch) error {
	*it = Iterator{MaxBytes: it.MaxBytes, last: -1, slab: it.slab}
	if it.err = b.CheckHeader(); it.err != nil {
		return it.err
	}
	limit := it.MaxBytes
	if limit <= 0 {
		limit = defaultMaxBytes
	}
	it.records.buf, it.err = b.open(limit)
	if it.err == nil {
		it.batch = b
		it.count, it.base, it.epoch = b.Count(), b.BaseOffset(), b.LeaderEpoch()
		it.lastDelta, it.baseTime = int64(b.int32At(atLastOffsetDelta)), b.BaseTimestamp()
		if it.sameTime = b.HasLogAppendTime(); it.sameTime {
			it.baseTime = b.MaxTimestamp()
		}
		it.timestamp, it.time = it.baseTime, time.UnixMilli(it.baseTime)
	}
	return it.err
}

// Next reads the next record into r and reports whether there was one. It sets
// all fields but Topic and Partition, which a batch does not know.
//
// Key, Value and Headers lie in b or, where that was compressed, in memory of
// their own that lives as long as one of them; neither is ever written again.
func (it *Iterator) Next(r *Record) bool {
	if it.err != nil || it.batch == nil {
		return false
	}
	if it.read == it.count {
		if n := it.records.left(); n > 0 {
			it.fail(fmt.Sprintf("%d bytes after the last record", n))
		}
		return false
	}
	size := it.records.varint()
	body := reader{buf: it.records.take(size), bad: it.records.bad}
	body.byte() // attributes of the record: none are defined
	elapsed := body.varint()
	delta := body.varint()
	key, value := body.bytes(), body.bytes()
	headers := it.headers(&body)
	if body.bad == "" && body.left() > 0 {
		body.fail("a record is longer than its fields")
	}
	if body.bad == "" && (delta <= it.last || delta > it.lastDelta) {
		body.fail("offsets do not rise within the range of the header")
	}
	if body.bad != "" {
		it.fail(body.bad)
		return false
	}
	it.read++
	it.last = delta
	if it.sameTime {
		elapsed = 0
	}
	if timestamp := it.baseTime + elapsed; timestamp != it.timestamp { // neighbours mostly share theirs
		it.timestamp, it.time = timestamp, time.UnixMilli(timestamp)
	}
	r.Offset = it.base + Offset(delta)
	r.LeaderEpoch = it.epoch
	r.Time = it.time
	r.Key, r.Value, r.Headers = key, value, headers
	return true
}

// Err returns what ended the iteration early, nil at the end of the batch.
func (it *Iterator) Err() error { return it.err }

func (it *Iterator) fail(why string) {
	it.err = it.batch.fault("record %d of %d: %s", it.read, it.batch.Count(), why)
}

// headers reads the headers of one record. The count is believed only as far
// as the bytes that are left could hold that many.
func (it *Iterator) headers(body *reader) []Header {
	n := body.varint()
	if n == 0 {
		return nil
	}
	if n < 0 || n > int64(body.left()/2) { // none is shorter than two lengths
		body.fail("more headers than bytes")
		return nil
	}
	out := it.carve(int(n))
	for i := range out {
		key := body.take(body.varint())
		out[i] = Header{Key: unsafe.String(unsafe.SliceData(key), len(key)), Value: body.bytes()}
	}
	return out
}

// slabHeaders bounds what one kept record can keep alive of others' headers.
const slabHeaders = 256

// carve returns n headers off the slab, which is replaced when it is used up:
// a slice once handed out is never handed out again.
func (it *Iterator) carve(n int) []Header {
	if n > len(it.slab) {
		left := int64(it.batch.Count() - it.read)
		it.slab = make([]Header, max(int64(n), min(int64(n)*left, slabHeaders)))
	}
	out := it.slab[:n:n]
	it.slab = it.slab[n:]
	return out
}
