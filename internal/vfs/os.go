package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"sync"
)

// OS is the machine's file system. Files are made with mode 0640 and directories
// with 0750, less the umask.
var OS FS = &osFS{}

const (
	filePerm = 0o640
	dirPerm  = 0o750
)

type osFS struct {
	// mkdir keeps a MkdirAll from returning while the parent that it found is
	// still to be synced by the call that made it.
	mkdir sync.Mutex
}

func (*osFS) Create(name string) (File, error) {
	f, err := openFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, errNoSpace(err)
	}
	return newOSFile(f)
}

func (*osFS) Open(name string) (File, error) {
	f, err := openFile(name, os.O_RDWR)
	if err != nil {
		return nil, err
	}
	return newOSFile(f)
}

func (*osFS) ReadFile(name string) ([]byte, error) { return os.ReadFile(name) }

func (*osFS) Rename(oldname, newname string) error {
	if path.Dir(oldname) != path.Dir(newname) {
		return &os.LinkError{Op: "rename", Old: oldname, New: newname, Err: errOtherDir}
	}
	return errNoSpace(os.Rename(oldname, newname))
}

func (*osFS) Remove(name string) error { return os.Remove(name) }

func (o *osFS) MkdirAll(name string) error {
	o.mkdir.Lock()
	defer o.mkdir.Unlock()
	return o.mkdirAll(path.Clean(name))
}

// mkdirAll makes the parents first and syncs each before it makes the next, so
// a crash leaves a beginning of the path.
func (o *osFS) mkdirAll(name string) error {
	switch info, err := os.Stat(name); {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return &fs.PathError{Op: "mkdir", Path: name, Err: fs.ErrExist}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	parent := path.Dir(name)
	if parent == name { // a volume that is not there
		return &fs.PathError{Op: "mkdir", Path: name, Err: fs.ErrNotExist}
	}
	if err := o.mkdirAll(parent); err != nil {
		return err
	}
	if err := os.Mkdir(name, dirPerm); err != nil && !errors.Is(err, fs.ErrExist) {
		return errNoSpace(err)
	}
	return o.SyncDir(parent)
}

func (*osFS) List(dir string) ([]string, error) {
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

func (*osFS) SyncDir(dir string) error { return errNoSpace(syncDir(dir)) }

func (*osFS) Lock(name, owner string) (io.Closer, error) {
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
