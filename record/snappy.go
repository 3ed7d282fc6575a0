package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/klauspost/compress/snappy"
)

// Snappy alone compresses one block. Java's library puts a frame around a
// sequence of them, and writers of all kinds followed it; some write a block
// alone. Both are read, the frame is written:
//
//	0                   8         12          16       20        20+n
//	+-------------------+---------+-----------+--------+---------+------
//	| 82 "SNAPPY" 00    | version | readable  | n      | block   | n ...
//	|                   |         | since     | uint32 |         |
//	+-------------------+---------+-----------+--------+---------+------
var snappyMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const snappyFrameHeader = 16

var errCutOff = errors.New("cut off")

func decompressSnappy(src []byte, limit int) ([]byte, error) {
	if !bytes.HasPrefix(src, snappyMagic) {
		return appendSnappy(nil, src, limit)
	}
	if len(src) < snappyFrameHeader {
		return nil, errCutOff
	}
	src = src[snappyFrameHeader:]
	out := make([]byte, 0, expected(len(src), limit))
	for len(src) > 0 {
		if len(src) < 4 {
			return nil, errCutOff
		}
		n := binary.BigEndian.Uint32(src)
		src = src[4:]
		if uint64(n) > uint64(len(src)) {
			return nil, errCutOff
		}
		var err error
		if out, err = appendSnappy(out, src[:n], limit); err != nil {
			return nil, err
		}
		src = src[n:]
	}
	return out, nil
}

// appendSnappy appends the contents of one block. A copy of 3 bytes yields at
// most 64, so a block that says more than that per byte lies.
func appendSnappy(dst, block []byte, limit int) ([]byte, error) {
	n, err := snappy.DecodedLen(block)
	switch {
	case err != nil:
		return nil, err
	case n/64 > len(block):
		return nil, snappy.ErrCorrupt
	case n > limit-len(dst):
		return nil, tooLarge(len(dst)+n, limit)
	}
	dst = slices.Grow(dst, n)
	if _, err := snappy.Decode(dst[len(dst):len(dst)+n], block); err != nil {
		return nil, err
	}
	return dst[:len(dst)+n], nil
}
