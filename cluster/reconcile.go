package cluster

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/replica"
)

const (
	firstReopen = time.Second
	lastReopen  = time.Minute
)

// reconcile opens what is placed on this node, as it becomes known, and closes and
// deletes what is not any more. What could not be done is tried again, less and
// less often.
func (n *Node) reconcile(life context.Context) {
	wait := firstReopen
	var trash []string // directories to delete
	swept := false
	for {
		var again <-chan time.Time
		trash = append(trash, n.closeUnplaced()...)
		n.closeDamaged()
		trash = n.discardGone(life, trash)
		if n.current.Load() && !swept {
			err := n.sweep()
			if swept = err == nil; !swept {
				n.cfg.Logger.Error("directories of partitions that are not on this node any more could not be deleted", "node", n.cfg.ID, "error", err)
			}
		}
		if n.openPlaced(life, trash) && len(trash) == 0 && (swept || !n.current.Load()) {
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

// closeUnplaced closes every replica that should not be on this node any more,
// and returns their directories.
func (n *Node) closeUnplaced() (dirs []string) {
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(16)
	leave := func(p *partition) {
		g.Go(func() error {
			if err := p.close(); err != nil { // it goes anyway
				n.cfg.Logger.Warn("replica that leaves this node was not closed well", "node", n.cfg.ID, "error", err)
			}
			n.cfg.Logger.Info("replica has left this node", "partition", p.tp.String(), "node", n.cfg.ID)
			mu.Lock()
			defer mu.Unlock()
			dirs = append(dirs, partitionDir(p))
			return nil
		})
	}
	for _, p := range n.takeDropped() {
		leave(p)
	}
	for _, p := range n.all() {
		rep, _, _ := p.state()
		if rep != nil && p != n.meta && !slices.Contains(p.assigned().Replicas, n.cfg.ID) {
			leave(p)
		}
	}
	_ = g.Wait()
	return dirs
}

// closeDamaged closes the replicas that have stopped because they met damage, so
// that they are opened again: then it is mended with what the others have. So are
// those that need only that.
func (n *Node) closeDamaged() {
	for _, p := range n.all() {
		rep, _, _ := p.state()
		if rep == nil {
			continue
		}
		if err := rep.Status().Err; errors.Is(err, record.ErrCorrupt) || errors.Is(err, replica.ErrReopen) {
			if closeErr := p.close(); closeErr != nil {
				n.cfg.Logger.Warn("replica that has stopped was not closed well", "node", n.cfg.ID, "error", closeErr)
			}
			p.opened(nil, nil, err)
		}
	}
}

// discardGone deletes the directories of replicas that are closed, but for those
// that are on this node by all that was decided until now. What this node has folded
// may be long out of date, after a start most of all, and a partition that went may
// have come back since: then its replica counts, with all that it has acknowledged.
// It returns those that could not be deleted, or not yet.
func (n *Node) discardGone(life context.Context, dirs []string) (left []string) {
	if len(dirs) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(life, n.tryTimeout)
	defer cancel()
	if err := n.follow(ctx, "delete what has left this node"); err != nil {
		return dirs
	}
	placed := map[string]bool{}
	for _, p := range n.all() {
		if slices.Contains(p.assigned().Replicas, n.cfg.ID) {
			placed[partitionDir(p)] = true
		}
	}
	return n.discardAll(slices.DeleteFunc(dirs, func(dir string) bool { return placed[dir] }))
}

// discardAll deletes directories and returns those that could not be.
func (n *Node) discardAll(dirs []string) (left []string) {
	for _, dir := range dirs {
		if err := n.discard(dir); err != nil {
			n.cfg.Logger.Error("directory of a replica that has left was not deleted; it is tried again", "node", n.cfg.ID, "directory", dir, "error", err)
			left = append(left, dir)
		}
	}
	return left
}

// openPlaced opens every replica that should be on this node and is not, unless
// an old directory is in its way; false if one could not be.
func (n *Node) openPlaced(life context.Context, trash []string) bool {
	var g errgroup.Group
	g.SetLimit(16) // opening waits for the disk
	for _, p := range n.all() {
		if rep, _, _ := p.state(); rep != nil || !slices.Contains(p.assigned().Replicas, n.cfg.ID) || slices.Contains(trash, partitionDir(p)) {
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
			if p == n.meta {
				n.metaReplica.Store(rep) // before: who waits for it is told by opened
				nudge(n.decided)
			}
			p.opened(rep, n.startCoordinator(p.tp, rep), nil)
			return nil
		})
	}
	return g.Wait() == nil
}

func (n *Node) openReplica(ctx context.Context, p *partition, t TopicConfig) (*replica.Replica, error) {
	at := p.assigned()
	copies := at.Replicas
	founders := at.Replicas
	switch {
	case p == n.meta:
		founders = n.cfg.Peers
	case at.Version > 0: // it exists by now, so the others tell this one what there is
		founders = nil
	}
	return replica.Open(ctx, replica.Config{
		FS:              n.cfg.FS,
		Dir:             path.Join(n.cfg.Dir, "partitions", partitionDir(p)),
		Node:            n.cfg.ID,
		TopicPartition:  p.tp,
		TopicID:         p.key.topic,
		Peers:           founders,
		Copies:          copies,
		New:             n.isNew(p),
		SetAside:        p == n.meta, // the node cannot do without
		Failed:          func(error) { nudge(n.placed) },
		Mux:             n.mux,
		Stable:          n.cfg.Stable,
		ElectionTimeout: n.cfg.ElectionTimeout,
		SleepAfter:      n.cfg.SleepAfter,
		ProducerExpiry:  n.cfg.ProducerExpiry,
		MaxProducers:    n.cfg.MaxProducers,
		SegmentBytes:    t.SegmentBytes,
		SegmentAge:      t.segmentAge(),
		Flush:           t.Flush,
		MinInSync:       t.MinInSync,
		Flusher:         n.cfg.Flusher,
		Logger:          n.cfg.Logger,
	})
}

// isNew tells whether a partition cannot have been on this node before.
func (n *Node) isNew(p *partition) bool {
	memory := n.memory.Load()
	return p != n.meta && memory >= 0 && p.made >= record.Offset(memory)
}

// partitionDir holds the id, so that a topic made anew under an old name never
// sees the old one's files.
func partitionDir(p *partition) string {
	return topicDir(p.tp.Topic, p.key.topic) + strconv.Itoa(int(p.tp.Partition))
}

// topicDir is how the names of a topic's directories begin.
func topicDir(name string, id record.TopicID) string {
	return fmt.Sprintf("%s.%s-", name, id.String()[:8])
}
