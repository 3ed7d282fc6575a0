package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// ErrLocked matches, under errors.Is, every *LockedError.
var ErrLocked = errors.New("locked")

// LockedError says which lock file is held, and by whom.
type LockedError struct {
	Name  string
	Owner string // what the holder wrote; empty in the instant before it writes
}

// Is makes the error match ErrLocked.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

func (e *LockedError) Error() string {
	owner := e.Owner
	if owner == "" {
		owner = "another process"
	}
	return e.Name + " is locked by " + owner
}

// ErrNoSpace says that the disk or the caller's share of it is full. Nothing is
// damaged; the call may be made again when there is space.
var ErrNoSpace error = syscall.ENOSPC

// errNoSpace makes the errors by which systems say that the disk is full match
// ErrNoSpace.
func errNoSpace(err error) error {
	for _, full := range fullDisk {
		if errors.Is(err, full) {
			return fmt.Errorf("%w: %w", err, ErrNoSpace)
		}
	}
	return err
}

var (
	errNegativeOffset = fmt.Errorf("negative offset or length: %w", fs.ErrInvalid)
	errOtherDir       = fmt.Errorf("names in two directories: %w", fs.ErrInvalid)
	errNotEmpty       = fmt.Errorf("directory not empty: %w", fs.ErrExist)
)
