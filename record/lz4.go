package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/pierrec/lz4/v4"
)

// A batch holds one LZ4 frame, which is read here block by block into one
// piece of memory:
//
//	+----------+-----+----+-----------+-----+- - - - - - - - - - - - -+---------+-----------+
//	| magic    | flg | bd | content   | hc  | size, block, [checksum] | 0       | [content  |
//	| 184D2204 |     |    | size, [8] |     | uint32, n, 4            | uint32  | checksum] |
//	+----------+-----+----+-----------+-----+- - - - - - - - - - - - -+---------+-----------+
//
// Integers are little-endian; what is in brackets is there if flg says so. The
// checksums are passed over: the batch's own covers all of it.
const (
	lz4Magic = 0x184D2204

	lz4Independent     = 0x20 // bits of flg
	lz4BlockChecksum   = 0x10
	lz4ContentSize     = 0x08
	lz4ContentChecksum = 0x04
	lz4Refused         = 0x03    // reserved, and a dictionary that nobody has
	lz4Stored          = 1 << 31 // in a block's size: not compressed

	lz4Window = 64 << 10 // how far back a block that is not independent reaches
)

var errLZ4Frame = errors.New("not a frame of version 1")

func decompressLZ4(src []byte, limit int) ([]byte, error) {
	f, err := openLZ4(src)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, expected(len(src), limit))
	for {
		size, ok := f.uint32()
		if !ok {
			return nil, errCutOff
		}
		if size == 0 {
			break
		}
		if out, err = f.block(out, size, limit); err != nil {
			return nil, err
		}
	}
	if f.flags&lz4ContentChecksum != 0 && !f.skip(4) {
		return nil, errCutOff
	}
	if len(f.rest) > 0 {
		return nil, fmt.Errorf("%d bytes after the frame", len(f.rest))
	}
	return out, nil
}

// lz4Frame is a frame that is being read.
type lz4Frame struct {
	rest     []byte
	flags    byte
	maxBlock int // bytes that one block may have or yield
}

func openLZ4(src []byte) (lz4Frame, error) {
	f := lz4Frame{rest: src}
	if m, ok := f.uint32(); !ok || m != lz4Magic || len(f.rest) < 3 {
		return f, errLZ4Frame
	}
	var code byte
	f.flags, code = f.rest[0], f.rest[1]>>4
	if f.flags>>6 != 1 || f.flags&lz4Refused != 0 || code < 4 || code > 7 {
		return f, errLZ4Frame
	}
	f.maxBlock = 1 << (8 + 2*code) // 64 KiB, 256 KiB, 1 MiB, 4 MiB
	header := 3
	if f.flags&lz4ContentSize != 0 {
		header += 8
	}
	if !f.skip(header) {
		return f, errCutOff
	}
	return f, nil
}

func (f *lz4Frame) skip(n int) bool {
	if len(f.rest) < n {
		return false
	}
	f.rest = f.rest[n:]
	return true
}

func (f *lz4Frame) uint32() (uint32, bool) {
	if len(f.rest) < 4 {
		return 0, false
	}
	v := binary.LittleEndian.Uint32(f.rest)
	f.rest = f.rest[4:]
	return v, true
}

// block appends the contents of the next block to out.
func (f *lz4Frame) block(out []byte, size uint32, limit int) ([]byte, error) {
	n := int(size &^ lz4Stored)
	if n > f.maxBlock {
		return nil, fmt.Errorf("a block of %d bytes in a frame of up to %d", n, f.maxBlock)
	}
	if n > len(f.rest) {
		return nil, errCutOff
	}
	data := f.rest[:n]
	f.rest = f.rest[n:]
	if f.flags&lz4BlockChecksum != 0 && !f.skip(4) {
		return nil, errCutOff
	}
	if size&lz4Stored != 0 {
		if n > limit-len(out) {
			return nil, tooLarge(len(out)+n, limit)
		}
		return append(out, data...), nil
	}
	return f.expand(out, data, limit)
}

// expand appends what a compressed block yields. It does not say how much that
// is, only that it is at most maxBlock; and no byte yields more than 255.
func (f *lz4Frame) expand(out, data []byte, limit int) ([]byte, error) {
	most := min(f.maxBlock, 255*len(data))
	room := min(most, limit-len(out))
	out = slices.Grow(out, room)
	var window []byte
	if f.flags&lz4Independent == 0 {
		window = out[max(0, len(out)-lz4Window):]
	}
	n, err := lz4.UncompressBlockWithDict(data, out[len(out):len(out)+room], window)
	switch {
	case err != nil && room < most:
		return nil, tooLarge(limit+1, limit)
	case err != nil:
		return nil, err
	}
	return out[:len(out)+n], nil
}
