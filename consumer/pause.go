package consumer

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/record"
)

// Pause has Poll and Run hand out nothing more of the partitions, owned or not,
// until Resume; records under way are finished. It holds for this member, also
// when a partition moves away and comes back.
func (g *Group) Pause(tps ...record.TopicPartition) { g.setPaused(tps, true) }

// Resume ends the pause of the partitions.
func (g *Group) Resume(tps ...record.TopicPartition) { g.setPaused(tps, false) }

// Paused returns the partitions that are paused, sorted.
func (g *Group) Paused() []record.TopicPartition {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.SortedFunc(maps.Keys(g.paused), record.TopicPartition.Compare)
}

func (g *Group) setPaused(tps []record.TopicPartition, paused bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, tp := range tps {
		if paused {
			g.paused[tp] = true
		} else {
			delete(g.paused, tp)
		}
		if c := g.claims[tp]; c != nil {
			c.paused.Store(paused)
		}
	}
	signal(g.wake)
}

// Seek moves the group's position in a partition, which this member must own:
// the next record that Poll or Run hands out is the first at offset or behind
// it. Records under way are finished, but do not count. The offset is committed,
// even when that goes back, so that the group goes on there whatever happens; for
// that, Seek waits for a transaction that has an offset of the partition.
//
// *[record.FencedError] when the partition is not owned. An offset outside the
// log is dealt with as a committed one would be. Seek must not be called in
// OnAssigned and OnRevoked.
func (g *Group) Seek(ctx context.Context, tp record.TopicPartition, offset record.Offset) error {
	if offset < 0 {
		return fmt.Errorf("seek %v: %w: offset %d is negative; offsets begin at 0", tp, record.ErrInvalid, offset)
	}
	g.mu.Lock()
	c := g.claims[tp]
	g.mu.Unlock()
	if c != nil {
		select {
		case c.moving <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		defer func() { <-c.moving }()
	}
	select {
	case g.saving <- struct{}{}: // no commit of what was before may come later
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-g.saving }()
	req := group.Request{
		Op: group.OpCommit, Rewind: true,
		Offsets: []group.Offset{{TopicPartition: tp, Offset: offset}},
	}
	err := g.mayCommit(&req, func(tp record.TopicPartition) bool { return c != nil && g.claims[tp] == c })
	if err == nil {
		err = g.commit(ctx, req)
	}
	if err != nil {
		return fmt.Errorf("seek: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.claims[tp] != c {
		return nil // lost since; its next owner goes on there
	}
	if c.win != nil {
		c.win.drop()
	}
	if g.out == c {
		g.out = nil
	}
	c.queue, c.err = nil, nil
	c.done, c.stored = offset, offset
	c.seek = offset
	c.era++
	signal(g.tidy) // the keeper starts the feed anew
	signal(g.wake)
	return nil
}

// moveFeeds starts the feeds anew of claims that Seek has moved. It is the
// keeper's.
func (g *Group) moveFeeds() {
	for {
		g.mu.Lock()
		i := slices.IndexFunc(g.ring, func(c *claim) bool { return c.known && c.seek != record.NoOffset })
		if i < 0 {
			g.mu.Unlock()
			return
		}
		c := g.ring[i]
		g.mu.Unlock()
		c.stopFeed()
		g.mu.Lock()
		pos := c.seek
		c.seek = record.NoOffset
		c.queue, c.err = nil, nil
		g.mu.Unlock()
		g.startFeed(c, pos)
	}
}
