//go:build !linux

package vfs

// writeVecAt makes one write a buffer. A crash between two of them leaves a
// torn write, as a crash inside one does.
func (f *osFile) writeVecAt(bufs [][]byte, off int64) (int64, error) {
	var written int64
	for _, b := range bufs {
		n, err := f.File.WriteAt(b, off+written)
		written += int64(n)
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// syncs is nothing here: a sync blocks a thread.
type syncs struct{ aio struct{} }

func newAIO() struct{} { return struct{}{} }

func (*syncs) close() error { return nil }

func (f *osFile) sync() error { return f.File.Sync() }

// reservation is nothing here.
type reservation struct{}

func (*osFile) reserve(int64, [][]byte) {}

func (*osFile) unreserve() {}
