package consumer

import (
	"errors"
	"fmt"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// DefaultMaxBytes is about how much one fetch of one partition brings.
const DefaultMaxBytes = 1 << 20

// ReadOption says where a [Read] begins, where it ends and what it sees.
type ReadOption func(*readConfig)

// origin is where a reader without a committed offset begins.
type origin int8

const (
	originStart origin = iota
	originEnd
	originOffset
	originTime
)

type readConfig struct {
	origin    origin
	offset    record.Offset // for originOffset
	time      time.Time     // for originTime
	untilEnd  bool
	one       bool // only this partition
	partition int32
	iso       record.Isolation
	maxBytes  int
	backwards bool
	near      bool
	caughtUp  func()
}

// FromStart begins with the oldest record of each partition. Default.
func FromStart() ReadOption { return func(c *readConfig) { c.origin = originStart } }

// FromEnd begins behind the last record of each partition, as it is when the
// loop over the sequence begins.
func FromEnd() ReadOption { return func(c *readConfig) { c.origin = originEnd } }

// FromOffset begins at offset o in every partition that is read; with more
// than one partition, [Partition] is mostly wanted as well.
func FromOffset(o record.Offset) ReadOption {
	return func(c *readConfig) { c.origin, c.offset = originOffset, o }
}

// FromTime begins, in each partition, with the first record whose time is t or
// later. Records after it come whatever their time. A partition without such a
// record is read from its end, as it is when the loop over the sequence begins.
func FromTime(t time.Time) ReadOption {
	return func(c *readConfig) { c.origin, c.time = originTime, t }
}

// UntilEnd ends the sequence at the end of each partition as it is when the
// loop begins, and reads one partition after the other. Without it the
// sequence waits for new records until ctx ends.
func UntilEnd() ReadOption { return func(c *readConfig) { c.untilEnd = true } }

// Backwards reads the newest record first and ends at the log start: from the
// end, or with [FromOffset] from the record at that offset, or with [FromTime] from
// the last record before the first whose time is t or later. Partitions are read one
// after the other.
func Backwards() ReadOption { return func(c *readConfig) { c.backwards = true } }

// Nearby reads from the replica of the node that is asked, leader or follower,
// where it has one, and else from the leader. A follower shows committed records
// alone, as the leader does, a little later; its reads cost the leader nothing.
func Nearby() ReadOption { return func(c *readConfig) { c.near = true } }

// CaughtUp has f called once in each loop, on its goroutine: when the loop has
// seen everything that was there as it began, in all partitions. What comes behind
// it is new. A backwards read does not call it.
func CaughtUp(f func()) ReadOption { return func(c *readConfig) { c.caughtUp = f } }

// Partition reads partition p alone instead of all.
func Partition(p int32) ReadOption { return func(c *readConfig) { c.one, c.partition = true, p } }

// Isolation says what is seen of transactions; default [record.ReadCommitted].
func Isolation(iso record.Isolation) ReadOption { return func(c *readConfig) { c.iso = iso } }

// MaxBytes says about how many bytes one fetch brings; at least one batch
// comes whatever the limit. Default [DefaultMaxBytes].
func MaxBytes(n int) ReadOption { return func(c *readConfig) { c.maxBytes = n } }

func (c *readConfig) validate(topic string) error {
	var errs []error
	if topic == "" {
		errs = append(errs, errors.New("the topic has no name"))
	}
	if c.origin == originOffset && c.offset < 0 {
		errs = append(errs, fmt.Errorf("offset %d is negative; offsets begin at 0", c.offset))
	}
	if c.one && c.partition < 0 {
		errs = append(errs, fmt.Errorf("partition %d is negative; partitions begin at 0", c.partition))
	}
	if c.maxBytes < 1 {
		errs = append(errs, fmt.Errorf("MaxBytes is %d, want at least 1", c.maxBytes))
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("read: %w: %w", record.ErrInvalid, errors.Join(errs...))
}
