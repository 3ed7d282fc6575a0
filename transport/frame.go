package transport

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/quorumlog/quorumlog/record"
)

// A connection begins with a greeting of each side (greeting.go); then frames
// follow, big-endian:
//
//	0   4  bytes of the payload
//	4   1  kind
//	5   3  zero
//	8   8  number of the call, counted by the side that has made the connection
//	16  4  CRC-32C of the payload
//	20  4  CRC-32C of bytes 0 to 20
//
// A frame that does not hold breaks the connection: what follows cannot be trusted.
const frameHeader = 24

// maxFrame bounds a payload. A fetch that is asked for 64 MiB may bring a batch more.
const maxFrame = 192 << 20

type frameKind uint8

const (
	frameHello frameKind = 1 + iota // greeting.go
	frameRefused
	frameRequest
	frameAnswer // of the handler
	frameFailed // the handler's error, as text
	frameNobody // no handler, as text
	frameCancel // the caller of the request has stopped waiting
	framePing   // answered by a pong of the same number
	framePong
)

type frame struct {
	kind    frameKind
	call    uint64
	payload []byte
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// newFrame returns a frame whose payload is that of all parts.
func newFrame(kind frameKind, call uint64, parts ...[]byte) []byte {
	b := make([]byte, frameHeader, frameHeader+sizeOf(parts))
	for _, p := range parts {
		b = append(b, p...)
	}
	h, payload := b[:frameHeader], b[frameHeader:]
	binary.BigEndian.PutUint32(h, uint32(len(payload)))
	h[4] = byte(kind)
	binary.BigEndian.PutUint64(h[8:], call)
	binary.BigEndian.PutUint32(h[16:], crc32.Checksum(payload, castagnoli))
	binary.BigEndian.PutUint32(h[20:], crc32.Checksum(h[:20], castagnoli))
	return b
}

// readFrame reads one frame of at most limit bytes. The payload is the caller's.
func readFrame(r io.Reader, limit uint32) (frame, error) {
	var h [frameHeader]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return frame{}, err
	}
	size := binary.BigEndian.Uint32(h[:])
	switch {
	case crc32.Checksum(h[:20], castagnoli) != binary.BigEndian.Uint32(h[20:]):
		return frame{}, fmt.Errorf("%w: the checksum of a frame's header is wrong", record.ErrCorrupt)
	case size > limit:
		return frame{}, fmt.Errorf("%w: a frame of %d bytes", record.ErrCorrupt, size)
	}
	f := frame{kind: frameKind(h[4]), call: binary.BigEndian.Uint64(h[8:]), payload: make([]byte, size)}
	if _, err := io.ReadFull(r, f.payload); err != nil {
		return frame{}, err
	}
	if crc32.Checksum(f.payload, castagnoli) != binary.BigEndian.Uint32(h[16:]) {
		return frame{}, fmt.Errorf("%w: the checksum of a frame's payload is wrong", record.ErrCorrupt)
	}
	return f, nil
}

// sizeOf returns the bytes of all parts.
func sizeOf(parts [][]byte) (n int) {
	for _, p := range parts {
		n += len(p)
	}
	return n
}

// fits returns an error if the parts are too large for a frame.
func fits(parts [][]byte) error {
	if n := sizeOf(parts); n > maxFrame {
		return &record.TooLargeError{What: "message", Size: n, Limit: maxFrame}
	}
	return nil
}

// appendStrings appends a count and that many strings with their lengths, 16 bits each.
func appendStrings(b []byte, ss ...string) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(ss)))
	for _, s := range ss {
		b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
		b = append(b, s...)
	}
	return b
}

// readStrings takes apart what appendStrings has made.
func readStrings(b []byte) (ss []string, ok bool) {
	if len(b) < 2 {
		return nil, false
	}
	n := int(binary.BigEndian.Uint16(b))
	for b = b[2:]; n > 0; n-- {
		if len(b) < 2 {
			return nil, false
		}
		size := int(binary.BigEndian.Uint16(b))
		if b = b[2:]; len(b) < size {
			return nil, false
		}
		ss = append(ss, string(b[:size]))
		b = b[size:]
	}
	return slices.Clip(ss), len(b) == 0
}
