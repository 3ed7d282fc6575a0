package vfs

import (
	"errors"
	"io"
	"slices"

	"golang.org/x/sys/unix"
)

// iovMax is how many buffers one pwritev takes (UIO_MAXIOV).
const iovMax = 1024

func (f *osFile) writeVecAt(bufs [][]byte, off int64) (int64, error) {
	var (
		written int64
		err     error
	)
	closed := f.conn.Control(func(fd uintptr) {
		written, err = writeAll(bufs, off, func(bufs [][]byte, off int64) (int, error) {
			return unix.Pwritev(int(fd), bufs, off)
		})
	})
	return written, f.fail("write", closed, err)
}

// writeAll calls pwritev until all is written: the kernel takes iovMax buffers
// and 2 GiB at most, and may write less than it was given.
func writeAll(bufs [][]byte, off int64, pwritev func([][]byte, int64) (int, error)) (int64, error) {
	var written int64
	for bufs = skip(bufs, 0); len(bufs) > 0; {
		n, err := pwritev(bufs[:min(len(bufs), iovMax)], off+written)
		if n > 0 {
			written += int64(n)
			bufs = skip(bufs, n)
		}
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return written, err
		case n <= 0:
			return written, io.ErrShortWrite
		}
	}
	return written, nil
}

// skip returns bufs without its first n bytes and without empty buffers in
// front. It leaves the caller's slice alone.
func skip(bufs [][]byte, n int) [][]byte {
	for len(bufs) > 0 && n >= len(bufs[0]) {
		n -= len(bufs[0])
		bufs = bufs[1:]
	}
	if n > 0 {
		bufs = slices.Clone(bufs)
		bufs[0] = bufs[0][n:]
	}
	return bufs
}
