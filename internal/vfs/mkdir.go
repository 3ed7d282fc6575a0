package vfs

import (
	"errors"
	"io/fs"
	"os"
	"path"
)

// dirs is what mkdirAll needs of a file system.
type dirs interface {
	isDir(name string) (bool, error)
	mkdir(name string) error
	syncDir(name string) error
}

// mkdirAll makes the parents first and syncs each before it makes the next, so
// a crash leaves a beginning of the path, of which only the last name may not be
// durable yet. A directory that is there may be that one: whoever made it was stopped, or
// could not sync it. So its parent is synced too.
func mkdirAll(d dirs, name string) error {
	parent := path.Dir(name)
	switch exists, err := d.isDir(name); {
	case err != nil:
		return err
	case exists && parent == name:
		return nil
	case exists:
		err := d.syncDir(parent)
		if errors.Is(err, fs.ErrPermission) {
			return nil // who must not sync it has not made it this way
		}
		return err
	case parent == name: // a volume that is not there
		return &fs.PathError{Op: "mkdir", Path: name, Err: fs.ErrNotExist}
	}
	if err := mkdirAll(d, parent); err != nil {
		return err
	}
	if err := d.mkdir(name); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return d.syncDir(parent)
}

// osDirs are the machine's directories.
type osDirs struct{}

func (osDirs) isDir(name string) (bool, error) {
	switch info, err := os.Stat(name); {
	case err == nil && info.IsDir():
		return true, nil
	case err == nil:
		return false, &fs.PathError{Op: "mkdir", Path: name, Err: fs.ErrExist}
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	default:
		return false, err
	}
}

func (osDirs) mkdir(name string) error   { return errNoSpace(os.Mkdir(name, dirPerm)) }
func (osDirs) syncDir(name string) error { return errNoSpace(syncDir(name)) }
