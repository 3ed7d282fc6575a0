package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// session keeps the membership alive until Close or an error that ends it. It
// is one goroutine. It alone adds claims, and it alone says what is wanted.
func (g *Group) session() {
	heard := time.Now() // when the last heartbeat that was answered was sent
	for g.tick() == nil {
		if g.hangs(time.Now()) {
			if !g.standDown() {
				return
			}
			heard = time.Now()
			continue
		}
		sent := time.Now()
		ctx, cancel := context.WithDeadline(g.life, heard.Add(g.cfg.SessionTimeout))
		resp, err := g.heartbeat(ctx)
		cancel()
		switch {
		case g.life.Err() != nil:
			return
		case err == nil:
			heard = sent
			g.assign(resp)
			continue
		case errors.Is(err, record.ErrFenced):
			g.logger.Warn("member was fenced, joining again", "member", g.Member(), "err", err)
		case !mayPass(err):
			g.fail(err)
			return
		case time.Since(heard) < g.cfg.SessionTimeout:
			g.logger.Warn("heartbeat failed, trying again", "err", err)
			continue
		default:
			g.logger.Warn("no heartbeat was answered within the session timeout, joining again", "member", g.Member(), "err", err)
		}
		g.loseAll()
		if !g.joinAgain() {
			return
		}
		heard = time.Now()
	}
}

// joinAgain reports whether the member is one again. It does not wait for a
// coordinator for ever: the user must hear of it at last.
func (g *Group) joinAgain() bool {
	ctx, cancel := context.WithTimeout(g.life, g.cfg.ProgressTimeout)
	defer cancel()
	err := g.join(ctx)
	if err != nil && g.life.Err() == nil {
		g.fail(fmt.Errorf("join group %q again: %w", g.name, err))
	}
	return err == nil
}

// tick waits for the next moment to send a heartbeat.
func (g *Group) tick() error {
	t := time.NewTimer(g.cfg.HeartbeatInterval)
	defer t.Stop()
	select {
	case <-t.C:
	case <-g.nudge:
	case <-g.life.Done():
	}
	return g.life.Err()
}

// loseAll takes all claims away at once, so that nothing of them is handed out
// any more and no commit of them is tried, and has the keeper finish them.
func (g *Group) loseAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.ring {
		c.wanted.Store(false)
	}
	g.lost = append(g.lost, g.ring...)
	clear(g.claims)
	g.ring, g.out = nil, nil
	signal(g.tidy)
}

// fail ends the membership with err, which every Poll returns from now on.
func (g *Group) fail(err error) {
	g.loseAll()
	g.mu.Lock()
	g.err = err
	g.mu.Unlock()
	signal(g.wake)
}
