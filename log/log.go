package log

import (
	"context"
	"errors"

	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

// Log is one partition's log on one node.
type Log struct{}

var errUnfinished = errors.New("not written yet")

// Bounds says what a log holds. It is empty when First == Next.
type Bounds struct {
	First, Next record.EntryNumber // entries [First, Next)
	PrevTerm    uint64             // term of entry First-1, 0 when there was none
	LastTerm    uint64             // term of entry Next-1
	Start, End  record.Offset      // offsets [Start, End)
}

// RecoveryReport says what Open found and did.
type RecoveryReport struct {
	Segments       int
	ScannedBytes   int64
	CutBytes       int64    // torn or zero tail, cut off
	RebuiltIndexes []string // missing or wrong
	Removed        []string // left over from an interrupted operation
}

// Open opens the log in dir and repairs what a crash has left, or makes it. The
// directory is made if it is missing.
func Open(ctx context.Context, dir string, cfg Config) (*Log, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	_ = cfg.withDefaults()
	return nil, errUnfinished
}

// Recovery returns what Open found and did.
func (l *Log) Recovery() RecoveryReport { return RecoveryReport{} }

// Append writes entries, whose numbers and offsets continue the log.
func (l *Log) Append(entries []segment.Entry) error { return errUnfinished }

// Sync makes all that was appended durable.
func (l *Log) Sync() error { return errUnfinished }

// Bounds returns what the log holds.
func (l *Log) Bounds() Bounds { return Bounds{} }

// Read returns whole batches from the one that holds from.
func (l *Log) Read(from, bound record.Offset, maxBytes int) ([]record.Batch, error) {
	return nil, errUnfinished
}

// ReadEntry returns entry n. Its Data belongs to the caller.
func (l *Log) ReadEntry(n record.EntryNumber) (segment.Entry, error) {
	return segment.Entry{}, errUnfinished
}

// ReadEntryHeader is ReadEntry without Data.
func (l *Log) ReadEntryHeader(n record.EntryNumber) (segment.Entry, error) {
	return segment.Entry{}, errUnfinished
}

// TruncateTo removes entry n and all later ones, durably.
func (l *Log) TruncateTo(n record.EntryNumber) error { return errUnfinished }

// Reset throws everything away; the log goes on empty, at entry next and offset.
func (l *Log) Reset(next record.EntryNumber, prevTerm uint64, offset record.Offset) error {
	return errUnfinished
}

// TrimTo removes whole sealed segments below offset and returns the new start.
func (l *Log) TrimTo(offset record.Offset) (record.Offset, error) { return 0, errUnfinished }

// Size returns the bytes of all segments.
func (l *Log) Size() int64 { return 0 }

// Close closes the files. It may be called twice.
func (l *Log) Close() error { return nil }
