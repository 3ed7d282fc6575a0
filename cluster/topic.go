package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
)

// TopicConfig says what a topic is made of.
type TopicConfig struct {
	// Name is 1 to 249 of a-z A-Z 0-9 . _ - and not "." or "..". Names that
	// begin with "__" belong to the cluster itself.
	Name string `json:"name"`
	// Partitions is how many logs the topic is cut into. Default 1.
	Partitions int `json:"partitions"`
	// Replicas is on how many nodes each partition is kept. Default: 3, or all
	// nodes when there are fewer.
	Replicas int `json:"replicas"`
	// MinInSync is how many replicas must be in sync for a write with AckAll.
	// Default: a majority.
	MinInSync    int             `json:"minInSync"`
	SegmentBytes int64           `json:"segmentBytes,omitempty"` // as log.Config
	Flush        log.FlushPolicy `json:"flush,omitempty"`        // as log.Config, in ns
	// RetentionAge is how long records are kept at least; 0 means for ever. Files
	// of many records go as a whole, and each is written to for as long, at most
	// 7 days, so records of a quiet topic stay up to twice as long, and longer when
	// nothing is written any more: the newest file of a partition always stays.
	// Package log (Retention) has the exact rules.
	RetentionAge time.Duration `json:"retentionAge,omitempty"` // in ns
	// RetentionBytes is how much of each partition is kept at least, on each of its
	// nodes; 0 means all. At most about two files, of SegmentBytes, come on top.
	RetentionBytes int64 `json:"retentionBytes,omitempty"`
	// RetentionByRecordTime has RetentionAge count from the records' own times, not from
	// when they were appended. A record of the future then keeps what is behind it.
	RetentionByRecordTime bool `json:"retentionByRecordTime,omitempty"`
}

// retention is what the partitions keep.
func (c TopicConfig) retention() log.Retention {
	return log.Retention{MaxAge: c.RetentionAge, MaxBytes: c.RetentionBytes, ByRecordTime: c.RetentionByRecordTime}
}

// segmentAge is how old a segment gets while it is written to: what is not
// sealed cannot go.
func (c TopicConfig) segmentAge() time.Duration {
	if c.RetentionAge > 0 {
		return min(c.RetentionAge, log.DefaultSegmentAge)
	}
	return log.DefaultSegmentAge
}

// Topic is a topic as the cluster's metadata knows it. It must not be changed.
type Topic struct {
	Config TopicConfig    `json:"config"`
	ID     record.TopicID `json:"id"`
	// Placement names the nodes that hold each partition, or join it or leave it;
	// the first is the one that should lead.
	Placement [][]string `json:"placement"`
}

// Name returns the topic's name.
func (t Topic) Name() string { return t.Config.Name }

// Partitions returns how many partitions the topic has.
func (t Topic) Partitions() int { return len(t.Placement) }

// part names one of the topic's partitions.
func (t Topic) part(i int) record.TopicPartition {
	return record.TopicPartition{Topic: t.Name(), Partition: int32(i)}
}

func (t Topic) key(partition int32) partitionKey { return partitionKey{t.ID, partition} }

// InvalidTopicError says why a topic cannot be made, and what to do. It
// matches record.ErrInvalid.
type InvalidTopicError struct {
	Topic  string
	Reason string
}

// Is reports whether target is record.ErrInvalid.
func (e *InvalidTopicError) Is(target error) bool { return target == record.ErrInvalid }

func (e *InvalidTopicError) Error() string { return fmt.Sprintf("topic %q: %s", e.Topic, e.Reason) }

const maxNameLength = 249 // a file name with the longest suffix stays below 255 bytes

// withDefaults fills in what is not set.
func (c TopicConfig) withDefaults(nodes int) TopicConfig {
	c.Partitions = cmp.Or(c.Partitions, 1)
	c.Replicas = cmp.Or(c.Replicas, min(3, nodes))
	c.MinInSync = cmp.Or(c.MinInSync, c.Replicas/2+1)
	return c
}

// check looks at everything that does not depend on other topics. c has its defaults.
func (c TopicConfig) check(nodes int) error {
	bad := func(format string, args ...any) error {
		return &InvalidTopicError{Topic: c.Name, Reason: fmt.Sprintf(format, args...)}
	}
	if err := checkName(c.Name); err != nil {
		return err
	}
	switch {
	case c.Partitions < 1:
		return bad("%d partitions; ask for at least 1, or 0 for the default", c.Partitions)
	case c.Replicas < 1:
		return bad("%d replicas; ask for at least 1, or 0 for the default", c.Replicas)
	case c.Replicas > nodes:
		return bad("%d replicas on %d nodes; a node holds one at most, so ask for %d or fewer", c.Replicas, nodes, nodes)
	case c.MinInSync < 1:
		return bad("MinInSync is %d; ask for at least 1, or 0 for a majority", c.MinInSync)
	case c.MinInSync > c.Replicas:
		return bad("MinInSync is %d, but there are %d replicas; nothing could ever be written", c.MinInSync, c.Replicas)
	}
	// What the log refuses must not become a topic. It looks at FS only for nil.
	logs := log.Config{FS: struct{ vfs.FS }{}, SegmentBytes: c.SegmentBytes, Flush: c.Flush}
	if err := errors.Join(logs.Validate(), c.retention().Validate()); err != nil {
		return bad("%v", err)
	}
	return nil
}

func checkName(name string) error {
	bad := func(reason string) error { return &InvalidTopicError{Topic: name, Reason: reason} }
	switch {
	case name == "":
		return bad("the name is empty; give the topic a name")
	case len(name) > maxNameLength:
		return bad(fmt.Sprintf("the name has %d characters; use at most %d", len(name), maxNameLength))
	case name == "." || name == "..":
		return bad("the name is a directory's; use another")
	}
	for _, r := range name {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-' {
			return bad(fmt.Sprintf("the name holds %q; use a-z, A-Z, 0-9, '.', '_' and '-' only", r))
		}
	}
	return nil
}

// isInternal reports whether the cluster keeps the topic for itself.
func isInternal(name string) bool { return strings.HasPrefix(name, "__") }
