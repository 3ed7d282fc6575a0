package replica

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// vigil makes a follower notice early that its leader is dead. Raft by itself
// waits for one to two timeouts of silence, by chance, and then needs the vote of
// somebody who waits just so long: with three replicas about 1.7 timeouts pass, or
// 2.4 when the first try came too early. A vigil has all followers stand for
// election when the leader has been silent for one timeout; and for half of one, if
// the leader's node, asked, turns out to be gone or to have no such replica.
//
// A candidate still asks for a vote before the vote. So a follower that alone hears
// nothing of a leader is refused by the others, and disturbs nobody.
//
// It owns a timer, which stop stops for good.
type vigil struct {
	r *Replica
	e *engine

	mu      sync.Mutex // guards what follows
	timer   *time.Timer
	stopped bool
	hurried bool // Raft has a shorter timeout for the moment
	stuck   bool // Raft was a candidate with a leader at the last look
}

// keepVigil begins one for a run of Raft.
func (r *Replica) keepVigil(e *engine) *vigil {
	v := &vigil{r: r, e: e}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.timer = time.AfterFunc(r.cfg.ElectionTimeout/2, v.look)
	return v
}

func (v *vigil) stop() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.stopped = true
	v.timer.Stop()
}

// look is what the timer does.
func (v *vigil) look() {
	v.mu.Lock()
	if v.stopped {
		v.mu.Unlock()
		return
	}
	t, doubt := v.r.cfg.ElectionTimeout, false
	next := t / 2
	_, leader := v.e.LeaderWithID()
	heard := v.e.LastContact()
	v.unstick(v.e.State() == raft.Candidate && leader != "")
	if v.e.State() == raft.Follower && leader != "" && !heard.IsZero() {
		switch silence := time.Since(heard); {
		case silence >= t:
			v.hurry()
		case silence >= t/2:
			doubt, next = true, t-silence
		default:
			v.relax()
			next = t/2 - silence
		}
	} else {
		v.relax()
	}
	v.timer.Reset(next + rand.N(t/10+1)) // so that two are seldom candidates at once
	v.mu.Unlock()
	if doubt {
		v.ask(string(leader), heard)
	}
}

// unstick frees a candidate that Raft takes to have a leader still. That comes of
// a last heartbeat that was handled, beside Raft's main loop, in the moment when the
// loop gave the leader up. It would refuse everybody its vote before the vote for
// ever, and if its own log is too short nobody would ever lead. To be told to stand
// for election makes Raft forget the leader. v.mu is held.
func (v *vigil) unstick(now bool) {
	if now && v.stuck {
		_ = v.e.transport.campaign() // too busy: the next look comes soon
	}
	v.stuck = now
}

// hurry makes a follower stand for election now, unless it has heard of its leader
// within half a timeout. v.mu is held.
func (v *vigil) hurry() {
	if !v.hurried {
		v.hurried = v.reload(v.r.cfg.ElectionTimeout / 2)
	}
}

// relax sets the timeouts back. v.mu is held.
func (v *vigil) relax() {
	if v.hurried {
		v.hurried = !v.reload(v.r.cfg.ElectionTimeout)
	}
}

// reload gives Raft other timeouts. A follower that learns of a shorter one looks
// at once how long its leader has been silent.
func (v *vigil) reload(t time.Duration) bool {
	conf := v.e.ReloadableConfig()
	conf.HeartbeatTimeout, conf.ElectionTimeout = t, t
	if err := v.e.ReloadConfig(conf); err != nil {
		v.r.cfg.Logger.Warn("timeouts cannot be set", "error", err)
		return false
	}
	return true
}

// ask finds out whether the leader's node is there and has the replica. No answer
// says nothing: it may be slow.
func (v *vigil) ask(leader string, heard time.Time) {
	m := v.r.cfg.Mux
	ctx, cancel := context.WithTimeout(v.e.transport.ctx, v.r.cfg.ElectionTimeout/2)
	probe := v.e.transport.frame(rpcProbe, 0)
	m.endpoint.Send(ctx, leader, m.service, [][]byte{probe}, func(_ []byte, err error) {
		cancel()
		if err == nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			return
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		if !v.stopped && v.e.LastContact().Equal(heard) {
			v.hurry()
		}
	})
}
