package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/record"
)

// join becomes a new member, under an id that was never used before, in place of
// the one this client was last, and takes over what it is given at once. It keeps trying until ctx ends.
func (g *Group) join(ctx context.Context) error {
	id := group.NewMember()
	resp, err := g.ask(ctx, group.Request{
		Op: group.OpJoin, Member: id, Instance: g.cfg.InstanceID, Replaces: g.Member(),
		Client: g.cfg.ClientID, Topics: g.topics,
		SessionTimeout: g.cfg.SessionTimeout, Assignor: g.cfg.Assignor,
	})
	if err != nil {
		return err
	}
	g.mu.Lock()
	g.member = id
	g.mu.Unlock()
	g.assign(resp)
	return nil
}

// heartbeat tells the coordinator what the member holds and returns what it
// should hold. It does not try again: the next heartbeat does.
func (g *Group) heartbeat(ctx context.Context) (group.Response, error) {
	g.mu.Lock()
	req := group.Request{Op: group.OpHeartbeat, Member: g.member, Generation: g.generation}
	for _, c := range g.ring {
		req.Owned = append(req.Owned, c.tp)
	}
	g.mu.Unlock()
	return g.coord.Group(ctx, g.name, req)
}

// leave ends the membership. Not being a member any more is as good.
func (g *Group) leave(ctx context.Context) error {
	_, err := g.ask(ctx, group.Request{Op: group.OpLeave, Member: g.Member()})
	if errors.Is(err, record.ErrFenced) {
		return nil
	}
	return err
}

// assign takes over the coordinator's list of what the member should hold. New
// partitions become claims here, before the next heartbeat, which would
// otherwise seem to give them up.
func (g *Group) assign(resp group.Response) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.generation = resp.Generation
	listed := make(map[record.TopicPartition]bool, len(resp.Assigned))
	for _, tp := range resp.Assigned {
		listed[tp] = true
		if g.claims[tp] == nil {
			g.claims[tp] = newClaim(tp)
			g.claims[tp].paused.Store(g.paused[tp])
			g.ring = append(g.ring, g.claims[tp])
		}
	}
	slices.SortFunc(g.ring, func(a, b *claim) int { return a.tp.Compare(b.tp) })
	for _, c := range g.ring {
		c.wanted.Store(listed[c.tp])
		if listed[c.tp] {
			c.fenced = false // whatever was refused, it is ours
		}
	}
	if g.runner != nil {
		signal(g.runner.dirty) // what is to be given up is committed now
	}
	signal(g.tidy)
	signal(g.wake) // one that was unwanted may be wanted again
}

// ask sends a request until it is answered, fails for good, or ctx ends.
func (g *Group) ask(ctx context.Context, req group.Request) (resp group.Response, err error) {
	err = g.retry(ctx, func() error {
		resp, err = g.coord.Group(ctx, g.name, req)
		return err
	})
	return resp, err
}

// retry does op again while its error may pass, until ctx ends. That alone would
// tell nobody why, so what came of the last try is told as well.
func (g *Group) retry(ctx context.Context, op func() error) error {
	var last error
	for {
		err := op()
		if ctx.Err() != nil && last != nil && errors.Is(err, ctx.Err()) {
			return fmt.Errorf("%w; the try before: %w", err, last)
		}
		if err == nil || !mayPass(err) || ctx.Err() != nil {
			return err
		}
		last = err
		g.logger.Warn("trying again", "err", err)
		if pause(ctx, g.cfg.HeartbeatInterval) != nil {
			return err
		}
	}
}

// mayPass reports whether err is one that goes away by itself.
func mayPass(err error) bool {
	for _, class := range []error{
		record.ErrNotLeader, record.ErrUnreachable, record.ErrOverloaded, record.ErrOutcomeUnknown,
		context.DeadlineExceeded, // of the call, not of whoever waits for it
	} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}
