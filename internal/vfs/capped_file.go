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

	writes  sync.Mutex // guards what follows
	dirty   bool       // there is something to sync; holds a reference to the handle
	writing int        // writes under way
	began   uint64     // writes that have begun
	failed  error      // of the Sync that failed
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

// change runs a write on the open file, which stays open until a Sync that begins
// afterwards.
func (f *cappedFile) change(op string, write func(File) error) error {
	f.writes.Lock()
	if !f.dirty {
		if _, err := f.acquire(op); err != nil {
			f.writes.Unlock()
			return err
		}
		f.dirty = true
	}
	file := f.h.file
	f.writing++
	f.began++
	f.writes.Unlock()
	err := write(file)
	f.writes.Lock()
	f.writing--
	f.writes.Unlock()
	return err
}

// WriteAt implements File.
func (f *cappedFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.change("write", func(file File) (err error) {
		n, err = file.WriteAt(p, off)
		return err
	})
	return n, err
}

// WriteVecAt implements File.
func (f *cappedFile) WriteVecAt(bufs [][]byte, off int64) (n int64, err error) {
	err = f.change("write", func(file File) (err error) {
		n, err = file.WriteVecAt(bufs, off)
		return err
	})
	return n, err
}

// Truncate implements File.
func (f *cappedFile) Truncate(size int64) error {
	return f.change("truncate", func(file File) error { return file.Truncate(size) })
}

// Sync implements File. What is written beside it has to be synced once more.
func (f *cappedFile) Sync() error {
	f.writes.Lock()
	failed, began, quiet := f.failed, f.began, f.writing == 0
	f.writes.Unlock()
	if failed != nil {
		return failed
	}
	file, err := f.acquire("sync")
	if err != nil {
		return err
	}
	defer f.release()
	err = file.Sync()
	f.writes.Lock()
	defer f.writes.Unlock()
	switch {
	case err != nil:
		f.failed = err
	case f.dirty && quiet && f.began == began:
		f.dirty = false
		f.release()
	}
	return err
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
