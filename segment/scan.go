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
	return s.ScanTelling(ctx, x, size, nil)
}

// ScanTelling is Scan; read, if not nil, is told how many bytes more were read.
func (s *Segment) ScanTelling(ctx context.Context, x Extent, size int64, read func(bytes int64)) (Extent, string, error) {
	w := s.scanner(x.Size, size, read)
	for x.Size < size {
		f, b, reason, err := w.entry(ctx, x)
		if err != nil || reason != "" {
			return x, reason, err
		}
		e := f.entry(b[frameSize:])
		var ok bool
		if x, ok = x.with(f, &e, s.indexBytes); !ok {
			return x, "it lies too far from the segment's base", nil
		}
	}
	w.told(size)
	return x, "", nil
}

// scanner goes through a file from entry to entry and checks everything.
type scanner struct {
	window
	seed uint32
	at   int64 // up to there has been told
	ask  int64 // where ctx is asked next
	read func(bytes int64)
}

func (s *Segment) scanner(from, end int64, read func(int64)) *scanner {
	return &scanner{window: window{file: s.file, end: end, chunk: scanChunk}, seed: s.seed, at: from, read: read}
}

func (w *scanner) told(pos int64) {
	if pos > w.at && w.read != nil {
		w.read(pos - w.at)
		w.at = pos
	}
}

// more is called at each entry: ctx is asked, and progress told, once in a chunk.
func (w *scanner) more(ctx context.Context, pos int64) error {
	if pos < w.ask {
		return nil
	}
	w.ask = pos + scanChunk
	w.told(pos)
	return ctx.Err()
}

// entry reads and checks the entry behind x: its header, and all its bytes. The
// reason is what is wrong with it, "" if nothing. Of a header whose checksum is
// wrong the kind is zero.
func (w *scanner) entry(ctx context.Context, x Extent) (f frame, b []byte, reason string, err error) {
	if err := w.more(ctx, x.Size); err != nil {
		return frame{}, nil, "", err
	}
	b, err = w.bytes(x.Size, frameSize)
	if err != nil {
		return frame{}, nil, "", err
	}
	if len(b) < frameSize {
		return frame{}, nil, "the file ends in an entry's header", nil
	}
	f, ok := decodeFrame(b, w.seed)
	if !ok {
		return frame{}, nil, "there is no entry", nil
	}
	if reason := x.follows(f); reason != "" {
		return f, nil, reason, nil
	}
	if x.Size+f.size() > w.end {
		return f, nil, "the file ends in an entry", nil
	}
	b, err = w.bytes(x.Size, int(f.size()))
	if err != nil {
		return frame{}, nil, "", err
	}
	if int64(len(b)) < f.size() {
		return f, nil, "the file ends in an entry", nil
	}
	return f, b, f.matches(b[frameSize:]), nil
}

// Damaged tells damage from a torn write, at the bad entry behind x. It looks up
// to size for an entry that says that the bad one was on disk before, and
// returns where it is. False: nothing says so.
func (s *Segment) Damaged(ctx context.Context, x Extent, size int64) (index.Place, bool, error) {
	f, pos, err := s.search(ctx, x.Size, size, x.NextEntry, func(f frame, _ int64) bool {
		return f.unsynced < manyUnsynced && f.number-record.EntryNumber(f.unsynced) > x.NextEntry
	})
	return index.Place{Offset: f.offset, Entry: f.number, Position: pos}, f.kind.known(), err
}

// search looks from a position up to size for the header of an entry behind a
// bad one, which begins there, and that is one of those wanted. Its kind is zero
// if there is none.
func (s *Segment) search(ctx context.Context, from, size int64, bad record.EntryNumber, is func(frame, int64) bool) (frame, int64, error) {
	w := window{file: s.file, end: size, chunk: scanChunk}
	last := bad + record.EntryNumber((size-from)/frameSize) // no more fit in
	for pos := from; pos+frameSize <= size; pos += scanChunk {
		if err := ctx.Err(); err != nil {
			return frame{}, 0, err
		}
		b, err := w.bytes(pos, scanChunk+frameSize-1)
		if err != nil {
			return frame{}, 0, err
		}
		for i := 0; i+frameSize <= len(b); i++ {
			if !Kind(b[i+36]).known() { // cheap, and true of few bytes
				continue
			}
			if n := record.EntryNumber(be.Uint64(b[i+8:])); n <= bad || n > last {
				continue
			}
			if f, ok := decodeFrame(b[i:], s.seed); ok && is(f, pos+int64(i)) {
				return f, pos + int64(i), nil
			}
		}
	}
	return frame{}, 0, nil
}
