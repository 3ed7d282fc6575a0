package segment

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/quorumlog/quorumlog/record"
)

// Constants of the format.
const (
	magic      = "QLOGSEGM"
	version    = 1
	HeaderSize = 80 // of the file
)

var (
	be         = binary.BigEndian // of all integers in the file
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// Header is what a segment file says about itself.
type Header struct {
	TopicID    record.TopicID
	Partition  int32
	BaseOffset record.Offset
	BaseEntry  record.EntryNumber
	PrevTerm   uint64 // term of entry BaseEntry-1, 0 if there was none
	// Created is when the file was made, by the writer's clock in ms since 1970:
	// what the segments before hold was appended earlier. Latest is the latest
	// Created of this one and those before; a later one than Created tells that
	// the clock was set back.
	Created, Latest int64
}

// Behind returns the header of the segment that goes on behind x, made at a
// time in ms since 1970.
func (h Header) Behind(x Extent, created int64) Header {
	h.BaseOffset, h.BaseEntry, h.PrevTerm = x.NextOffset, x.NextEntry, x.LastTerm
	h.Created, h.Latest = created, max(created, h.Latest)
	return h
}

// Encode returns the HeaderSize bytes of h.
func (h Header) Encode() []byte {
	b := make([]byte, 0, HeaderSize)
	b = append(b, magic...)
	b = be.AppendUint32(b, version)
	b = be.AppendUint32(b, crc32.Checksum(b, castagnoli))
	b = append(b, h.TopicID[:]...)
	b = be.AppendUint64(b, uint64(h.BaseOffset))
	b = be.AppendUint64(b, uint64(h.BaseEntry))
	b = be.AppendUint64(b, h.PrevTerm)
	b = be.AppendUint64(b, uint64(h.Created))
	b = be.AppendUint64(b, uint64(h.Latest))
	b = be.AppendUint32(b, uint32(h.Partition))
	return be.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// DecodeHeader reads the beginning of a segment file. The error is a
// *VersionError for a whole header of another version, and otherwise says what
// is wrong with the bytes.
func DecodeHeader(b []byte) (Header, error) {
	if len(b) < 16 {
		return Header{}, fmt.Errorf("%d bytes are no segment header", len(b))
	}
	if string(b[:8]) != magic || be.Uint32(b[12:]) != crc32.Checksum(b[:12], castagnoli) {
		return Header{}, fmt.Errorf("not a segment header")
	}
	if v := be.Uint32(b[8:]); v != version {
		return Header{}, &VersionError{Version: v}
	}
	if len(b) < HeaderSize || be.Uint32(b[76:]) != crc32.Checksum(b[:76], castagnoli) {
		return Header{}, fmt.Errorf("segment header has a wrong checksum")
	}
	h := Header{
		TopicID:    record.TopicID(b[16:32]),
		BaseOffset: record.Offset(be.Uint64(b[32:])),
		BaseEntry:  record.EntryNumber(be.Uint64(b[40:])),
		PrevTerm:   be.Uint64(b[48:]),
		Created:    int64(be.Uint64(b[56:])),
		Latest:     int64(be.Uint64(b[64:])),
		Partition:  int32(be.Uint32(b[72:])),
	}
	if h.BaseOffset < 0 || h.BaseEntry < 1 || h.Partition < 0 || h.Latest < h.Created {
		return Header{}, fmt.Errorf("segment header has impossible numbers: %+v", h)
	}
	return h, nil
}

// MendHeader takes b for a damaged header and returns what was written. known
// gives what the header must say of topic, partition and, unless it is negative,
// base offset. Of the rest one byte may be wrong, or the checksum alone if
// accept, told what it should be, finds that entries go with it. False if more is wrong.
func MendHeader(b []byte, known Header, accept func(sum uint32) bool) (Header, bool) {
	if len(b) < HeaderSize {
		return Header{}, false
	}
	fixed, body, sum := known.Encode(), slices.Clone(b[:HeaderSize-4]), be.Uint32(b[HeaderSize-4:])
	copy(body, fixed[:32])
	if known.BaseOffset >= 0 {
		copy(body[32:], fixed[32:40])
	}
	copy(body[72:], fixed[72:])
	is := func(sum uint32) (Header, bool) {
		h, err := DecodeHeader(be.AppendUint32(slices.Clone(body), sum))
		return h, err == nil
	}
	if h, ok := is(sum); ok {
		return h, true
	}
	for i := 32; i < 72; i++ {
		was := body[i]
		for x := 1; x < 256; x++ {
			body[i] = was ^ byte(x)
			if crc32.Checksum(body, castagnoli) == sum {
				return is(sum)
			}
		}
		body[i] = was
	}
	if sum = crc32.Checksum(body, castagnoli); accept(sum) {
		return is(sum)
	}
	return Header{}, false
}
