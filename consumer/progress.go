package consumer

import (
	"context"
	"slices"
	"time"
)

// progress is what the session has seen of the lane that a worker is on.
type progress struct {
	lane     *lane     // nil: on none
	finished int32     // records of its flight
	since    time.Time // when that was seen first
}

// hangs reports whether the user makes no progress: a handler is at one record
// for too long, or Poll is not called although there is something to hand out.
// Only the session asks.
func (g *Group) hangs(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.runner != nil {
		return g.runner.hangs(now)
	}
	waits := slices.ContainsFunc(g.ring, func(c *claim) bool {
		return c == g.out || c.ready && !c.halted() && len(c.queue) > 0
	})
	if g.polling || !waits {
		g.active = now
	}
	return now.Sub(g.active) >= g.cfg.ProgressTimeout
}

// hangs is that of a Run. Group.mu is held.
func (r *runner) hangs(now time.Time) (hangs bool) {
	for i := range r.serving {
		p := &r.serving[i]
		if p.lane == nil {
			continue
		}
		n := int32(0) // with several lanes, each time a worker is on one it is for one record
		if len(p.lane.win.lanes) == 1 {
			n = p.lane.pieces[0].in.finished.Load()
		}
		if p.since.IsZero() || n != p.finished {
			p.finished, p.since = n, now
		}
		hangs = hangs || now.Sub(p.since) >= r.g.cfg.ProgressTimeout
	}
	return hangs
}

// standDown leaves the group until there is progress, and then joins it again.
// It reports whether the member is one again; else the membership has ended.
func (g *Group) standDown() bool {
	g.logger.Error("no progress, the partitions are given to others", "member", g.Member(), "timeout", g.cfg.ProgressTimeout)
	g.loseAll()
	ctx, cancel := context.WithTimeout(g.life, g.cfg.SessionTimeout)
	err := g.leave(ctx)
	cancel()
	if err != nil {
		g.logger.Warn("could not leave, the session will end by itself", "err", err)
	}
	g.mu.Lock()
	polls := g.polls
	g.mu.Unlock()
	still := func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.runner != nil {
			return g.runner.hangs(time.Now())
		}
		return g.polls == polls && !g.polling
	}
	for still() {
		if g.tick() != nil {
			return false
		}
	}
	g.logger.Info("progress again, joining", "member", g.Member())
	return g.joinAgain()
}
