package segment

import (
	"context"

	"github.com/quorumlog/quorumlog/index"
	"github.com/quorumlog/quorumlog/record"
)

// scanChunk is what a scan reads at a time: large enough that calls do not
// count, small enough for the second level cache.
const scanChunk = 1 << 20

// Scan reads the file behind x up to size and checks everything. It returns how
// far all is well and what is wrong with the entry there; "" if nothing is and
// the end was reached.
func (s *Segment) Scan(ctx context.Context, x Extent, size int64) (Extent, string, error) {
	w := window{file: s.file, end: size, chunk: scanChunk}
	for ask := x.Size; x.Size < size; {
		if x.Size >= ask { // once a chunk
			if err := ctx.Err(); err != nil {
				return x, "", err
			}
			ask = x.Size + scanChunk
		}
		b, err := w.bytes(x.Size, frameSize)
		if err != nil {
			return x, "", err
		}
		if len(b) < frameSize {
			return x, "the file ends in an entry's header", nil
		}
		f, ok := decodeFrame(b, s.seed)
		if !ok {
			return x, "there is no entry", nil
		}
		if reason := x.follows(f); reason != "" {
			return x, reason, nil
		}
		if x.Size+f.size() > size {
			return x, "the file ends in an entry", nil
		}
		b, err = w.bytes(x.Size, int(f.size()))
		if err != nil {
			return x, "", err
		}
		if int64(len(b)) < f.size() {
			return x, "the file ends in an entry", nil
		}
		payload := b[frameSize:]
		if reason := f.matches(payload); reason != "" {
			return x, reason, nil
		}
		e := f.entry(payload)
		if x, ok = x.with(f, &e, s.indexBytes); !ok {
			return x, "it lies too far from the segment's base", nil
		}
	}
	return x, "", nil
}

// Damaged tells damage from a torn write, at the bad entry behind x. It looks up
// to size for an entry that says that the bad one was on disk before, and
// returns where it is. False: nothing says so.
func (s *Segment) Damaged(ctx context.Context, x Extent, size int64) (index.Place, bool, error) {
	w := window{file: s.file, end: size, chunk: scanChunk}
	bad := x.NextEntry
	last := bad + record.EntryNumber((size-x.Size)/frameSize) // no more fit in
	for pos := x.Size; pos+frameSize <= size; pos += scanChunk {
		if err := ctx.Err(); err != nil {
			return index.Place{}, false, err
		}
		b, err := w.bytes(pos, scanChunk+frameSize-1)
		if err != nil {
			return index.Place{}, false, err
		}
		for i := 0; i+frameSize <= len(b); i++ {
			if !Kind(b[i+36]).known() { // cheap, and true of few bytes
				continue
			}
			if n := record.EntryNumber(be.Uint64(b[i+8:])); n <= bad || n > last {
				continue
			}
			f, ok := decodeFrame(b[i:], s.seed)
			if ok && f.unsynced < manyUnsynced && f.number-record.EntryNumber(f.unsynced) > bad {
				return index.Place{Offset: f.offset, Entry: f.number, Position: pos + int64(i)}, true, nil
			}
		}
	}
	return index.Place{}, false, nil
}
