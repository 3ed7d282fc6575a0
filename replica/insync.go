package replica

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// progress is what a leader knows of its followers' logs, from the answers to
// its own requests. Raft knows the same but tells nobody.
//
// A follower is in sync while it has caught up with the leader's end within
// LagTimeMax. As in Kafka (KIP-16), "caught up" looks one request back: a
// follower that is always one batch behind a busy leader is in sync, one that
// answers and makes no progress is not. A new leader takes every follower for in
// sync until LagTimeMax has passed: AckAll then rather waits too long.
type progress struct {
	mu    sync.Mutex
	term  uint64 // of the leadership that peers belongs to
	since time.Time
	peers map[string]*peer
	moved signal // a follower has answered
}

// peer is one follower.
type peer struct {
	match    uint64    // it has all entries up to this one
	caughtUp time.Time // when it last had all that the leader had
	proven   bool      // it did have it, and was not only given credit
	end      uint64    // the leader's last entry at the last answer
	at       time.Time // of that answer
}

// begin starts anew when the term is another. p.mu is held.
func (p *progress) begin(term uint64, now time.Time) {
	if term != p.term {
		p.term, p.since, p.peers = term, now, map[string]*peer{}
	}
}

// answered notes that a follower has stored everything up to match, when the
// leader's log ends with entry end. It returns how long the follower was behind if
// it has caught up.
func (p *progress) answered(term uint64, node string, match, end uint64, now time.Time) (behind time.Duration) {
	defer p.moved.fire()
	p.mu.Lock()
	defer p.mu.Unlock()
	if term < p.term {
		return 0
	}
	p.begin(term, now)
	f := p.peers[node]
	if f == nil {
		f = &peer{caughtUp: p.since}
		p.peers[node] = f
	}
	f.match = max(f.match, match)
	before := f.caughtUp
	switch {
	case f.match >= end:
		f.caughtUp, f.proven = now, true
	case !f.at.IsZero() && f.match >= f.end:
		f.caughtUp, f.proven = f.at, true
	}
	f.end, f.at = end, now
	if f.caughtUp.Equal(before) {
		return 0
	}
	return now.Sub(before)
}

// inSync returns which of the other nodes are in sync, with the entry up to
// which each has everything.
func (p *progress) inSync(term uint64, nodes []string, lag time.Duration, now time.Time) map[string]uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begin(max(term, p.term), now)
	in := make(map[string]uint64, len(nodes))
	for _, node := range nodes {
		caughtUp, match := p.since, uint64(0)
		if f := p.peers[node]; f != nil {
			caughtUp, match = f.caughtUp, f.match
		}
		if now.Sub(caughtUp) <= lag {
			in[node] = match
		}
	}
	return in
}

// caughtUp reports whether a node has been seen in this term to have all that the
// leader had, not longer ago than lag.
func (p *progress) caughtUp(term uint64, node string, lag time.Duration, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.peers[node]
	return term == p.term && f != nil && f.proven && now.Sub(f.caughtUp) <= lag
}

// match returns the entry up to which a follower is known to have everything.
func (p *progress) match(node string) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f := p.peers[node]; f != nil {
		return f.match
	}
	return 0
}

// followers returns the other voters.
func (r *Replica) followers() []string {
	return slices.DeleteFunc(r.Members().Voters, func(node string) bool { return node == r.cfg.Node })
}

// insync returns the followers that are in sync now. The leader asks. Those that
// sleep have everything, as long as their nodes live.
func (r *Replica) insync() map[string]uint64 {
	if n := r.resting(); n != nil {
		in := map[string]uint64{}
		for _, node := range r.followers() {
			if time.Since(r.cfg.Mux.watch.heard(node, n)) <= r.cfg.LagTimeMax {
				in[node] = n.last
			}
		}
		return in
	}
	return r.progress.inSync(r.raft().CurrentTerm(), r.followers(), r.cfg.LagTimeMax, time.Now())
}

// enough refuses an append with AckAll that could not be acknowledged.
func (r *Replica) enough() error {
	if have := 1 + len(r.insync()); have < r.minInSync() {
		return r.notEnough(have, false)
	}
	return nil
}

// minInSync is Config.MinInSync, or a majority of the voters there are now.
func (r *Replica) minInSync() int {
	return cmp.Or(r.cfg.MinInSync, (1+len(r.followers()))/2+1)
}

func (r *Replica) notEnough(have int, appended bool) error {
	return &record.NotEnoughReplicasError{TopicPartition: r.cfg.TopicPartition, Have: have, Need: r.minInSync(), Appended: appended}
}

// holdForAll keeps a committed proposal until all that are in sync have it.
func (r *Replica) holdForAll(p *proposal) {
	r.mu.Lock()
	r.held = append(r.held, p)
	r.mu.Unlock()
	r.releaseHeld()
}

// releaseHeld answers the held proposals whose wait is over: every follower that
// is in sync has the entry, or leadership is lost. It is called when a follower
// has answered, when one may have fallen out of sync, when leadership changes
// and when the replica closes.
func (r *Replica) releaseHeld() {
	r.mu.Lock()
	if len(r.held) == 0 {
		r.mu.Unlock()
		return
	}
	var in map[string]uint64
	epoch := record.LeaderEpoch(-1) // of which entries may be waited for
	if r.leads() && !r.closed && r.failed == nil {
		in, epoch = r.insync(), record.LeaderEpoch(r.raft().CurrentTerm())
	}
	var over, still []*proposal
	for _, p := range r.held {
		if p.epoch == epoch && lacking(in, p.entry) {
			still = append(still, p)
		} else {
			over = append(over, p)
		}
	}
	r.held = still
	if len(still) > 0 && r.heldTimer == nil {
		r.heldTimer = time.AfterFunc(r.cfg.LagTimeMax/4, func() {
			r.mu.Lock()
			r.heldTimer = nil
			r.mu.Unlock()
			r.releaseHeld()
		})
	}
	r.mu.Unlock()
	for _, p := range over {
		var err error
		if have := r.holders(p.entry); have < r.minInSync() {
			err = r.notEnough(have, true)
		}
		r.finish(p, r.appended(p), err)
	}
}

// holders returns how many replicas are known to have a committed entry: the
// quorum in any case.
func (r *Replica) holders(entry uint64) int {
	nodes := r.followers()
	have := 1
	for _, node := range nodes {
		if r.progress.match(node) >= entry {
			have++
		}
	}
	return max(have, (len(nodes)+1)/2+1)
}

// lacking tells whether a follower that is in sync does not have the entry yet.
func lacking(in map[string]uint64, entry uint64) bool {
	for _, match := range in {
		if match < entry {
			return true
		}
	}
	return false
}
