package segment

import (
	"errors"
	"fmt"

	"github.com/quorumlog/quorumlog/record"
)

var (
	// ErrNoHeader: the file was never given its header, or lost it in a crash
	// while it was made. It holds no entry.
	ErrNoHeader = errors.New("segment file without a header")
	// ErrFull: the entry would lie more than 32 bits behind the segment's base.
	ErrFull = errors.New("segment is full")
	// ErrVersion matches *VersionError.
	ErrVersion = errors.New("unknown format version")
)

// CorruptError says where bytes are not what was written. What lies before
// From and from To on is not affected.
type CorruptError struct {
	File     string
	Position int64         // where the bad entry begins
	From, To record.Offset // offsets that may be hurt: [From, To); equal if it is an entry without offsets
	Reason   string

	// Entries that may be hurt: [FirstEntry, NextEntry), where that is known. Else, or
	// if none is, they are equal.
	FirstEntry, NextEntry record.EntryNumber
}

// Hole describes what lies between two extents of s that both are right.
func (s *Segment) Hole(from, to Extent, reason string) *CorruptError {
	return &CorruptError{
		File: s.File(), Position: from.Size, Reason: reason, From: from.NextOffset, To: max(from.NextOffset, to.NextOffset),
		FirstEntry: from.NextEntry, NextEntry: max(from.NextEntry, to.NextEntry),
	}
}

// Is reports whether target is record.ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == record.ErrCorrupt }

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s is damaged at position %d, offsets [%d, %d): %s", e.File, e.Position, e.From, e.To, e.Reason)
}

// VersionError says that a file has a format this library does not know.
type VersionError struct {
	File    string
	Version uint32
}

// Is reports whether target is ErrVersion.
func (e *VersionError) Is(target error) bool { return target == ErrVersion }

func (e *VersionError) Error() string {
	return fmt.Sprintf("%s has format version %d, this library knows %d: open it with the library that wrote it", e.File, e.Version, version)
}
