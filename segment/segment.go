package segment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"sync"
	"sync/atomic"

	"github.com/quorumlog/quorumlog/internal/vfs"
)

// Ends of file names.
const (
	LogSuffix       = ".log"
	IndexSuffix     = ".index"
	TimeIndexSuffix = ".timeindex"
)

// Segment is one open segment file. It is closed when the last reference is released.
type Segment struct {
	Header
	fsys       vfs.FS
	path       string // without suffix
	file       vfs.File
	seed       uint32 // checksum of the file header: entries' checksums go on from it
	indexBytes int64  // between two slots of the index
	refs       atomic.Int32
	pages      sync.Pool // *[]byte, scratch of readers

	times atomic.Pointer[knownTimes] // what Times found; the readers'

	// Bytes that the .index and the .timeindex on disk speak of, 0 without one; the writer's.
	indexed, timed int64
}

// Name returns the path of the segment that begins at h's base offset, without suffix.
func (h Header) Name(dir string) string {
	return path.Join(dir, fmt.Sprintf("%020d", h.BaseOffset))
}

// Create makes a segment file in dir; it is durable when Create returns. An
// index slot is made every indexBytes. The caller holds the one reference. It
// fails with fs.ErrExist if there is such a file; other errors may leave one.
func Create(fsys vfs.FS, dir string, h Header, indexBytes int64) (*Segment, error) {
	name := h.Name(dir) + LogSuffix
	file, err := fsys.Create(name)
	if err != nil {
		return nil, err
	}
	b := h.Encode()
	_, err = file.WriteAt(b, 0)
	if err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = fsys.SyncDir(dir)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return newSegment(fsys, dir, file, h, b, indexBytes), nil
}

// Open opens the segment file name in dir. ErrNoHeader if it is one that was
// never finished; a *VersionError, or a *CorruptError if its header is damaged.
func Open(fsys vfs.FS, dir, name string, indexBytes int64) (*Segment, error) {
	file, err := fsys.Open(path.Join(dir, name))
	if err != nil {
		return nil, err
	}
	h, b, err := readHeader(file, path.Join(dir, name))
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return newSegment(fsys, dir, file, h, b, indexBytes), nil
}

// Mend opens a segment file whose header Open has found damaged, if what was
// written there can be told for sure, and writes it again. known is as for
// MendHeader. False, with a nil error, if it cannot be told.
func Mend(fsys vfs.FS, dir, name string, known Header, indexBytes int64) (*Segment, bool, error) {
	file, err := fsys.Open(path.Join(dir, name))
	if err != nil {
		return nil, false, err
	}
	b := make([]byte, HeaderSize+frameSize)
	n, err := readAt(file, b, 0)
	if err == nil {
		h, ok := MendHeader(b[:min(n, HeaderSize)], known, func(sum uint32) bool {
			_, ok := decodeFrame(b[HeaderSize:], sum)
			return ok || n == HeaderSize
		})
		if !ok {
			return nil, false, file.Close()
		}
		if _, err = file.WriteAt(h.Encode(), 0); err == nil {
			err = file.Sync()
		}
		if err == nil {
			return newSegment(fsys, dir, file, h, h.Encode(), indexBytes), true, nil
		}
	}
	return nil, false, errors.Join(err, file.Close())
}

func newSegment(fsys vfs.FS, dir string, file vfs.File, h Header, header []byte, indexBytes int64) *Segment {
	s := &Segment{Header: h, fsys: fsys, path: h.Name(dir), file: file, seed: seed(header), indexBytes: indexBytes}
	s.refs.Store(1)
	return s
}

func readHeader(file vfs.File, name string) (Header, []byte, error) {
	b := make([]byte, HeaderSize)
	n, err := readAt(file, b, 0)
	if err != nil {
		return Header{}, nil, err
	}
	h, err := DecodeHeader(b[:n])
	if versionErr := (*VersionError)(nil); errors.As(err, &versionErr) {
		versionErr.File = name
		return Header{}, nil, err
	}
	if err == nil {
		if path.Base(h.Name("")+LogSuffix) != path.Base(name) {
			return Header{}, nil, &CorruptError{File: name, From: h.BaseOffset, To: h.BaseOffset, Reason: "its header belongs to another file name"}
		}
		return h, b, nil
	}
	size, sizeErr := file.Size()
	if sizeErr != nil {
		return Header{}, nil, sizeErr
	}
	// Entries are written only after the header is durable, and it lies in one sector.
	if n < HeaderSize || size == HeaderSize && bytes.Equal(b, make([]byte, HeaderSize)) {
		return Header{}, nil, fmt.Errorf("%s: %w", name, ErrNoHeader)
	}
	return Header{}, nil, &CorruptError{File: name, Reason: err.Error()}
}

// File returns the path of the segment file.
func (s *Segment) File() string { return s.path + LogSuffix }

// Size returns the bytes that the file has now.
func (s *Segment) Size() (int64, error) { return s.file.Size() }

// Acquire takes a reference; false if the segment has been closed already.
func (s *Segment) Acquire() bool {
	for {
		n := s.refs.Load()
		if n == 0 {
			return false
		}
		if s.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release gives a reference back. The last one closes the file.
func (s *Segment) Release() error {
	if s.refs.Add(-1) == 0 {
		return s.file.Close()
	}
	return nil
}

// Sync makes what was appended durable.
func (s *Segment) Sync() error { return s.file.Sync() }

// Remove deletes the files of s, durably. Those who hold a reference read on.
func (s *Segment) Remove() error {
	if _, err := s.remove(LogSuffix, TimeIndexSuffix, IndexSuffix); err != nil {
		return err
	}
	return s.fsys.SyncDir(path.Dir(s.path)) // also for a call that got no further
}

// DropIndex deletes the .index and the .timeindex if they are there, durably.
func (s *Segment) DropIndex() error {
	if err := s.drop(TimeIndexSuffix, IndexSuffix); err != nil {
		return err
	}
	s.indexed, s.timed = 0, 0
	return nil
}

// DropTimes deletes the .timeindex if it is there, durably.
func (s *Segment) DropTimes() error {
	if err := s.drop(TimeIndexSuffix); err != nil {
		return err
	}
	s.timed = 0
	return nil
}

func (s *Segment) drop(suffixes ...string) error {
	found, err := s.remove(suffixes...)
	if err != nil || !found {
		return err
	}
	return s.fsys.SyncDir(path.Dir(s.path))
}

// remove deletes files of s and says whether there were any.
func (s *Segment) remove(suffixes ...string) (found bool, err error) {
	for _, suffix := range suffixes {
		err := s.fsys.Remove(s.path + suffix)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return found, err
		}
		found = found || err == nil
	}
	return found, nil
}

// Cut shortens the file to the size of x, durably.
func (s *Segment) Cut(x Extent) error {
	if max(s.indexed, s.timed) > x.Size { // they would say that what is cut now is there
		if err := s.DropIndex(); err != nil {
			return err
		}
	}
	if err := s.file.Truncate(x.Size); err != nil {
		return err
	}
	return s.file.Sync()
}

func seed(header []byte) uint32 { return be.Uint32(header[HeaderSize-4:]) }

// readAt is file.ReadAt, for which the end of the file is no error.
func readAt(file io.ReaderAt, b []byte, pos int64) (int, error) {
	n, err := file.ReadAt(b, pos)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}
