package vfs

import (
	"errors"
	"io/fs"
	"path"
)

// WriteFile replaces a small file durably and atomically: after a crash there is
// the old content or the new one. It writes name.tmp, syncs it, renames it and
// syncs the directory. One goroutine at a time may write a name.
func WriteFile(fsys FS, name string, b []byte) error {
	tmp := name + ".tmp"
	if err := fsys.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := fsys.Create(tmp)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := fsys.Rename(tmp, name); err != nil {
		return err
	}
	return fsys.SyncDir(path.Dir(name))
}
