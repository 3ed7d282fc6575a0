package replica

import (
	"context"
	"time"

	"github.com/hashicorp/raft"
)

// wakeReason says what Raft does when it starts again.
type wakeReason uint8

const (
	wakeUp    wakeReason = iota // wait for a leader, as after any start
	wakeLead                    // stand for election at once
	wakeServe                   // the same, for somebody who takes this replica for the leader
)

// wake ends a sleep, unless it is over already.
func (r *Replica) wake(n *nap, why wakeReason) {
	r.turning.Lock()
	defer r.turning.Unlock()
	if n != nil && r.nap.Load() == n {
		r.startAgain(n, why)
	}
}

// startAgain starts Raft again. r.turning is held.
func (r *Replica) startAgain(n *nap, why wakeReason) {
	if r.stopped() != nil {
		return
	}
	if err := r.startRaft(); err != nil {
		r.fail(err)
		return
	}
	r.use()
	r.mu.Lock()
	if n.leader == r.cfg.Node && (why == wakeServe || r.wanted()) {
		why = wakeServe
		r.claim.Store(n)
		r.claimUntil = time.Now().Add(2 * r.cfg.ElectionTimeout)
		r.claimTimer = time.AfterFunc(2*r.cfg.ElectionTimeout, r.endClaim)
	} else {
		r.frozen = false
	}
	r.nap.Store(nil)
	r.handOver() // to a follower, which refuses, unless there is a claim
	r.mu.Unlock()
	e := r.raft()
	if err := r.cfg.Mux.add(e.transport); err != nil {
		r.fail(err)
		return
	}
	if why != wakeUp {
		if err := e.campaign(r.cfg.ElectionTimeout); err != nil {
			r.cfg.Logger.Warn("no election yet; it comes with the timeout", "reason", err)
		}
	}
	r.announce()
	r.endClaim() // the election may be over already
}

// endClaim hands over or refuses what has waited for a leader that woke up, as
// soon as it is known who leads now.
func (r *Replica) endClaim() {
	if r.claim.Load() == nil {
		return
	}
	e := r.raft()
	_, leader := e.LeaderWithID()
	leads := e.State() == raft.Leader && string(leader) == r.cfg.Node
	known := leads || leader != "" && string(leader) != r.cfg.Node
	r.mu.Lock()
	if r.claim.Load() == nil || !known && time.Now().Before(r.claimUntil) && !r.closed && r.failed == nil {
		r.mu.Unlock()
		return
	}
	r.claim.Store(nil)
	r.claimTimer.Stop()
	r.frozen = false
	if leads && !r.closed && r.failed == nil {
		r.handOver()
	}
	r.mu.Unlock()
	if !leads {
		r.refuseQueue(r.notLeader())
	}
	r.announce()
}

// stayAwake wakes the partition if this replica leads it, waits until Raft has
// decided who leads, and keeps it awake until release is called.
func (r *Replica) stayAwake(ctx context.Context) (release func(), err error) {
	r.mu.Lock()
	r.busy++
	frozen := r.frozen
	r.mu.Unlock()
	release = func() {
		r.use()
		r.mu.Lock()
		r.busy--
		r.mu.Unlock()
	}
	if !frozen {
		return release, nil
	}
	r.turning.Lock() // whoever froze it is done now
	n := r.nap.Load()
	if n != nil && n.leader == r.cfg.Node {
		r.startAgain(n, wakeServe)
	}
	r.turning.Unlock()
	for {
		changed := r.changed.wait()
		if r.claim.Load() == nil {
			return release, nil
		}
		if err = r.stopped(); err == nil {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		release()
		return nil, err
	}
}
