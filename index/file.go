package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/quorumlog/quorumlog/record"
)

// Constants of the format.
const (
	magic      = "QLOGINDX"
	version    = 1
	headerSize = 72
	slotSize   = 12
	sumSize    = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Summary says what part of the .log an index file describes.
type Summary struct {
	LogSum     uint32 // checksum in the header of the .log
	Size       int64  // bytes of the .log, its header included
	NextOffset record.Offset
	NextEntry  record.EntryNumber
	LastTerm   uint64
}

// Encode returns the file.
func (x Index) Encode(s Summary) []byte {
	be := binary.BigEndian
	b := make([]byte, 0, headerSize+slotSize*len(x.slots)+sumSize)
	b = append(b, magic...)
	b = be.AppendUint32(b, version)
	b = be.AppendUint32(b, crc32.Checksum(b, castagnoli))
	b = be.AppendUint32(b, s.LogSum)
	b = be.AppendUint64(b, uint64(x.baseOffset))
	b = be.AppendUint64(b, uint64(x.baseEntry))
	b = be.AppendUint64(b, uint64(s.NextOffset))
	b = be.AppendUint64(b, uint64(s.NextEntry))
	b = be.AppendUint64(b, s.LastTerm)
	b = be.AppendUint64(b, uint64(s.Size))
	b = be.AppendUint32(b, uint32(len(x.slots)))
	for _, e := range x.slots {
		b = be.AppendUint32(b, e.offset)
		b = be.AppendUint32(b, e.entry)
		b = be.AppendUint32(b, e.position)
	}
	return be.AppendUint32(b, crc32.Checksum(b[16:], castagnoli))
}

// Decode reads a file. Whatever is wrong with it, the answer is the same: the
// index is built again; the error says why.
func Decode(b []byte) (Index, Summary, error) {
	be := binary.BigEndian
	if len(b) < headerSize+sumSize {
		return Index{}, Summary{}, fmt.Errorf("index of %d bytes is cut", len(b))
	}
	if string(b[:8]) != magic || be.Uint32(b[12:]) != crc32.Checksum(b[:12], castagnoli) {
		return Index{}, Summary{}, errors.New("not an index")
	}
	if v := be.Uint32(b[8:]); v != version {
		return Index{}, Summary{}, fmt.Errorf("index has format version %d, this library knows %d", v, version)
	}
	sumPos := len(b) - sumSize
	if be.Uint32(b[sumPos:]) != crc32.Checksum(b[16:sumPos], castagnoli) {
		return Index{}, Summary{}, errors.New("index has a wrong checksum")
	}
	count := be.Uint32(b[68:])
	if uint64(sumPos-headerSize) != uint64(count)*slotSize {
		return Index{}, Summary{}, fmt.Errorf("index of %d slots has %d bytes", count, len(b))
	}
	x := New(record.Offset(be.Uint64(b[20:])), record.EntryNumber(be.Uint64(b[28:])))
	s := Summary{
		LogSum:     be.Uint32(b[16:]),
		NextOffset: record.Offset(be.Uint64(b[36:])),
		NextEntry:  record.EntryNumber(be.Uint64(b[44:])),
		LastTerm:   be.Uint64(b[52:]),
		Size:       int64(be.Uint64(b[60:])),
	}
	x.slots = make([]slot, count)
	for i := range x.slots {
		p := b[headerSize+slotSize*i:]
		x.slots[i] = slot{offset: be.Uint32(p), entry: be.Uint32(p[4:]), position: be.Uint32(p[8:])}
	}
	return x, s, x.check(s)
}

// check looks for what a right checksum does not exclude: an index that was
// made wrongly must not lead a reader astray.
func (x Index) check(s Summary) error {
	if x.baseOffset < 0 || s.NextOffset < x.baseOffset || s.NextEntry < x.baseEntry || s.Size < 0 {
		return errors.New("index has numbers that go backwards")
	}
	for i, e := range x.slots {
		if i > 0 {
			if p := x.slots[i-1]; e.offset < p.offset || e.entry <= p.entry || e.position <= p.position {
				return fmt.Errorf("index slot %d goes backwards", i)
			}
		}
		p, _ := x.at(i)
		if p.Offset > s.NextOffset || p.Entry >= s.NextEntry || p.Position >= s.Size {
			return fmt.Errorf("index slot %d lies behind the end", i)
		}
	}
	return nil
}
