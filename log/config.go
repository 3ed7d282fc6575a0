package log

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
)

// Config says how one partition's log is kept. FS must be set, the rest may be zero.
type Config struct {
	FS vfs.FS
	// TopicID and Partition are written into every segment; Open refuses files
	// that carry others.
	TopicID   record.TopicID
	Partition int32
	// SegmentBytes is where the active segment rolls. An entry is never split,
	// so a segment may end one entry above it. Default 64 MiB, at most 2 GiB.
	SegmentBytes int64
	// SegmentAge is how old the active segment gets: the first append after that
	// rolls, if the segment holds a record. So does one by a clock that was set
	// back by as much. Default 7 days.
	SegmentAge time.Duration
	// IndexBytes is about how many bytes of entries lie between two slots of
	// the index. Default 4 KiB.
	IndexBytes int64
	Flush      FlushPolicy // default FlushEach
	// Flusher syncs for FlushEvery; share one among all logs of a node. Default:
	// one of the log's own.
	Flusher *Flusher
	// Now is the clock that segments are dated by. Default time.Now. Times
	// without a monotonic reading are taken at their word: see Retention.
	Now func() time.Time
	// Progress is called as Open comes along a log that is there already, at most
	// every 100 ms and at the end. Default none.
	Progress func(Progress)
	// ReadAll has Open read and check every byte, whatever the indexes say: where
	// damage has been met, there may be more.
	ReadAll bool
	Logger  *slog.Logger // what an operator should know; default silent
}

// DefaultSegmentAge is the SegmentAge of a Config without one.
const DefaultSegmentAge = 7 * 24 * time.Hour

// Bounds of SegmentBytes. The upper one keeps positions far from 32 bits, with
// the largest entry on top.
const (
	minSegmentBytes = 1 << 10
	maxSegmentBytes = 2 << 30
)

func (c Config) withDefaults() Config {
	c.SegmentBytes = cmp.Or(c.SegmentBytes, 64<<20)
	c.SegmentAge = cmp.Or(c.SegmentAge, DefaultSegmentAge)
	c.IndexBytes = cmp.Or(c.IndexBytes, 4<<10)
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Validate reports everything that is wrong with c, not only the first thing.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	if c.FS == nil {
		errs = append(errs, errors.New("FS is nil, want a file system"))
	}
	if c.Partition < 0 {
		errs = append(errs, fmt.Errorf("partition is %d, want 0 or more", c.Partition))
	}
	if c.SegmentBytes < minSegmentBytes || c.SegmentBytes > maxSegmentBytes {
		errs = append(errs, fmt.Errorf("SegmentBytes is %d, want %d to %d", c.SegmentBytes, minSegmentBytes, maxSegmentBytes))
	}
	if c.SegmentAge < 0 {
		errs = append(errs, fmt.Errorf("SegmentAge is %v, want a positive one", c.SegmentAge))
	}
	if c.IndexBytes < 0 {
		errs = append(errs, fmt.Errorf("IndexBytes is %d, want a positive number", c.IndexBytes))
	}
	if c.Flush < FlushNever {
		errs = append(errs, fmt.Errorf("flush interval is %d ns, want a positive one", c.Flush))
	}
	return errors.Join(errs...)
}
