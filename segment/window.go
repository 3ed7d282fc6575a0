package segment

import "github.com/quorumlog/quorumlog/internal/vfs"

// window reads a file piece by piece, and again from what it has read.
type window struct {
	file  vfs.File
	end   int64 // nothing is read from here on
	chunk int   // least bytes of one read
	buf   []byte
	have  []byte // what buf holds of the file
	pos   int64  // of have
}

// bytes returns n bytes at pos, less where the file ends. They are good until the next call.
func (w *window) bytes(pos int64, n int) ([]byte, error) {
	if pos >= w.end {
		return nil, nil
	}
	n = int(min(int64(n), w.end-pos))
	if pos < w.pos || pos+int64(n) > w.pos+int64(len(w.have)) {
		if err := w.read(pos, n); err != nil {
			return nil, err
		}
	}
	have := w.have[min(pos-w.pos, int64(len(w.have))):]
	return have[:min(n, len(have))], nil
}

func (w *window) read(pos int64, n int) error {
	n = int(min(int64(max(n, w.chunk)), w.end-pos))
	if n > cap(w.buf) {
		w.buf = make([]byte, n)
	}
	b := w.buf[:n]
	w.pos, w.have = pos, nil
	n, err := readAt(w.file, b, pos)
	if err != nil {
		return err
	}
	w.have = b[:n]
	return nil
}

const pageSize = 4 << 10 // of a reader that walks from entry to entry

// walker returns a window for reading headers; give it back with done.
func (s *Segment) walker(x Extent) *walker {
	w := &walker{s: s, x: x, window: window{file: s.file, end: x.Size, chunk: pageSize}}
	w.page, _ = s.pages.Get().(*[]byte)
	if w.page == nil {
		b := make([]byte, pageSize)
		w.page = &b
	}
	w.buf = *w.page
	return w
}

// walker goes through an extent from entry to entry.
type walker struct {
	window
	s    *Segment
	x    Extent
	page *[]byte
}

func (w *walker) done() { w.s.pages.Put(w.page) }
