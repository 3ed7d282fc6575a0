package consumer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
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
		g.moveFeeds()
	}
}

// release gives up the claims that are no longer wanted, except the one whose
// batch is still being handled.
func (g *Group) release() {
	saves := g.cfg.Commit != ByHand
	g.mu.Lock()
	var unwanted []*claim
	for _, c := range g.ring {
		if !c.wanted.Load() && c != g.out && !c.busy(saves) {
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
	fresh := g.fresh()
	if len(fresh) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(g.life, g.cfg.ProgressTimeout)
	defer cancel()
	committed, err := g.positions(ctx, partitions(fresh))
	taken := fresh[:0]
	for _, c := range fresh {
		pos, ok := committed[c.tp]
		cause := err
		if !ok && cause == nil {
			pos, cause = g.origin(ctx, c.tp)
		}
		switch {
		case cause == nil:
			g.startFeed(c, pos)
		case errors.Is(cause, record.ErrFenced):
			continue // lost already; the session will find out, or it is tried again
		default:
			g.stall(c, cause)
		}
		taken = append(taken, c)
	}
	if g.life.Err() != nil || len(taken) == 0 {
		return // the feeds end with the life, and the user has heard nothing yet
	}
	for _, c := range taken {
		c.known = true
	}
	g.call("OnAssigned", func() { g.cfg.OnAssigned(g.life, partitions(taken)) })
	g.mu.Lock()
	for _, c := range taken {
		c.ready = true
	}
	g.mu.Unlock()
	signal(g.wake)
}

// positions returns where to resume: what the user's own store says, else what
// is committed.
func (g *Group) positions(ctx context.Context, tps []record.TopicPartition) (map[record.TopicPartition]record.Offset, error) {
	committed, err := g.Committed(ctx, tps)
	if err != nil || g.cfg.ResumeAt == nil {
		return committed, err
	}
	var own map[record.TopicPartition]record.Offset
	g.call("ResumeAt", func() { own, err = g.cfg.ResumeAt(ctx, tps) })
	if err != nil {
		return nil, fmt.Errorf("ResumeAt: %w", err)
	}
	for tp, o := range own {
		if o < 0 {
			return nil, fmt.Errorf("ResumeAt: %w: %v: offset %d is negative; leave the partition out if there is none", record.ErrInvalid, tp, o)
		}
		committed[tp] = o
	}
	return committed, nil
}

// fresh returns the claims that wait to be taken up.
func (g *Group) fresh() []*claim {
	g.mu.Lock()
	defer g.mu.Unlock()
	var fresh []*claim
	for _, c := range g.ring {
		if !c.known && c.wanted.Load() {
			fresh = append(fresh, c)
		}
	}
	return fresh
}

func partitions(claims []*claim) []record.TopicPartition {
	var tps []record.TopicPartition
	for _, c := range claims {
		tps = append(tps, c.tp)
	}
	return tps
}

// origin returns where to begin without a committed offset.
func (g *Group) origin(ctx context.Context, tp record.TopicPartition) (record.Offset, error) {
	var start, high record.Offset
	err := g.retry(ctx, func() (err error) {
		start, high, err = g.src.Offsets(ctx, tp, g.isolation(tp.Topic))
		return err
	})
	if err != nil || g.cfg.StartAt == AtStart {
		return start, err
	}
	// Commit it: should the partition move before the first batch is
	// committed, its next owner would begin at a later end and miss what is
	// between.
	return high, g.CommitOffsets(ctx, map[record.TopicPartition]record.Offset{tp: high})
}

// finish ends the feeds of claims that are given up or lost and tells the user.
func (g *Group) finish(ctx context.Context, claims []*claim) {
	var known []*claim
	for _, c := range claims {
		if c.known {
			c.stopFeed()
			known = append(known, c)
		}
	}
	if len(known) > 0 {
		g.call("OnRevoked", func() { g.cfg.OnRevoked(ctx, partitions(known)) })
	}
}

// call runs a callback of the user's. If it panics, the membership ends with that.
func (g *Group) call(name string, f func()) {
	defer func() {
		if v := recover(); v != nil {
			g.fail(fmt.Errorf("%s panicked: %v\n%s", name, v, debug.Stack()))
		}
	}()
	f()
}
