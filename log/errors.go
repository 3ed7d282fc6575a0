package log

import (
	"errors"
	"fmt"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

// Classes of errors, for errors.Is.
var (
	// ErrNoEntry matches *EntryRangeError.
	ErrNoEntry = errors.New("no such entry")
	// ErrSync matches *SyncError: the log takes no more writes until it is opened again.
	ErrSync = errors.New("sync failed")
	// ErrNoSpace: the disk is full. Nothing was appended; reads go on, and
	// appends work again when there is space.
	ErrNoSpace = vfs.ErrNoSpace
)

// CorruptError says where bytes are not what was written. It matches record.ErrCorrupt.
type CorruptError = segment.CorruptError

// EntryRangeError says which entry was asked for and what the log held.
type EntryRangeError struct {
	Number      record.EntryNumber
	First, Next record.EntryNumber // the log held [First, Next)
}

// Is reports whether target is ErrNoEntry.
func (e *EntryRangeError) Is(target error) bool { return target == ErrNoEntry }

func (e *EntryRangeError) Error() string {
	return fmt.Sprintf("entry %d is outside [%d, %d)", e.Number, e.First, e.Next)
}

// SyncError says that a sync, or the repair of a failed write, has failed: what
// is on disk is unknown until the log is opened again.
type SyncError struct {
	File string
	Err  error
}

// Is reports whether target is ErrSync.
func (e *SyncError) Is(target error) bool { return target == ErrSync }

// Unwrap returns the cause.
func (e *SyncError) Unwrap() error { return e.Err }

func (e *SyncError) Error() string {
	return fmt.Sprintf("%s: sync: %v; open the log again to go on", e.File, e.Err)
}
