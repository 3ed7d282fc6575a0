package replica

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
)

// MaxBatchBytes is the largest batch a partition takes.
const MaxBatchBytes = 8 << 20

// Config says what one replica is and where it lives. FS, Dir, Node,
// TopicPartition, Mux and Stable are required.
type Config struct {
	FS             vfs.FS
	Dir            string // of this partition alone; made if missing
	Node           string // the node this replica is on
	TopicPartition record.TopicPartition
	TopicID        record.TopicID
	// Peers are the nodes that a new partition begins with; the first is the one
	// that should lead at first. They count only when the partition is opened for
	// the first time; afterwards the membership in its log counts. If they do not
	// name Node, the replica joins: it waits until a leader adds it (AddLearner).
	Peers []string
	// Copies are the nodes that may hold a copy of the partition, for this one to
	// be mended from if it is damaged. Default Peers.
	Copies []string
	// New says that the partition cannot have been open on this node before, if there
	// is nothing of it now. Without it a replica that has nothing may have a new disk,
	// and does not vote against those that have something before it has caught up.
	New bool
	// SetAside opens a damaged replica that cannot be mended at once without what it
	// holds: its directory is renamed, and the others fill a new one. Without it Open
	// returns a *DamagedError, and may be called again later.
	SetAside bool
	// Failed, if set, is called once when the replica stops by itself.
	Failed func(error)

	Mux    *Mux    // carries the Raft traffic of all groups of this node
	Stable *Stable // holds the votes of all groups of this node

	// ElectionTimeout is how long a follower hears nothing from the leader
	// before it stands for election; half as long if the leader's node, asked, is gone.
	// Default 400 ms, at least 10 ms.
	ElectionTimeout time.Duration
	// SleepAfter is how long a partition must not have been written to before its
	// replicas go to sleep: they cost next to nothing then, and the next write
	// waits for an election, which takes some milliseconds. Below zero they never
	// sleep. The same on all nodes. Default 30 s.
	SleepAfter time.Duration
	// LagTimeMax is how long a follower may go without having caught up with the
	// leader's end and still count as in sync. Default 10 s.
	LagTimeMax time.Duration
	// MinInSync is how many replicas, the leader among them, must be in sync for
	// an append with AckAll. Default: a majority of the voters of the moment.
	MinInSync int
	// ProducerExpiry is how long a producer writes nothing before its sequences may
	// be forgotten, which bounds how late a retry may come. Default 24 h.
	ProducerExpiry time.Duration
	// MaxProducers is of how many producers the sequences are remembered; of more,
	// those that wrote last are. Each takes about 400 bytes. Default 10 000.
	MaxProducers int
	SegmentBytes int64           // as log.Config
	SegmentAge   time.Duration   // as log.Config
	Flush        log.FlushPolicy // as log.Config
	Flusher      *log.Flusher    // as log.Config
	Logger       *slog.Logger    // default silent
}

func (c Config) withDefaults() Config {
	c.ElectionTimeout = cmp.Or(c.ElectionTimeout, 400*time.Millisecond)
	c.SleepAfter = cmp.Or(c.SleepAfter, 30*time.Second)
	c.LagTimeMax = cmp.Or(c.LagTimeMax, 10*time.Second)
	c.ProducerExpiry = cmp.Or(c.ProducerExpiry, 24*time.Hour)
	c.MaxProducers = cmp.Or(c.MaxProducers, 10_000)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// copies returns the other nodes that may hold a copy.
func (c Config) copies() []string {
	of := c.Copies
	if of == nil {
		of = c.Peers
	}
	return slices.DeleteFunc(slices.Clone(of), func(s string) bool { return s == c.Node })
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
	bad(c.FS == nil, "FS is nil")
	bad(c.Dir == "", "Dir is empty")
	bad(c.Node == "", "Node is empty")
	bad(c.TopicPartition.Topic == "", "TopicPartition has no topic")
	bad(c.TopicPartition.Partition < 0, "partition %d is negative", c.TopicPartition.Partition)
	bad(slices.Contains(c.Peers, ""), "Peers %q hold an empty name", c.Peers)
	bad(c.Mux == nil, "Mux is nil")
	bad(c.Stable == nil, "Stable is nil")
	bad(c.LagTimeMax < 0, "LagTimeMax is %v, want more than 0", c.LagTimeMax)
	bad(c.MinInSync < 0, "MinInSync is %d, want 1 or more", c.MinInSync)
	bad(c.ProducerExpiry < 0, "ProducerExpiry is %v, want more than 0", c.ProducerExpiry)
	bad(c.MaxProducers < 1, "MaxProducers is %d, want at least 1", c.MaxProducers)
	bad(c.ElectionTimeout < 10*time.Millisecond, "ElectionTimeout is %v, want at least 10 ms", c.ElectionTimeout)
	if len(errs) > 0 {
		return fmt.Errorf("replica of %v: %w: %w", c.TopicPartition, record.ErrInvalid, errors.Join(errs...))
	}
	return nil
}
