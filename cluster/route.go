package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

const (
	firstBackoff = 5 * time.Millisecond
	lastBackoff  = 200 * time.Millisecond
)

// enter makes a context that ends with the caller's or with the node. The
// caller must call leave.
func (n *Node) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	if n.life.Err() != nil {
		return nil, nil, n.closedError()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(n.life, func() { cancel(n.closedError()) })
	return ctx, func() { stop(); cancel(nil) }, nil
}

func (n *Node) closedError() error { return fmt.Errorf("node %q: %w", n.cfg.ID, record.ErrClosed) }

// gaveUp says what a call waited for when its context ended, and what came of
// the last try.
func gaveUp(ctx context.Context, what string, last error) error {
	why := ctx.Err()
	if cause := context.Cause(ctx); errors.Is(cause, record.ErrClosed) {
		why = cause
	}
	if last == nil {
		return fmt.Errorf("%s: %w", what, why)
	}
	return fmt.Errorf("%s: %w; last try: %v", what, why, last)
}

// retriable reports whether another try, perhaps at another node, makes sense
// for a request that may be done twice.
func retriable(err error) bool {
	for _, e := range []error{
		record.ErrNotLeader, record.ErrUnreachable, record.ErrOutcomeUnknown, record.ErrOverloaded, record.ErrPending,
		record.ErrClosed, // of a replica or of the other node; our own ends the ctx
		context.DeadlineExceeded, context.Canceled,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// atLeader has try do something at the partition's leader, and again at the
// next one, until it succeeds, fails for good, or ctx ends.
func (n *Node) atLeader(ctx context.Context, p *partition, what string, try func(ctx context.Context, node string) error) error {
	var last error
	for backoff := firstBackoff; ; backoff = min(2*backoff, lastBackoff) {
		if err := p.gone(); err != nil {
			return err
		}
		hint, _ := p.leader()
		if hint.node == "" {
			if last = p.notLeader(); !retriable(last) {
				return last
			}
			n.seek(p)
		} else {
			err := try(ctx, hint.node)
			switch {
			case err == nil:
				return nil
			case ctx.Err() != nil:
				return gaveUp(ctx, what, err)
			case !retriable(err):
				return err
			}
			last = err
			n.misrouted(p, hint.node, err)
		}
		p.pause(ctx, backoff, hint)
		if ctx.Err() != nil {
			return gaveUp(ctx, what, last)
		}
	}
}

// wait returns after d, or when ctx ends.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// misrouted draws conclusions from the failure of a request to the node that
// was taken for the leader.
func (n *Node) misrouted(p *partition, node string, err error) {
	if errors.Is(err, record.ErrOverloaded) || errors.Is(err, record.ErrPending) {
		return
	}
	p.doubt(node)
	var not *record.NotLeaderError
	if errors.As(err, &not) && not.TopicPartition == p.tp && not.Leader != "" && not.Leader != node {
		p.learn(leaderHint{not.Leader, not.Epoch})
		return
	}
	n.seek(p)
}

// seek starts asking the other replicas who leads, unless somebody is at it. The
// first that says "I do" is believed, else the newest epoch is.
func (n *Node) seek(p *partition) {
	p.mu.Lock()
	busy := p.seeking
	p.seeking = true
	p.mu.Unlock()
	if busy {
		return
	}
	started := n.spawn(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, n.cfg.ElectionTimeout)
		defer cancel()
		nodes := p.assigned().Replicas
		answers := make(chan leaderHint, len(nodes))
		asked := 0
		for _, node := range nodes {
			if node == n.cfg.ID {
				continue
			}
			asked++
			n.sendControl(ctx, node, request{Op: opLeader, ID: p.key.topic, Partition: p.key.partition}, func(a answer, err error) {
				h := leaderHint{a.Leader, a.Epoch}
				if err == nil && h.node == node {
					p.learn(h)
				}
				answers <- h
			})
		}
		var best leaderHint
		for range asked {
			if h := <-answers; h.node != "" && h.epoch > best.epoch {
				best = h
			}
		}
		if best.node != "" {
			p.learn(best)
		}
		p.mu.Lock()
		p.seeking = false
		p.mu.Unlock()
	})
	if !started {
		p.mu.Lock()
		p.seeking = false
		p.mu.Unlock()
	}
}
