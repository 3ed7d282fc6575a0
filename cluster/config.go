package cluster

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
	"github.com/quorumlog/quorumlog/replica"
	"github.com/quorumlog/quorumlog/transport"
)

// Config says who a node is and what it stands on. FS, Dir, Stable and
// Endpoint are required; the node closes none of them.
type Config struct {
	ID  string // default: the endpoint's
	FS  vfs.FS
	Dir string // of this node alone; partitions are kept under Dir/partitions
	// Stable holds the votes of all groups of this node.
	Stable *replica.Stable
	// Endpoint carries everything between nodes. The node handles services 1
	// to 4 of it.
	Endpoint transport.Endpoint
	// Peers are the ids of the nodes that the cluster was founded with, ID among
	// them, the same on every node and for ever. Default: this node alone.
	Peers []string
	// Join makes this node part of a cluster that runs. Peers are then some of its
	// nodes, any that are there; once it has joined the metadata counts.
	Join bool
	// AutoCreate makes a topic with Defaults when it is first used.
	AutoCreate bool
	// Defaults are for topics that are made on first use. Its Name is not
	// used; zero Partitions are 1. Its Flush also holds for offsets and
	// transactions when this node is the first to use them.
	Defaults TopicConfig
	// ElectionTimeout as in replica.Config. Default 400 ms.
	ElectionTimeout time.Duration
	// SleepAfter, ProducerExpiry and MaxProducers are as in replica.Config. Defaults
	// 30 s, 24 h and 10 000.
	SleepAfter     time.Duration
	ProducerExpiry time.Duration
	MaxProducers   int
	// RetentionInterval is how often this node looks for what the partitions may
	// forget that it leads. Default 5 minutes.
	RetentionInterval time.Duration
	// OffsetsRetention is as in group.Config. Default 7 days.
	OffsetsRetention time.Duration
	// CompactionFloor is how large a log of offsets, transactions or half messages gets
	// at least before it is made shorter, in bytes. Default 4 MiB.
	CompactionFloor int64
	Flusher         *log.Flusher // of all partitions; default: one each, as in log.Config
	Logger          *slog.Logger // default silent
}

func (c Config) withDefaults() Config {
	if c.ID == "" && c.Endpoint != nil {
		c.ID = c.Endpoint.ID()
	}
	if len(c.Peers) == 0 && !c.Join {
		c.Peers = []string{c.ID}
	}
	c.Peers = slices.Sorted(slices.Values(c.Peers)) // the same order everywhere
	if c.Join {
		c.Peers = slices.DeleteFunc(c.Peers, func(id string) bool { return id == c.ID })
	}
	c.ElectionTimeout = cmp.Or(c.ElectionTimeout, 400*time.Millisecond)
	c.RetentionInterval = cmp.Or(c.RetentionInterval, 5*time.Minute)
	c.CompactionFloor = cmp.Or(c.CompactionFloor, 4<<20)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
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
	bad(c.FS == nil, "FS is nil")
	bad(c.Dir == "", "Dir is empty")
	bad(c.Stable == nil, "Stable is nil")
	bad(c.Endpoint == nil, "Endpoint is nil")
	bad(c.ID == "", "ID is empty")
	bad(c.Endpoint != nil && c.Endpoint.ID() != c.ID, "ID is %q, but the endpoint's is another", c.ID)
	bad(slices.Contains(c.Peers, ""), "Peers %q hold an empty id", c.Peers)
	bad(!c.Join && !slices.Contains(c.Peers, c.ID), "Peers %q do not hold ID %q; a node that was not there when the cluster began needs Join", c.Peers, c.ID)
	bad(c.Join && len(c.Peers) == 0, "Join is set, but Peers name no other node; name some of the cluster")
	bad(len(slices.Compact(slices.Clone(c.Peers))) != len(c.Peers), "Peers %q hold an id twice", c.Peers)
	bad(c.ElectionTimeout < 10*time.Millisecond, "ElectionTimeout is %v, want at least 10 ms", c.ElectionTimeout)
	bad(c.ProducerExpiry < 0, "ProducerExpiry is %v, want a positive one", c.ProducerExpiry)
	bad(c.MaxProducers < 0, "MaxProducers is %d, want a positive one", c.MaxProducers)
	bad(c.OffsetsRetention < 0, "OffsetsRetention is %v, want a positive one", c.OffsetsRetention)
	bad(c.CompactionFloor < 0, "CompactionFloor is %d, want a positive one", c.CompactionFloor)
	bad(c.RetentionInterval < 0, "RetentionInterval is %v, want a positive one", c.RetentionInterval)
	if len(errs) == 0 {
		d := c.Defaults
		d.Name = "defaults"
		nodes := len(c.Peers)
		if c.Join { // there may be more than Peers name
			nodes = max(nodes+1, d.Replicas)
		}
		if err := d.withDefaults(nodes).check(nodes); err != nil {
			errs = append(errs, fmt.Errorf("in Defaults: %w", err))
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("cluster: %w: %w", record.ErrInvalid, errors.Join(errs...))
	}
	return nil
}
