package vfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/windows"
)

// fullDisk are the errors, other than ErrNoSpace itself, of a full disk.
var fullDisk = []error{windows.ERROR_DISK_FULL, windows.ERROR_HANDLE_DISK_FULL, windows.ERROR_DISK_QUOTA_EXCEEDED}

// openFile is os.OpenFile, but lets the file be removed and renamed while it is
// open, as on other systems. Before Windows 10 1809 the name of a removed file
// stays taken until the last handle is closed.
func openFile(name string, flag int) (*os.File, error) {
	disposition := uint32(windows.OPEN_EXISTING)
	if flag&os.O_EXCL != 0 {
		disposition = windows.CREATE_NEW
	}
	return createFile(name, windows.FILE_SHARE_READ|windows.FILE_SHARE_WRITE|windows.FILE_SHARE_DELETE, disposition)
}

// syncDir does nothing to a directory: NTFS keeps names in its journal, and a
// directory cannot be flushed.
func syncDir(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return &fs.PathError{Op: "sync", Path: dir, Err: windows.ERROR_DIRECTORY}
	}
	return nil
}

// openLocked opens the file, made if need be, such that others may only read it.
func openLocked(name string) (*os.File, error) {
	f, err := createFile(name, windows.FILE_SHARE_READ, windows.OPEN_ALWAYS)
	if errors.Is(err, windows.ERROR_SHARING_VIOLATION) {
		return nil, &fs.PathError{Op: "lock", Path: name, Err: ErrLocked}
	}
	return f, err
}

func createFile(name string, share, disposition uint32) (*os.File, error) {
	p, err := windows.UTF16PtrFromString(filepath.FromSlash(name))
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	h, err := windows.CreateFile(p, windows.GENERIC_READ|windows.GENERIC_WRITE, share, nil, disposition, windows.FILE_ATTRIBUTE_NORMAL, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(h), name), nil
}
