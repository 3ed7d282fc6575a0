package vfs

import (
	"errors"
	"io"
	"os"
	"path"
	"sync"
)

// OS is the machine's file system. Files are made with mode 0640 and directories
// with 0750, less the umask. It needs no Close; a Sync blocks a thread.
var OS FS = &OSFS{}

const (
	filePerm = 0o640
	dirPerm  = 0o750
)

// OSFS is the machine's file system with a sync engine of its own.
type OSFS struct {
	// mkdir keeps a MkdirAll from returning while the parent that it found is
	// still to be synced by the call that made it.
	mkdir sync.Mutex

	syncs   syncs
	closing sync.Once
	closed  error // of the first Close
}

// NewOS returns the same as OS, but where the system allows it, many files sync
// at once without a thread each: on Linux, unless a container forbids it. It
// owns one goroutine, which Close ends.
func NewOS() *OSFS {
	return &OSFS{syncs: syncs{aio: newAIO()}}
}

// Close waits for the syncs under way and gives back what NewOS took. Files may
// stay open; they sync as those of OS from then on. It may be called twice.
func (o *OSFS) Close() error {
	o.closing.Do(func() { o.closed = o.syncs.close() })
	return o.closed
}

// Create implements FS.
func (o *OSFS) Create(name string) (File, error) {
	f, err := openFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, errNoSpace(err)
	}
	return newOSFile(f, &o.syncs)
}

// Open implements FS.
func (o *OSFS) Open(name string) (File, error) {
	f, err := openFile(name, os.O_RDWR)
	if err != nil {
		return nil, err
	}
	return newOSFile(f, &o.syncs)
}

// ReadFile implements FS.
func (*OSFS) ReadFile(name string) ([]byte, error) { return os.ReadFile(name) }

// Rename implements FS.
func (*OSFS) Rename(oldname, newname string) error {
	if path.Dir(oldname) != path.Dir(newname) {
		return &os.LinkError{Op: "rename", Old: oldname, New: newname, Err: errOtherDir}
	}
	return errNoSpace(os.Rename(oldname, newname))
}

// Remove implements FS.
func (*OSFS) Remove(name string) error { return os.Remove(name) }

// MkdirAll implements FS.
func (o *OSFS) MkdirAll(name string) error {
	o.mkdir.Lock()
	defer o.mkdir.Unlock()
	return mkdirAll(osDirs{}, path.Clean(name))
}

// List implements FS.
func (*OSFS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// SyncDir implements FS.
func (*OSFS) SyncDir(dir string) error { return errNoSpace(syncDir(dir)) }

// Lock implements FS.
func (*OSFS) Lock(name, owner string) (io.Closer, error) {
	f, err := openLocked(name)
	if errors.Is(err, ErrLocked) {
		// The text is advice: an unreadable one still leaves a lock that is held.
		b, _ := os.ReadFile(name)
		return nil, &LockedError{Name: name, Owner: string(b)}
	}
	if err != nil {
		return nil, errNoSpace(err)
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(owner), 0)
	}
	if err != nil {
		return nil, errNoSpace(errors.Join(err, f.Close()))
	}
	return &osLock{f: f}, nil
}

// osLock is a held lock. Closing its file gives it free.
type osLock struct {
	f    *os.File
	once sync.Once
	err  error
}

// Close empties the file first, so that nobody is told of an owner that is gone.
func (l *osLock) Close() error {
	l.once.Do(func() { l.err = errors.Join(l.f.Truncate(0), l.f.Close()) })
	return l.err
}
