package record

import (
	"encoding/binary"
	"math/bits"
)

// Integers inside records are base-128 varints of the zigzag form, least
// significant group first: small magnitudes of either sign are short.

// varintSize returns how many bytes v takes: 1 to 10.
func varintSize(v int64) int {
	zigzag := uint64(v)<<1 ^ uint64(v>>63)
	return (bits.Len64(zigzag|1) + 6) / 7
}

// reader takes fields off the front of the encoded records. Nothing is taken
// that is not there: the first fault sticks in bad, and from then on every
// method returns zeros. It moves an index, not the slice: storing a pointer for
// each field costs a write barrier whenever the collector runs, which beside a
// reader that fetches is most of the time.
type reader struct {
	buf []byte
	at  int    // the next byte, at most len(buf)
	bad string // what is wrong, "" while nothing is
}

func (r *reader) fail(why string) {
	if r.bad == "" {
		r.bad = why
	}
	r.at = len(r.buf)
}

// left returns how many bytes have not been taken.
func (r *reader) left() int { return len(r.buf) - r.at }

func (r *reader) varint() int64 {
	if r.at < len(r.buf) && r.buf[r.at] < 0x80 { // most are this short
		u := r.buf[r.at]
		r.at++
		return int64(u>>1) ^ -int64(u&1)
	}
	return r.longVarint()
}

func (r *reader) longVarint() int64 {
	if b := r.buf[r.at:]; len(b) >= 2 && b[1] < 0x80 { // and most of the others this long
		u := uint64(b[0]&0x7f) | uint64(b[1])<<7
		r.at += 2
		return int64(u>>1) ^ -int64(u&1)
	}
	v, n := binary.Varint(r.buf[r.at:])
	if n <= 0 {
		r.fail("a number is cut off or too long")
		return 0
	}
	r.at += n
	return v
}

func (r *reader) byte() byte {
	if r.at == len(r.buf) {
		r.fail("a record is cut off")
		return 0
	}
	b := r.buf[r.at]
	r.at++
	return b
}

// take returns the next n bytes. They cannot be grown into what follows them.
func (r *reader) take(n int64) []byte {
	if n < 0 || n > int64(r.left()) {
		r.fail("a field is longer than what holds it")
		return nil
	}
	from := r.at
	r.at += int(n)
	return r.buf[from:r.at:r.at]
}

// bytes returns a field with its length before it; a length of -1 is nil.
func (r *reader) bytes() []byte {
	n := r.varint()
	if n == -1 {
		return nil
	}
	return r.take(n)
}
