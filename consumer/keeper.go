package consumer

import (
	"context"
	"slices"

	"github.com/quorumlog/quorumlog/record"
)

// keep makes what the member holds match what it should hold, until Close. It
// is one goroutine, so that slow callbacks delay no heartbeat. It alone takes
// up and gives up claims.
func (g *Group) keep() {
	for {
		select {
		case <-g.tidy:
		case <-g.life.Done():
			return
		}
		g.mu.Lock()
		lost := g.lost
		g.lost = nil
		g.mu.Unlock()
		g.finish(g.life, lost)
		g.release()
		g.takeUp()
	}
}

// release gives up the claims that are no longer wanted, except the one whose
// batch is still being handled.
func (g *Group) release() {
	g.mu.Lock()
	var unwanted []*claim
	for _, c := range g.ring {
		if !c.wanted.Load() && c != g.out {
			c.ready = false // it may become wanted again while it is finished: too late
			unwanted = append(unwanted, c)
		}
	}
	g.mu.Unlock()
	if len(unwanted) == 0 {
		return
	}
	g.finish(g.life, unwanted)
	g.mu.Lock()
	for _, c := range unwanted {
		if g.claims[c.tp] == c {
			delete(g.claims, c.tp)
			g.ring = slices.DeleteFunc(g.ring, func(o *claim) bool { return o == c })
		}
	}
	g.mu.Unlock()
	signal(g.nudge) // the next owner waits for it
}

// takeUp starts the feeds of new claims.
func (g *Group) takeUp() {
	g.mu.Lock()
	var fresh []*claim
	var tps []record.TopicPartition
	for _, c := range g.ring {
		if !c.known && c.wanted.Load() {
			fresh, tps = append(fresh, c), append(tps, c.tp)
		}
	}
	g.mu.Unlock()
	if len(fresh) == 0 {
		return
	}
	positions, err := g.positions(g.life, tps)
	if g.life.Err() != nil {
		return
	}
	for _, c := range fresh {
		c.known = true
		if err == nil {
			g.startFeed(c, positions[c.tp])
		}
	}
	g.cfg.OnAssigned(g.life, tps)
	g.mu.Lock()
	for _, c := range fresh {
		c.ready = true
		if err != nil {
			c.err = err // comes out of Poll
		}
	}
	g.mu.Unlock()
	signal(g.wake)
}

// positions returns where to begin reading each of tps.
func (g *Group) positions(ctx context.Context, tps []record.TopicPartition) (map[record.TopicPartition]record.Offset, error) {
	positions, err := g.Committed(ctx, tps)
	if err != nil {
		return nil, err
	}
	for _, tp := range tps {
		if _, ok := positions[tp]; ok {
			continue
		}
		var start, high record.Offset
		err := g.retry(ctx, func() (err error) {
			start, high, err = g.src.Offsets(ctx, tp)
			return err
		})
		if err != nil {
			return nil, place(tp, err)
		}
		positions[tp] = start
		if g.cfg.StartAt == AtEnd {
			positions[tp] = high
		}
	}
	return positions, nil
}

// finish ends the feeds of claims that are given up or lost and tells the user.
func (g *Group) finish(ctx context.Context, claims []*claim) {
	var tps []record.TopicPartition
	for _, c := range claims {
		if c.known {
			c.stopFeed()
			tps = append(tps, c.tp)
		}
	}
	if len(tps) > 0 {
		g.cfg.OnRevoked(ctx, tps)
	}
}
