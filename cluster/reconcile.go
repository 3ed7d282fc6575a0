package cluster

import (
	"context"
	"fmt"
	"path"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlog/quorumlog/replica"
)

const (
	firstReopen = time.Second
	lastReopen  = time.Minute
)

// reconcile opens what is placed on this node, as it becomes known. What could
// not be opened is tried again, less and less often.
func (n *Node) reconcile(life context.Context) {
	wait := firstReopen
	for {
		var again <-chan time.Time
		if n.openPlaced(life) {
			wait = firstReopen
		} else {
			again = time.After(wait)
			wait = min(2*wait, lastReopen)
		}
		select {
		case <-n.placed:
		case <-again:
		case <-life.Done():
			return
		}
	}
}

// openPlaced opens every replica that should be on this node and is not; false
// if one could not be.
func (n *Node) openPlaced(life context.Context) bool {
	var g errgroup.Group
	g.SetLimit(16) // opening waits for the disk
	for _, p := range n.all() {
		if rep, _, _ := p.state(); rep != nil || !slices.Contains(p.nodes, n.cfg.ID) {
			continue
		}
		g.Go(func() error {
			t, _ := n.folded(p.tp.Topic)
			rep, err := n.openReplica(life, p, t.Config)
			if err != nil && life.Err() == nil {
				n.cfg.Logger.Error("partition not opened", "partition", p.tp.String(), "node", n.cfg.ID, "error", err)
			}
			if err != nil {
				p.opened(nil, nil, err)
				return err
			}
			p.opened(rep, n.startCoordinator(p.tp, rep), nil)
			return nil
		})
	}
	return g.Wait() == nil
}

func (n *Node) openReplica(ctx context.Context, p *partition, t TopicConfig) (*replica.Replica, error) {
	return replica.Open(ctx, replica.Config{
		FS:              n.cfg.FS,
		Dir:             path.Join(n.cfg.Dir, "partitions", partitionDir(p)),
		Node:            n.cfg.ID,
		TopicPartition:  p.tp,
		TopicID:         p.key.topic,
		Peers:           p.nodes,
		Mux:             n.mux,
		Stable:          n.cfg.Stable,
		ElectionTimeout: n.cfg.ElectionTimeout,
		SleepAfter:      n.cfg.SleepAfter,
		SegmentBytes:    t.SegmentBytes,
		SegmentAge:      t.segmentAge(),
		Flush:           t.Flush,
		MinInSync:       t.MinInSync,
		Flusher:         n.cfg.Flusher,
		Logger:          n.cfg.Logger,
	})
}

// partitionDir holds the id, so that a topic made anew under an old name never
// sees the old one's files.
func partitionDir(p *partition) string {
	return fmt.Sprintf("%s.%s-%d", p.tp.Topic, p.key.topic.String()[:8], p.tp.Partition)
}
