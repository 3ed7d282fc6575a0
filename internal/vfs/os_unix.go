//go:build unix

package vfs

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// fullDisk are the errors, other than ErrNoSpace itself, of a full disk.
var fullDisk = []error{unix.EDQUOT}

func openFile(name string, flag int) (*os.File, error) { return os.OpenFile(name, flag, filePerm) }

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	// Some network file systems have no such call; they write names through.
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, d.Close())
}

// openLocked opens the file, made if need be, with the lock on it. flock belongs
// to the open file, so a second one of the same process is shut out too.
func openLocked(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, filePerm)
	if err != nil {
		return nil, err
	}
	for {
		switch err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			return f, nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EWOULDBLOCK):
			err = ErrLocked
		}
		return nil, &fs.PathError{Op: "lock", Path: name, Err: errors.Join(err, f.Close())}
	}
}
