package vfs

import (
	"io/fs"
	"sync"
)

// cappedFile is an open File of a Capped.
type cappedFile struct {
	c *Capped
	h handle

	name   string // guarded by Capped.names
	pinned bool   // its file may have lost its name; guarded by Capped.names

	mu     sync.Mutex // held while a handle is opened again
	closed bool       // guarded by mu

	// Of the one goroutine that writes.
	dirty  bool  // there is something to sync; holds a reference to the handle
	failed error // of the Sync that failed
}

// acquire returns the open file and keeps it open until release.
func (f *cappedFile) acquire(op string) (File, error) {
	if !f.h.acquire() {
		f.c.names.RLock()
		err := f.reopen(op)
		f.c.names.RUnlock()
		if err != nil {
			return nil, err
		}
	}
	return f.h.file, nil
}

// reopen is acquire for a File whose handle was closed. The caller holds
// Capped.names, for reading at least.
func (f *cappedFile) reopen(op string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.h.acquire() { // another has opened it meanwhile
		return nil
	}
	if f.closed {
		return &fs.PathError{Op: op, Path: f.name, Err: fs.ErrClosed}
	}
	file, err := f.c.handles.open(func() (File, error) { return f.c.fs.Open(f.name) })
	if err != nil {
		return err
	}
	f.c.handles.reopened.Add(1)
	f.c.handles.add(&f.h, file)
	return nil
}

func (f *cappedFile) release() { f.c.handles.release(&f.h) }

// pin opens the handle and keeps it until Close. The caller holds Capped.names
// for writing.
func (f *cappedFile) pin() error {
	if f.pinned {
		return nil
	}
	if err := f.reopen("open"); err != nil {
		return err
	}
	f.pinned = true
	f.c.handles.retire(&f.h)
	return nil
}

// ReadAt implements File.
func (f *cappedFile) ReadAt(p []byte, off int64) (int, error) {
	file, err := f.acquire("read")
	if err != nil {
		return 0, err
	}
	n, err := file.ReadAt(p, off)
	f.release()
	return n, err
}

// Size implements File.
func (f *cappedFile) Size() (int64, error) {
	file, err := f.acquire("size")
	if err != nil {
		return 0, err
	}
	defer f.release()
	return file.Size()
}

// change returns the open file for a write, and keeps it open until Sync.
func (f *cappedFile) change(op string) (File, error) {
	if f.dirty {
		return f.h.file, nil
	}
	file, err := f.acquire(op)
	if err != nil {
		return nil, err
	}
	f.dirty = true
	return file, nil
}

// WriteAt implements File.
func (f *cappedFile) WriteAt(p []byte, off int64) (int, error) {
	file, err := f.change("write")
	if err != nil {
		return 0, err
	}
	return file.WriteAt(p, off)
}

// WriteVecAt implements File.
func (f *cappedFile) WriteVecAt(bufs [][]byte, off int64) (int64, error) {
	file, err := f.change("write")
	if err != nil {
		return 0, err
	}
	return file.WriteVecAt(bufs, off)
}

// Truncate implements File.
func (f *cappedFile) Truncate(size int64) error {
	file, err := f.change("truncate")
	if err != nil {
		return err
	}
	return file.Truncate(size)
}

// Sync implements File.
func (f *cappedFile) Sync() error {
	if f.failed != nil {
		return f.failed
	}
	file, err := f.acquire("sync")
	if err != nil {
		return err
	}
	defer f.release()
	if f.failed = file.Sync(); f.failed != nil {
		return f.failed
	}
	if f.dirty {
		f.dirty = false
		f.release()
	}
	return nil
}

// Close implements File. Calls under way end as they do below.
func (f *cappedFile) Close() error {
	if err := f.leave(); err != nil {
		return err
	}
	return f.c.handles.close(&f.h)
}

// leave sees to it that the handle is not opened again.
func (f *cappedFile) leave() error {
	f.c.names.RLock()
	defer f.c.names.RUnlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return &fs.PathError{Op: "close", Path: f.name, Err: fs.ErrClosed}
	}
	f.closed = true
	f.c.forget(f)
	return nil
}
