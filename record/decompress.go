package record

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"

	"github.com/klauspost/compress/gzip"
)

var gzipReaders sync.Pool // *gzip.Reader

// open returns the encoded records of b: a part of b, or fresh memory if b is
// compressed. Sizes that the compressed bytes claim are believed only as far as
// so many bytes can yield, and never above limit.
func (b Batch) open(limit int) ([]byte, error) {
	src := b[HeaderSize:len(b):len(b)]
	if b.Codec() == None {
		return src, nil
	}
	limit = min(limit, math.MaxInt-1) // one more is looked for
	out, err := b.Codec().decompress(src, limit)
	switch {
	case errors.Is(err, ErrTooLarge):
		return nil, err
	case err != nil:
		return nil, b.fault("%v: %v", b.Codec(), err)
	case cap(out) > 2*len(out): // it lives as long as any of its records
		out = slices.Clone(out)
	}
	return out, nil
}

func (c Codec) decompress(src []byte, limit int) ([]byte, error) {
	switch c {
	case Gzip:
		return decompressGzip(src, limit)
	case Snappy:
		return decompressSnappy(src, limit)
	case LZ4:
		return decompressLZ4(src, limit)
	case Zstd:
		return decompressZstd(src, limit)
	}
	return nil, fmt.Errorf("unknown codec %d", c)
}

// expected is a first guess at what n compressed bytes yield, within limit.
func expected(n, limit int) int { return min(3*n, limit) }

// tooLarge reports that the records have at least size bytes.
func tooLarge(size, limit int) error {
	return &TooLargeError{What: "decompressed batch", Size: size, Limit: limit}
}

func decompressGzip(src []byte, limit int) ([]byte, error) {
	r, _ := gzipReaders.Get().(*gzip.Reader)
	if r == nil {
		r = new(gzip.Reader)
	}
	defer gzipReaders.Put(r)

	if err := r.Reset(bytes.NewReader(src)); err != nil {
		return nil, err
	}
	return readAll(r, expected(len(src), limit), limit)
}

// readAll reads to the end of r, at most limit bytes, of which it expects some.
func readAll(r io.Reader, expect, limit int) ([]byte, error) {
	buf := make([]byte, 0, expect)
	for {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, min(len(buf)+512, limit+1-len(buf)))
		}
		n, err := r.Read(buf[len(buf):min(cap(buf), limit+1)])
		buf = buf[:len(buf)+n]
		switch {
		case len(buf) > limit:
			return nil, tooLarge(len(buf), limit)
		case err == io.EOF:
			return buf, nil
		case err != nil:
			return nil, err
		}
	}
}
