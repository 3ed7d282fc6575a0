package torture

import (
	"context"
	"time"

	"github.com/quorumlog/quorumlog/cluster"
	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/replica"
)

// replace has m leave the cluster and come back with an empty disk. If that takes
// too long, amid other faults, it stays. In the end it is a member.
func (f *fleet) replace(ctx context.Context, m *machine) {
	gone := f.through(ctx, m, "drain", 6*time.Second, func(ctx context.Context, n *cluster.Node) error {
		return n.DrainNode(ctx, m.id, nil)
	}) && f.through(ctx, m, "remove", 4*time.Second, func(ctx context.Context, n *cluster.Node) error {
		return n.RemoveNode(ctx, m.id)
	})
	if gone {
		f.stop(m)
		m.disk, m.stable, m.joins = vfs.NewMem(), replica.NewMemoryStable(), true
	}
	// Before it starts: one that was removed does not come back by itself.
	began := time.Now()
	for !f.isMember(m) && !f.history.found() {
		f.through(ctx, m, "add", 300*time.Millisecond, func(ctx context.Context, n *cluster.Node) error {
			return n.AddNode(ctx, m.id)
		})
		if time.Since(began) > 2*f.cfg.Bound {
			f.history.violate(NoProgress, "%s cannot be added to the cluster", m.id)
		}
	}
	if gone {
		f.start(ctx, m)
	}
}

// through does something with m through the node of another machine.
func (f *fleet) through(ctx context.Context, m *machine, what string, patience time.Duration, do func(context.Context, *cluster.Node) error) bool {
	ctx, cancel := context.WithTimeout(ctx, patience*time.Duration(f.cfg.Slow))
	defer cancel()
	n := f.other(m)
	if n == nil {
		pause(ctx, 50*time.Millisecond)
		return false
	}
	f.story.step("%s %s", what, m.id)
	err := do(ctx, n)
	if err != nil {
		f.story.step("%s %s: %v", what, m.id, err)
		pause(ctx, 50*time.Millisecond)
	}
	return err == nil
}

// other returns the node of another machine, nil if none runs.
func (f *fleet) other(m *machine) *cluster.Node {
	for _, o := range f.machines {
		if n := o.node.Load(); o != m && n != nil {
			return n
		}
	}
	return nil
}

// isMember reports whether another node knows m as an active member.
func (f *fleet) isMember(m *machine) bool {
	n := f.other(m)
	if n == nil {
		return false
	}
	for _, info := range n.Nodes() {
		if info.ID == m.id {
			return info.State == cluster.NodeActive
		}
	}
	return false
}
