package torture

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quorumlog/quorumlog/consumer"
	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/txn"
)

// Config says what to run. Config{} works.
type Config struct {
	Seed     uint64
	Nodes    int           // 1 to 9, default 3
	Duration time.Duration // of the faults; the end takes a few seconds more. Default 10 s
	// Slow multiplies every time that a slow machine, or the race detector,
	// needs more of. Default 1.
	Slow int
	// Bound is how long anything may take once nothing is broken any more.
	// Default 30 s, multiplied by Slow.
	Bound time.Duration
	// Relaxed has records synced some time after they were written, or never. Then
	// only one machine at a time loses power, and the next one when that one has
	// caught up: what a quorum has must survive.
	Relaxed bool
	// TCP has the machines talk over sockets. By default they talk within the process.
	TCP bool
	// Only names the faults to inject. Default: all there are.
	Only []string
	// Log gets each step as it happens, if set.
	Log func(step string)

	// Seams for faults in the code: what they return takes the place of what
	// they get.
	WrapFS      func(vfs.FS) vfs.FS
	WrapCluster func(producer.Cluster) producer.Cluster
	WrapSource  func(consumer.Source) consumer.Source
	WrapTxn     func(txn.Cluster) txn.Cluster
}

func (c Config) withDefaults() Config {
	c.Nodes = cmp.Or(c.Nodes, 3)
	c.Duration = cmp.Or(c.Duration, 10*time.Second)
	c.Slow = cmp.Or(c.Slow, 1)
	c.Bound = cmp.Or(c.Bound, 30*time.Second*time.Duration(c.Slow))
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
	if c.WrapTxn == nil {
		c.WrapTxn = func(c txn.Cluster) txn.Cluster { return c }
	}
	return c
}

// Validate reports everything that is wrong with c.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad(c.Nodes < 1 || c.Nodes > 9, "Nodes is %d, want 1 to 9", c.Nodes)
	bad(c.Duration < 0, "Duration is %v, want more than 0", c.Duration)
	bad(c.Slow < 1, "Slow is %d, want at least 1", c.Slow)
	for _, name := range c.Only {
		known := slices.ContainsFunc(faults, func(f fault) bool { return f.name == name })
		bad(!known, "there is no fault %q", name)
	}
	return errors.Join(errs...)
}

// topic is something that is written to.
type topic struct {
	name         string
	partitions   int32
	segmentBytes int64
	retention    int64 // bytes that each partition keeps; 0 keeps all
	everywhere   bool  // it begins on as many nodes as possible, not on three
	transactions bool  // it takes transactions, beside other records
}

var topics = []topic{
	{name: "orders", partitions: 3, segmentBytes: 4 << 10, everywhere: true},
	{name: "events", partitions: 2, segmentBytes: 32 << 10},
	{name: "metrics", partitions: 2, segmentBytes: 2 << 10, retention: 16 << 10},
	{name: "accounts", partitions: 3, segmentBytes: 8 << 10, transactions: true},
}

// topicOf returns the topic of that name, an empty one if it is not written to.
func topicOf(name string) topic {
	for _, t := range topics {
		if t.name == name {
			return t
		}
	}
	return topic{}
}

// most is on how many nodes a partition may be: all of them, or of more than three
// by the seed one less, so that nodes can leave.
func (c Config) most() int {
	if c.Nodes > 3 {
		return c.Nodes - int(c.Seed%2)
	}
	return c.Nodes
}

// replicas is on how many nodes a topic begins.
func (c Config) replicas(t topic) int {
	if t.everywhere {
		return c.most()
	}
	return min(3, c.Nodes)
}

// flush is when the records of a topic are synced.
func (c Config) flush(t topic) log.FlushPolicy {
	switch {
	case !c.Relaxed:
		return log.FlushEach
	case t.everywhere:
		return log.FlushNever
	}
	return log.FlushEvery(50 * time.Millisecond)
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
	tellerCount = 3  // two of them have the same transactional id
	firstTeller = 20 // the tellers' ids follow those of the writers
	readerCount = 2
	groupCount  = 2
	groupSize   = 2
)

// temper is what differs from run to run beside the faults, by the seed.
type temper struct {
	election time.Duration // the nodes' election timeout
	calm     time.Duration // at most between two faults
	outage   time.Duration // at most until a fault is mended
	haste    time.Duration // at most between two records of a writer, one time in ten
	sleep    time.Duration // until a quiet partition sleeps; 0 is the default
}

func (c Config) temper() temper {
	rng := rand.New(rand.NewPCG(c.Seed, 1))
	pick := func(ms ...int) time.Duration { return time.Duration(ms[rng.IntN(len(ms))]) * time.Millisecond }
	return temper{
		election: pick(150, 250, 500) * time.Duration(c.Slow),
		calm:     pick(60, 300, 300, 1000),
		outage:   pick(500, 3000, 3000),
		haste:    pick(2, 20, 80),
		sleep:    pick(0, 100, 500),
	}
}
