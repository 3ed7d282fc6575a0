package vfs

import (
	"errors"

	"golang.org/x/sys/unix"
)

// reservation has the file system set blocks aside behind the end of a file that
// grows by large writes: then a write into the page cache takes two thirds of the
// time on ext4, which else reserves each page by itself. The length stays what was
// written, so who opens the file after a crash sees nothing of it; what is left is
// given back by Truncate and Close. The one goroutine that writes uses it.
type reservation struct {
	end int64 // blocks are set aside up to here, as far as is known
	off bool  // the file system cannot
}

const (
	// reserveFrom is how large a file must be: a thousand small ones would take space.
	reserveFrom = 1 << 20
	// reserveWrite is how large a write must be to be worth it.
	reserveWrite = 16 << 10
	// maxReserve is the most that is set aside at once, and reserveShare the most of
	// what the file has.
	maxReserve   = 4 << 20
	reserveShare = 4
)

// reserve is called before bufs are written at off. It is for speed only: what
// keeps it from working shows in the write, or nowhere.
func (f *osFile) reserve(off int64, bufs [][]byte) {
	r := &f.reservation
	if r.off || off < reserveFrom {
		return
	}
	n := int64(0)
	for _, b := range bufs {
		n += int64(len(b))
	}
	if n < reserveWrite || off+n <= r.end {
		return
	}
	size := max(n, min(maxReserve, off/reserveShare))
	var err error
	_ = f.conn.Control(func(fd uintptr) { // the write says that it is closed
		err = unix.Fallocate(int(fd), unix.FALLOC_FL_KEEP_SIZE, off, size)
	})
	r.off = errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS)
	r.end = off + size // also after an error: not with each write again
}

// unreserve gives back what lies behind the end of the file, which is done by
// cutting it where it ends.
func (f *osFile) unreserve() {
	r := &f.reservation
	if r.end == 0 {
		return
	}
	r.end = 0
	if size, err := f.Size(); err == nil {
		_ = f.File.Truncate(size) // else it stays set aside
	}
}
