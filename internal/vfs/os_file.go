package vfs

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// osFile adds to os.File what the log needs and os does not have.
type osFile struct {
	*os.File
	conn  syscall.RawConn // keeps the descriptor open while a call uses it
	syncs *syncs
	reservation
}

func newOSFile(f *os.File, s *syncs) (File, error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &osFile{File: f, conn: conn, syncs: s}, nil
}

func (f *osFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(p, off)
	return n, errNoSpace(err)
}

func (f *osFile) WriteVecAt(bufs [][]byte, off int64) (int64, error) {
	if off < 0 {
		return 0, f.fail("write", nil, errNegativeOffset)
	}
	f.reserve(off, bufs)
	n, err := f.writeVecAt(bufs, off)
	return n, errNoSpace(err)
}

func (f *osFile) Truncate(size int64) error {
	f.reservation = reservation{} // cutting takes it away
	return errNoSpace(f.File.Truncate(size))
}

func (f *osFile) Close() error {
	f.unreserve()
	return f.File.Close()
}

func (f *osFile) Sync() error { return errNoSpace(f.sync()) }

func (f *osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// fail names the file in err. closed is set if the call was not made because
// the file is closed; package syscall has a word of its own for that.
func (f *osFile) fail(op string, closed, err error) error {
	if closed != nil {
		err = fs.ErrClosed
	}
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: f.Name(), Err: err}
}
