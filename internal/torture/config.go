package torture

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlog/quorumlog/consumer"
	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/record"
)

// Config says what to run. Config{} works.
type Config struct {
	Seed     uint64
	Nodes    int           // 1 to 9, default 3
	Duration time.Duration // of the faults; the end takes a few seconds more. Default 10 s
	// Slow multiplies every time that a slow machine, or the race detector,
	// needs more of. Default 1.
	Slow int
	// Log gets each step as it happens, if set.
	Log func(step string)

	// Seams for faults in the code: what they return takes the place of what
	// they get.
	WrapFS      func(vfs.FS) vfs.FS
	WrapCluster func(producer.Cluster) producer.Cluster
	WrapSource  func(consumer.Source) consumer.Source
}

func (c Config) withDefaults() Config {
	c.Nodes = cmp.Or(c.Nodes, 3)
	c.Duration = cmp.Or(c.Duration, 10*time.Second)
	c.Slow = cmp.Or(c.Slow, 1)
	if c.Log == nil {
		c.Log = func(string) {}
	}
	if c.WrapFS == nil {
		c.WrapFS = func(fs vfs.FS) vfs.FS { return fs }
	}
	if c.WrapCluster == nil {
		c.WrapCluster = func(c producer.Cluster) producer.Cluster { return c }
	}
	if c.WrapSource == nil {
		c.WrapSource = func(s consumer.Source) consumer.Source { return s }
	}
	return c
}

// Validate reports everything that is wrong with c.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	if c.Nodes < 1 || c.Nodes > 9 {
		errs = append(errs, fmt.Errorf("Nodes is %d, want 1 to 9", c.Nodes))
	}
	if c.Duration < 0 {
		errs = append(errs, fmt.Errorf("Duration is %v, want more than 0", c.Duration))
	}
	if c.Slow < 1 {
		errs = append(errs, fmt.Errorf("Slow is %d, want at least 1", c.Slow))
	}
	return errors.Join(errs...)
}

// topics are what is written to, with their numbers of partitions.
var topics = []struct {
	name         string
	partitions   int32
	segmentBytes int64
}{
	{"orders", 3, 4 << 10},
	{"events", 2, 32 << 10},
}

// partitions returns all partitions of all topics.
func partitions() (tps []record.TopicPartition) {
	for _, t := range topics {
		for p := range t.partitions {
			tps = append(tps, record.TopicPartition{Topic: t.name, Partition: p})
		}
	}
	return tps
}

const (
	writerCount = 3
	readerCount = 2
	groupCount  = 2
	groupSize   = 2
)

// bound is how long anything may take once nothing is broken any more.
func (c Config) bound() time.Duration { return 30 * time.Second * time.Duration(c.Slow) }

func (c Config) electionTimeout() time.Duration {
	return 250 * time.Millisecond * time.Duration(c.Slow)
}
