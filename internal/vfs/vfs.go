package vfs

import "io"

// FS is a file system. Names are slash-separated paths. All methods may be
// called at once. Errors satisfy errors.Is with fs.ErrNotExist, ErrNoSpace and
// so on, and name the path.
type FS interface {
	// Create makes a new, empty file for reading and writing; it fails with
	// fs.ErrExist if there is one. The name is durable after SyncDir.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing.
	Open(name string) (File, error)
	// ReadFile returns a whole small file.
	ReadFile(name string) ([]byte, error)
	// Rename replaces newname, a file in the same directory, atomically; durable
	// after SyncDir. It fails with fs.ErrInvalid from one directory to another:
	// no single SyncDir could make that durable. Close newname before; Windows
	// may refuse otherwise.
	Rename(oldname, newname string) error
	// Remove deletes a file or an empty directory. Open handles stay usable.
	Remove(name string) error
	// MkdirAll makes a directory and its parents, durably.
	MkdirAll(name string) error
	// List returns the names in a directory, sorted.
	List(dir string) ([]string, error)
	// SyncDir makes creates, renames and removes in dir durable.
	SyncDir(dir string) error
	// Lock takes an exclusive lock on the file name, which it creates, and
	// writes owner into it. If another holds it, in this process or another,
	// it fails at once with a *LockedError that says who. Close unlocks; so does
	// the end of the process.
	Lock(name, owner string) (io.Closer, error)
}

// File is an open file. ReadAt may run beside anything, and one Sync beside writes;
// the rest belongs to one goroutine at a time. What was written before a Sync began
// is durable after it.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// WriteVecAt writes the buffers one behind the other from off, as one write.
	// It returns the number of bytes written, which is short only with an error.
	WriteVecAt(bufs [][]byte, off int64) (int64, error)
	// Size returns the length in bytes.
	Size() (int64, error)
	// Truncate sets the length in bytes; what it adds reads as zero.
	Truncate(size int64) error
	// Sync makes bytes and length durable. After an error what is on disk is
	// unknown, and calling it again does not help.
	Sync() error
}
