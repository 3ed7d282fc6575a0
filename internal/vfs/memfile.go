package vfs

import (
	"errors"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"
)

// file is one file of a Mem, under any name or none.
type file struct {
	mu       sync.RWMutex // guards content, opens and unlinked
	content  content
	opens    int
	unlinked bool

	locked bool // guarded by Mem.mu
}

func (f *file) open() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opens++
}

func (f *file) bytes() []byte {
	f.mu.RLock()
	defer f.mu.RUnlock()
	b := make([]byte, f.content.size)
	f.content.readAt(b, 0)
	return b
}

// memFile is an open file of a Mem.
type memFile struct {
	m      *Mem
	f      *file
	name   string
	closed atomic.Bool
}

// change runs a mutating call on the file. do gets the error that the call must
// give, if any, and whether the call is the crash point.
func (h *memFile) change(op Op, do func(crash bool, err error) error) error {
	if h.closed.Load() {
		return pathError(op, h.name, fs.ErrClosed)
	}
	asked := h.m.faults.ask(op, h.name)
	h.m.mu.RLock()
	defer h.m.mu.RUnlock()
	crash, err := h.m.faults.admit(asked)
	if !errors.Is(err, ErrCrashed) {
		h.f.mu.Lock()
		err = do(crash, err)
		h.f.mu.Unlock()
	}
	if crash {
		err = ErrCrashed
	}
	return pathError(op, h.name, err)
}

// look checks a call that only reads.
func (h *memFile) look(op Op) error {
	if h.closed.Load() {
		return pathError(op, h.name, fs.ErrClosed)
	}
	return pathError(op, h.name, h.m.faults.ask(op, h.name))
}

func (h *memFile) ReadAt(p []byte, off int64) (int, error) {
	if err := h.look(OpRead); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError(OpRead, h.name, errNegativeOffset)
	}
	h.f.mu.RLock()
	defer h.f.mu.RUnlock()
	n := h.f.content.readAt(p, off)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (h *memFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := h.WriteVecAt([][]byte{p}, off)
	return int(n), err
}

func (h *memFile) WriteVecAt(bufs [][]byte, off int64) (n int64, err error) {
	err = h.change(OpWrite, func(crash bool, err error) error {
		if crash {
			h.m.torn = newTornWrite(h.f, bufs, off)
			return nil
		}
		n, err = h.m.write(&h.f.content, bufs, off, err)
		return err
	})
	return n, err
}

// write writes as much of bufs as fault, if any, and the capacity allow. The
// caller holds the file's lock.
func (m *Mem) write(c *content, bufs [][]byte, off int64, fault error) (int64, error) {
	var all int64
	for _, b := range bufs {
		all += int64(len(b))
	}
	err := fault
	switch short := (*ShortWrite)(nil); {
	case off < 0:
		return 0, errNegativeOffset
	case off > maxFileSize-all:
		return 0, syscall.EFBIG
	case errors.As(fault, &short):
		all, err = max(min(short.N, all), 0), short.Err
	case fault != nil:
		return 0, fault
	}
	end := off + all
	if end > c.size && all > 0 {
		if end = m.space.extend(c.size, off, end); end < off+all {
			err = ErrNoSpace
		}
	}
	written := max(end-off, 0)
	for left := written; left > 0; bufs = bufs[1:] {
		b := bufs[0][:min(int64(len(bufs[0])), left)]
		if len(b) > 0 { // an empty one would grow the file to off
			c.writeAt(b, off)
		}
		off, left = off+int64(len(b)), left-int64(len(b))
	}
	return written, err
}

func (h *memFile) Size() (int64, error) {
	if err := h.look(OpSize); err != nil {
		return 0, err
	}
	h.f.mu.RLock()
	defer h.f.mu.RUnlock()
	return h.f.content.size, nil
}

func (h *memFile) Truncate(size int64) error {
	return h.change(OpTruncate, func(_ bool, err error) error {
		c := &h.f.content
		switch {
		case err != nil:
			return err
		case size < 0:
			return errNegativeOffset
		case size > maxFileSize:
			return syscall.EFBIG
		case size < c.size:
			h.m.space.release(c.size - size)
		case size > c.size && h.m.space.extend(c.size, size-1, size) < size:
			return ErrNoSpace
		}
		c.truncate(size)
		return nil
	})
}

func (h *memFile) Sync() error {
	return h.change(OpSync, func(crash bool, err error) error {
		switch {
		case crash: // what it should have written may be there or not
		case err != nil:
			h.f.content.syncFailed()
		default:
			h.f.content.sync()
		}
		return err
	})
}

// Close works after a crash too: there is nothing left that it could lose.
func (h *memFile) Close() error {
	if h.closed.Swap(true) {
		return &fs.PathError{Op: "close", Path: h.name, Err: fs.ErrClosed}
	}
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	if h.f.opens--; h.f.opens == 0 && h.f.unlinked {
		h.m.space.release(h.f.content.size)
	}
	return nil
}
