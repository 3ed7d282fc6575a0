package vfs

import (
	"io"
	"path"
	"slices"
	"strings"
	"sync"
)

// Capped is a file system over another one that keeps a bounded number of
// handles open, however many Files its user has. A File whose handle was closed
// to make room for others opens one again when it is next used; its user does
// not see that. Handles that have not been used for long are closed first.
//
// # Handles that stay open
//
//	in use           a call on it is under way
//	not synced       written to or truncated since the last Sync that succeeded
//	without a name   its file was removed, or replaced by a rename
//
// If there are only such, the limit is exceeded: no call fails for it. Handles
// above the limit are closed as soon as they may be.
//
// Linux reports that writing back failed to each handle that was open then, by
// its next fsync, and forgets it. A handle that was opened afterwards could
// sync and be told that all is well, so one with something to lose is kept. For
// the same reason the File that wrote has to be the one that syncs, and after
// one failed Sync of a File all others fail with the same error.
//
// # Names
//
// Files follow renames of themselves and of directories above them. Remove and
// Rename give each File whose file loses its name a handle that it keeps, before
// it does so, and fail if they cannot; so readers of a removed file read on.
// That works for what is done through the Capped, with one spelling of each
// name: equal after path.Clean. Relative names must go on meaning the same.
//
// # Without free descriptors
//
// When the process or the system has no descriptor left (EMFILE, ENFILE), idle
// handles are closed and the call is made again. It fails when there are none.
type Capped struct {
	fs      FS
	handles handles

	// names is held for writing while names change, and for reading from the
	// opening of a file by its name until the table knows it. Locks are taken in
	// this order: names, a cappedFile's mu, mu or handles.mu.
	names sync.RWMutex
	mu    sync.Mutex
	table map[string][]*cappedFile // open Files by clean name; guarded by mu
}

// NewCapped returns a file system over fsys with at most limit open handles, or
// one if limit is less. It needs no Close.
func NewCapped(fsys FS, limit int) *Capped {
	return &Capped{fs: fsys, handles: handles{limit: int64(max(limit, 1))}, table: map[string][]*cappedFile{}}
}

// Bounds of DefaultLimit, and what it is where the system does not say how many
// files a process may have open.
const (
	lowestLimit  = 64
	defaultLimit = 512
	highestLimit = 4096
)

// Handles returns counts of the handles, for those who watch the limit.
func (c *Capped) Handles() HandleStats { return c.handles.stats() }

// Create implements FS.
func (c *Capped) Create(name string) (File, error) { return c.open(name, c.fs.Create) }

// Open implements FS.
func (c *Capped) Open(name string) (File, error) { return c.open(name, c.fs.Open) }

func (c *Capped) open(name string, open func(string) (File, error)) (File, error) {
	c.names.RLock()
	defer c.names.RUnlock()
	file, err := c.handles.open(func() (File, error) { return open(name) })
	if err != nil {
		return nil, err
	}
	f := &cappedFile{c: c, name: name}
	f.h.refs.Store(shut)
	key := path.Clean(name)
	c.mu.Lock()
	c.table[key] = append(c.table[key], f)
	c.mu.Unlock()
	c.handles.add(&f.h, file)
	f.release()
	return f, nil
}

// forget takes a File that is closed out of the table. The caller holds names.
func (c *Capped) forget(f *cappedFile) {
	key := path.Clean(f.name)
	c.mu.Lock()
	defer c.mu.Unlock()
	files := c.table[key]
	i := slices.Index(files, f)
	switch {
	case i < 0: // its file has lost its name
	case len(files) == 1:
		delete(c.table, key)
	default:
		c.table[key] = slices.Delete(files, i, i+1)
	}
}

// pin gives every File of a name a handle that it keeps. The caller holds names
// for writing.
func (c *Capped) pin(key string) error {
	for _, f := range c.table[key] {
		if err := f.pin(); err != nil {
			return err
		}
	}
	return nil
}

// Remove implements FS. After an error Files of that name may keep a handle
// that is not needed.
func (c *Capped) Remove(name string) error {
	key := path.Clean(name)
	c.names.Lock()
	defer c.names.Unlock()
	if err := c.pin(key); err != nil {
		return err
	}
	if err := c.fs.Remove(name); err != nil {
		return err
	}
	delete(c.table, key)
	return nil
}

// Rename implements FS. After an error Files of newname may keep a handle that
// is not needed.
func (c *Capped) Rename(oldname, newname string) error {
	from, to := path.Clean(oldname), path.Clean(newname)
	if from == to {
		return c.fs.Rename(oldname, newname)
	}
	c.names.Lock()
	defer c.names.Unlock()
	if err := c.pin(to); err != nil {
		return err
	}
	if err := c.fs.Rename(oldname, newname); err != nil {
		return err
	}
	delete(c.table, to)
	c.move(from, to)
	return nil
}

// move tells the Files of a name, and those of names in it if it is a directory,
// what they are called now.
func (c *Capped) move(from, to string) {
	moved := map[string][]*cappedFile{}
	for key, files := range c.table {
		if rest, ok := strings.CutPrefix(key, from); ok && (rest == "" || rest[0] == '/') {
			moved[to+rest] = files
			delete(c.table, key)
		}
	}
	for key, files := range moved {
		for _, f := range files {
			f.name = key
		}
		c.table[key] = files
	}
}

// ReadFile implements FS.
func (c *Capped) ReadFile(name string) (b []byte, err error) {
	err = c.handles.retry(func() error {
		b, err = c.fs.ReadFile(name)
		return err
	})
	return b, err
}

// MkdirAll implements FS.
func (c *Capped) MkdirAll(name string) error {
	return c.handles.retry(func() error { return c.fs.MkdirAll(name) })
}

// List implements FS.
func (c *Capped) List(dir string) (names []string, err error) {
	err = c.handles.retry(func() error {
		names, err = c.fs.List(dir)
		return err
	})
	return names, err
}

// SyncDir implements FS.
func (c *Capped) SyncDir(dir string) error {
	return c.handles.retry(func() error { return c.fs.SyncDir(dir) })
}

// Lock implements FS. The lock's handle is not counted.
func (c *Capped) Lock(name, owner string) (l io.Closer, err error) {
	err = c.handles.retry(func() error {
		l, err = c.fs.Lock(name, owner)
		return err
	})
	return l, err
}
