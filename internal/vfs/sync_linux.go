package vfs

import (
	"errors"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// syncs is how an OSFS syncs its files.
type syncs struct {
	aio     *aio         // nil: each blocks a thread
	pending atomic.Int32 // under way
}

func (s *syncs) close() error {
	if s.aio == nil {
		return nil
	}
	return s.aio.close()
}

// sync leaves out times of the inode, which nobody reads; the length is part of
// what fdatasync writes.
func (f *osFile) sync() error {
	var err error
	closed := f.conn.Control(func(fd uintptr) { err = f.syncs.sync(fd) })
	return f.fail("sync", closed, err)
}

// sync blocks a thread when no other file syncs: alone, that takes two thirds of
// the time that aio takes, and leaves the other threads to the process.
func (s *syncs) sync(fd uintptr) error {
	defer s.pending.Add(-1)
	if others := s.pending.Add(1) > 1; others && s.aio != nil {
		if err := s.aio.sync(fd); !errors.Is(err, errNotSubmitted) {
			return err
		}
	}
	for {
		if err := unix.Fdatasync(int(fd)); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
