package record

import (
	"encoding/binary"
	"math"
	"sync"

	"github.com/klauspost/compress/zstd"
)

var zstdDecoders sync.Pool // *zstd.Decoder

// zstdSlack is room behind the contents that lets the decoder copy whole words. Bytes.
const zstdSlack = 16

func decompressZstd(src []byte, limit int) ([]byte, error) {
	bound, err := zstdBound(src)
	if err != nil {
		return nil, err
	}
	d, _ := zstdDecoders.Get().(*zstd.Decoder)
	if d == nil {
		// It takes the capacity of the destination for the limit.
		d, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			return nil, err
		}
	}
	defer zstdDecoders.Put(d)

	room := int(min(bound, int64(limit)+1, math.MaxInt-zstdSlack))
	out, err := d.DecodeAll(src, make([]byte, 0, room+zstdSlack))
	if len(out) > limit || err != nil && bound > int64(limit) {
		return nil, tooLarge(limit+1, limit)
	}
	return out, err
}

const (
	zstdMaxBlock = 128 << 10 // bytes that one block may yield

	zstdRaw = 0 // types of blocks
	zstdRLE = 1
)

// zstdBound returns the most that src can yield. A frame may say it itself, but
// does not if its writer could not know when it began; and what it says is
// worth no more than its blocks are.
func zstdBound(src []byte) (int64, error) {
	var total int64
	for len(src) > 0 {
		var h zstd.Header
		if err := h.Decode(src); err != nil {
			return 0, err
		}
		src = src[h.HeaderSize:]
		var yield int64
		skip := int64(h.SkippableSize)
		if !h.Skippable {
			var err error
			if yield, src, err = zstdBlocks(src); err != nil {
				return 0, err
			}
			if h.HasCheckSum {
				skip = 4
			}
		}
		if skip > int64(len(src)) {
			return 0, errCutOff
		}
		src = src[skip:]
		if h.HasFCS {
			yield = int64(min(uint64(yield), h.FrameContentSize))
		}
		total += yield
	}
	return total, nil
}

// zstdBlocks returns the most that the blocks of one frame can yield, and what
// comes after them. Each has a header of 3 bytes, little-endian: last (1 bit),
// type (2 bits), size.
func zstdBlocks(src []byte) (yield int64, rest []byte, err error) {
	for last := false; !last; {
		if len(src) < 3 {
			return 0, nil, errCutOff
		}
		header := uint32(binary.LittleEndian.Uint16(src)) | uint32(src[2])<<16
		src = src[3:]
		last = header&1 != 0
		size := int(header >> 3)
		most := zstdMaxBlock
		switch header >> 1 & 3 {
		case zstdRaw:
			most = min(size, zstdMaxBlock)
		case zstdRLE:
			most = min(size, zstdMaxBlock)
			size = 1
		}
		if size > len(src) {
			return 0, nil, errCutOff
		}
		src = src[size:]
		yield += int64(most)
	}
	return yield, src, nil
}
