package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/quorumlog/quorumlog/record"
)

// Constants of both formats.
const (
	magic      = "QLOGINDX"
	timeMagic  = "QLOGTIME"
	version    = 1
	headerSize = 72
	slotSize   = 12
	sumSize    = 4
)

var (
	be         = binary.BigEndian // of all integers in the files
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// Summary says what part of the .log a file describes.
type Summary struct {
	LogSum     uint32 // checksum in the header of the .log
	Size       int64  // bytes of the .log, its header included
	NextOffset record.Offset
	NextEntry  record.EntryNumber
	LastTerm   uint64
}

// begin returns the header of a file, with room for slots. own is the field in
// which the two formats differ.
func begin(magic string, s Summary, base record.Offset, own uint64, slots int) []byte {
	b := make([]byte, 0, headerSize+slotSize*slots+sumSize)
	b = append(b, magic...)
	b = be.AppendUint32(b, version)
	b = be.AppendUint32(b, crc32.Checksum(b, castagnoli))
	b = be.AppendUint32(b, s.LogSum)
	b = be.AppendUint64(b, uint64(base))
	b = be.AppendUint64(b, own)
	b = be.AppendUint64(b, uint64(s.NextOffset))
	b = be.AppendUint64(b, uint64(s.NextEntry))
	b = be.AppendUint64(b, s.LastTerm)
	b = be.AppendUint64(b, uint64(s.Size))
	return be.AppendUint32(b, uint32(slots))
}

// end closes a file that begin has begun.
func end(b []byte) []byte {
	return be.AppendUint32(b, crc32.Checksum(b[16:], castagnoli))
}

// parse checks what both formats have in common, and takes a file apart.
func parse(magic string, b []byte) (s Summary, base record.Offset, own uint64, slots []byte, err error) {
	fail := func(err error) (Summary, record.Offset, uint64, []byte, error) { return Summary{}, 0, 0, nil, err }
	if len(b) < headerSize+sumSize {
		return fail(fmt.Errorf("index of %d bytes is cut", len(b)))
	}
	if string(b[:8]) != magic || be.Uint32(b[12:]) != crc32.Checksum(b[:12], castagnoli) {
		return fail(errors.New("index without its magic"))
	}
	if v := be.Uint32(b[8:]); v != version {
		return fail(fmt.Errorf("index has format version %d, this library knows %d", v, version))
	}
	sumPos := len(b) - sumSize
	if be.Uint32(b[sumPos:]) != crc32.Checksum(b[16:sumPos], castagnoli) {
		return fail(errors.New("index has a wrong checksum"))
	}
	slots = b[headerSize:sumPos]
	if count := be.Uint32(b[68:]); uint64(len(slots)) != uint64(count)*slotSize {
		return fail(fmt.Errorf("index of %d slots has %d bytes", count, len(b)))
	}
	s = Summary{
		LogSum:     be.Uint32(b[16:]),
		NextOffset: record.Offset(be.Uint64(b[36:])),
		NextEntry:  record.EntryNumber(be.Uint64(b[44:])),
		LastTerm:   be.Uint64(b[52:]),
		Size:       int64(be.Uint64(b[60:])),
	}
	base = record.Offset(be.Uint64(b[20:]))
	if base < 0 || s.NextOffset < base || s.Size < 0 {
		return fail(errors.New("index has numbers that go backwards"))
	}
	return s, base, be.Uint64(b[28:]), slots, nil
}

// Encode returns the .index file.
func (x Index) Encode(s Summary) []byte {
	b := begin(magic, s, x.baseOffset, uint64(x.baseEntry), len(x.slots))
	for _, e := range x.slots {
		b = be.AppendUint32(b, e.offset)
		b = be.AppendUint32(b, e.entry)
		b = be.AppendUint32(b, e.position)
	}
	return end(b)
}

// Decode reads an .index file. Whatever is wrong with it, the answer is the
// same: the index is built again; the error says why.
func Decode(b []byte) (Index, Summary, error) {
	s, base, entry, slots, err := parse(magic, b)
	if err != nil {
		return Index{}, Summary{}, err
	}
	x := New(base, record.EntryNumber(entry))
	x.slots = make([]slot, len(slots)/slotSize)
	for i := range x.slots {
		p := slots[slotSize*i:]
		x.slots[i] = slot{offset: be.Uint32(p), entry: be.Uint32(p[4:]), position: be.Uint32(p[8:])}
	}
	return x, s, x.check(s)
}

// check looks for what a right checksum does not exclude: an index that was
// made wrongly must not lead a reader astray.
func (x Index) check(s Summary) error {
	if s.NextEntry < x.baseEntry {
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
