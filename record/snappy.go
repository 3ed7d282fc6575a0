package record

import (
	"bytes"
	"encoding/binary"
	"errors"

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
	next := func(src []byte) (block, rest []byte, err error) { return src, nil, nil }
	if bytes.HasPrefix(src, snappyMagic) {
		if len(src) < snappyFrameHeader {
			return nil, errCutOff
		}
		src, next = src[snappyFrameHeader:], nextSnappy
	}
	// Twice over the blocks: first only for their sizes.
	size := 0
	for rest := src; len(rest) > 0; {
		block, after, err := next(rest)
		if err != nil {
			return nil, err
		}
		n, err := snappySize(block)
		if err != nil {
			return nil, err
		}
		if n > limit-size {
			return nil, tooLarge(size+n, limit)
		}
		size, rest = size+n, after
	}
	out := make([]byte, 0, size)
	for rest := src; len(rest) > 0; {
		block, after, err := next(rest)
		if err != nil {
			return nil, err
		}
		contents, err := snappy.Decode(out[len(out):size], block)
		if err != nil {
			return nil, err
		}
		out, rest = out[:len(out)+len(contents)], after
	}
	return out, nil
}

// nextSnappy takes the first block off a frame.
func nextSnappy(frame []byte) (block, rest []byte, err error) {
	if len(frame) < 4 {
		return nil, nil, errCutOff
	}
	n := binary.BigEndian.Uint32(frame)
	frame = frame[4:]
	if uint64(n) > uint64(len(frame)) {
		return nil, nil, errCutOff
	}
	return frame[:n], frame[n:], nil
}

// snappySize returns what a block says it yields. A copy of 3 bytes yields at
// most 64, so a block that says more than that per byte lies.
func snappySize(block []byte) (int, error) {
	n, err := snappy.DecodedLen(block)
	if err == nil && n/64 > len(block) {
		err = snappy.ErrCorrupt
	}
	return n, err
}
