package quorumlog

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/quorumlog/quorumlog/transport"
)

// Config says who a node is. Config{} is a single node without a port, whose
// records are on disk before Produce returns.
type Config struct {
	// ID names the node in its cluster. A directory remembers the id it was
	// first opened with. Default "node".
	ID string
	// Network connects nodes of one process. A single node needs none.
	Network *Network
	// Listen connects nodes of several processes or machines: the address at which
	// this one takes connections, as ":7400". Not together with Network.
	Listen string
	// TLS secures all connections between nodes, both ways; ClientAuth must be
	// RequireAndVerifyClientCert. Only a Listen address that no other machine can
	// reach does without TLS, unless Insecure is set.
	TLS *tls.Config
	// Insecure allows connections from other machines without TLS, or with a TLS
	// that does not verify clients. Whoever can connect can read and write everything.
	Insecure bool
	// Peers are the nodes that the cluster is founded with, this one among them, by
	// id; the same on each of them and for ever. The values are the addresses at which
	// nodes reach each other, as "host-a:7400"; Network needs none. Empty means this
	// node alone.
	Peers map[string]string
	// Join makes this node part of a cluster that runs already. Peers are then some
	// of its nodes, any that are there; the rest it hears from them. With this node
	// among them, its address is the one it tells the others. It may stay set when
	// the node is opened again.
	Join bool
	// NoAutoCreate refuses topics that nobody created. By default a topic is
	// made with Defaults when it is first used.
	NoAutoCreate bool
	// Defaults are for topics that are made on first use. Its Name is not used.
	// Default: 1 partition, replicas on three nodes or all there are. Its Flush also
	// holds for committed offsets and transactions: it is that of the node that uses
	// them first, for ever. With another than FlushEach a power cut on all nodes may
	// take offsets back, and leave a transaction committed in some partitions and
	// aborted in others.
	Defaults TopicConfig
	// ElectionTimeout is how long a partition's followers hear nothing from its
	// leader before they elect another. Longer survives longer pauses, shorter
	// fails over faster. Default 400 ms, at least 10 ms.
	ElectionTimeout time.Duration
	// RetentionInterval is how often the node looks for records that a topic need
	// not keep (TopicConfig.RetentionAge, RetentionBytes). Default 5 minutes.
	RetentionInterval time.Duration
	// OffsetsRetention is how long the committed offsets of a group without members
	// are kept, and the group itself. Those of a group with members are never
	// forgotten. Default 7 days.
	OffsetsRetention time.Duration
	// SleepAfter is how long nobody must have written to a partition before it sleeps:
	// it costs next to nothing then, and the next write waits some milliseconds longer.
	// The same on all nodes. Below zero partitions never sleep. Default 30 s.
	SleepAfter time.Duration
	// ProducerExpiry is how long a producer writes nothing to a partition before that
	// may forget its sequences. It bounds how late a retry is still told from a new
	// record; who comes later goes on with a new identity. Default 24 h.
	ProducerExpiry time.Duration
	// MaxProducers is of how many producers a partition remembers the sequences, those
	// that wrote last, at about 400 bytes each. Raise it where more write to one
	// partition within a retry's time. Default 10 000.
	MaxProducers int
	// Logger gets what an operator should know. Default silent.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.ID = cmp.Or(c.ID, "node")
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Validate reports everything that is wrong with c, not only the first thing.
// What concerns topics and timeouts is checked by Open.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(c.Peers) > 0 {
		if _, ok := c.Peers[c.ID]; !ok && !c.Join {
			bad("Peers %q do not hold ID %q; name every node of the cluster, this one too, or set Join if it runs already", slices.Sorted(maps.Keys(c.Peers)), c.ID)
		}
		if c.Network == nil && c.Listen == "" && (len(c.Peers) > 1 || c.Join) {
			bad("there are %d Peers and no way to them; give all nodes of this process the same Network, or set Listen", len(c.Peers))
		}
	}
	if c.Network != nil && c.Listen != "" {
		bad("both Network and Listen are set; a node is in one network")
	}
	if c.Listen == "" && (c.TLS != nil || c.Insecure) {
		bad("TLS and Insecure are for connections, and without Listen there are none")
	}
	if c.Listen != "" {
		if err := c.tcp().Validate(); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("quorumlog: %w: %w", ErrInvalid, errors.Join(errs...))
}

// tcp returns the configuration of the node's connections.
func (c Config) tcp() transport.TCPConfig {
	return transport.TCPConfig{ID: c.ID, Listen: c.Listen, Peers: c.Peers, TLS: c.TLS, Insecure: c.Insecure, Logger: c.Logger}
}

// peers returns the ids of all nodes.
func (c Config) peers() []string {
	if len(c.Peers) == 0 && !c.Join {
		return []string{c.ID}
	}
	return slices.Sorted(maps.Keys(c.Peers))
}
