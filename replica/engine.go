package replica

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// engine is one run of Raft on this replica.
type engine struct {
	*raft.Raft
	transport *groupTransport
	vigil     *vigil
	ended     chan struct{} // closed when Raft has ended; it answers nobody from then on
	ending    sync.Once
}

// raft returns the newest run of Raft, nil before the first one. One that has
// ended still tells what it knew last.
func (r *Replica) raft() *engine { return r.run.Load() }

// startRaft begins a run of Raft. The caller makes it reachable with Mux.add.
func (r *Replica) startRaft() error {
	t := r.cfg.ElectionTimeout
	// Heartbeats are a tenth to a fifth of the timeout apart, so they may wait for
	// others for a twentieth.
	transport := newGroupTransport(r.cfg.Mux, r.id, r.cfg.Node, max(time.Second, 4*t), t/20)
	transport.follows = func(term uint64) bool {
		return r.raft().State() == raft.Follower && r.raft().CurrentTerm() == term
	}
	transport.answered = func(term uint64, node string, match uint64) {
		end, _ := r.store.LastIndex() // it never fails
		if behind := r.progress.answered(term, node, match, end, time.Now()); behind > r.cfg.LagTimeMax {
			r.cfg.Mux.news.fire() // it is in sync again
		}
		<-r.started
		r.releaseHeld()
	}
	transport.followed = r.following.note
	transport.end = func() uint64 {
		end, _ := r.store.LastIndex() // it never fails
		return end
	}
	transport.durable = r.store.awaitDurable
	transport.caughtUp, transport.mayCount = r.caughtUp, r.mayCount
	transport.certain = func() bool { return unsure(r.unsure.Load()) == sure }
	ra, err := r.newRaft(transport)
	if err != nil {
		return errors.Join(err, transport.Close())
	}
	e := &engine{Raft: ra, transport: transport, ended: make(chan struct{})}
	e.vigil = r.keepVigil(e)
	r.run.Store(e)
	ra.RegisterObserver(raft.NewObserver(nil, false, func(o *raft.Observation) bool {
		switch o.Data.(type) {
		case raft.LeaderObservation, raft.RaftState:
			if ra.State() == raft.Leader {
				r.caughtUp()
			}
			r.announce()
			r.releaseHeld()
			r.endClaim()
		}
		return false
	}))
	return nil
}

// newRaft calls NewRaft, which panics when the log cannot be read, and whose
// goroutine ends when the vote file cannot be written.
func (r *Replica) newRaft(transport *groupTransport) (ra *raft.Raft, err error) {
	t := r.cfg.ElectionTimeout
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(r.cfg.Node)
	conf.HeartbeatTimeout, conf.ElectionTimeout, conf.LeaderLeaseTimeout = t+1, t+1, t/2 // see campaign
	conf.CommitTimeout = min(50*time.Millisecond, t/2)
	conf.MaxAppendEntries = maxInFlight + maxBarriers
	conf.BatchApplyCh = true
	conf.TrailingLogs = ^uint64(0) // retention is ours
	conf.SnapshotThreshold = ^uint64(0)
	conf.SnapshotInterval = 24 * time.Hour
	conf.NoSnapshotRestoreOnStart = true // restore did it
	conf.NoLegacyTelemetry = true
	conf.Logger = newRaftLogger(r.cfg.Logger)
	r.store.booting.Store(true)
	r.checkpoints.starting(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("start raft: %v", p)
			}
		}()
		err = errors.New("start raft: votes cannot be written") // if the goroutine ends in between
		ra, err = raft.NewRaft(conf, machine{r}, r.store, r.stable, r.checkpoints, transport)
	}()
	<-done
	r.store.booting.Store(false)
	r.checkpoints.starting(false)
	if err == nil && ra == nil {
		err = errors.New("start raft: it ended early")
	}
	if met := r.store.met; err != nil && met != nil { // Raft does not say so
		err = errors.Join(err, met)
	}
	return ra, err
}

// shutdown ends the run; from then on it answers nobody. It returns when that is done.
func (e *engine) shutdown() {
	e.ending.Do(func() {
		e.vigil.stop()
		stopped := e.Shutdown()
		_ = e.transport.Close()
		_ = stopped.Error() // never one
		close(e.ended)
	})
}

// campaign makes Raft stand for election at once, with a vote before the vote:
// who follows a leader refuses, and nothing is disturbed. Raft has no call for
// that, but a follower that learns of a shorter timeout, and has not heard of a
// leader since it started, does it. Only the first call has an effect.
func (e *engine) campaign(t time.Duration) error {
	conf := e.ReloadableConfig()
	conf.HeartbeatTimeout, conf.ElectionTimeout = t, t
	return e.ReloadConfig(conf)
}
