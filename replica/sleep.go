package replica

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

// nap is the sleep of one replica: its Raft has been shut down, in agreement
// with all other replicas, while all held the same committed end.
type nap struct {
	leader  string
	epoch   record.LeaderEpoch // in which leader led
	last    uint64             // the last entry of all
	nodes   []string           // that hold a replica
	voters  []string           // those of them that vote
	since   time.Time
	limit   time.Duration // how long nothing may be heard of those it depends on
	hash    uint64        // of group and epoch, see watch.go
	settled atomic.Bool   // Raft has ended, and nothing came in between
	waking  atomic.Bool   // its turn to wake up is to come; see watch.go
}

// What one replica asks another about sleep.
type sleepOp uint8

const (
	opProbe   sleepOp = 1 + iota // could you go to sleep, with your last entry as mine?
	opSleep                      // do
	opConfirm                    // do you sleep, with me as the leader of that epoch?
	opRouse                      // I am leaving: take over
)

// resting returns the sleep of this replica, or the one its leader wakes from to
// serve somebody; nil otherwise.
func (r *Replica) resting() *nap {
	if n := r.nap.Load(); n != nil {
		return n
	}
	return r.claim.Load()
}

// asleep reports whether this replica sleeps, in agreement with the others.
func (r *Replica) asleep() bool {
	n := r.nap.Load()
	return n != nil && n.settled.Load()
}

// use notes that the partition is in use.
func (r *Replica) use() { r.used.Store(int64(time.Since(r.opened))) }

// considerSleep is called every now and then while the replica is awake. The
// leader of a partition that nobody has used for long tries to put it to sleep.
func (r *Replica) considerSleep(now time.Time) {
	used := r.used.Load()
	if used != r.sleepUsed {
		r.sleepUsed, r.sleepPause, r.sleepAgain = used, 0, time.Time{}
	}
	idle := now.Sub(r.opened) - time.Duration(used)
	if r.cfg.SleepAfter < 0 || idle < r.cfg.SleepAfter/2 || now.Before(r.sleepAgain) {
		return
	}
	if r.unsaved.Load() > 0 { // who wakes up replays nothing
		r.mu.Lock()
		if !r.closed && r.failed == nil {
			r.want(choreCheckpoint)
		}
		r.mu.Unlock()
		return
	}
	if idle < r.cfg.SleepAfter || !r.leads() || !r.cfg.Mux.watch.enter() {
		return
	}
	// Failures double the pause, so that a replica that is away costs little.
	r.sleepPause = min(max(2*r.sleepPause, r.cfg.ElectionTimeout/4), max(time.Minute, r.cfg.ElectionTimeout))
	r.sleepAgain = now.Add(r.sleepPause)
	r.cfg.Mux.watch.wg.Go(func() {
		defer r.cfg.Mux.watch.leave()
		r.putToSleep()
	})
}

// putToSleep has all replicas go to sleep, this leader last. Whatever goes wrong
// on the way, it leads on, and its next heartbeat wakes those that sleep.
func (r *Replica) putToSleep() {
	if !r.turning.TryLock() {
		return
	}
	defer r.turning.Unlock()
	e := r.raft()
	n := r.newNap(r.cfg.Node, e.CurrentTerm())
	if r.nap.Load() != nil || e.State() != raft.Leader || !r.atEnd(e, n.last) || !r.freeze() {
		return
	}
	asleep := false
	defer func() {
		if !asleep {
			r.thaw()
		}
	}()
	ctx, cancel := context.WithTimeout(e.transport.ctx, r.cfg.ElectionTimeout/2)
	defer cancel()
	term := r.store.log.Bounds().LastTerm
	if !r.holdAll(n) || !r.askAll(ctx, n, opProbe, term) {
		return
	}
	// From here on followers hear nothing, and a leader that hears nothing steps
	// down when half the timeout has passed.
	ctx, cancel = context.WithTimeout(ctx, r.cfg.ElectionTimeout/5)
	defer cancel()
	defer e.transport.speak()
	if !e.transport.hush(ctx) || !r.askAll(ctx, n, opSleep, term) || !r.lieDown(e, n) {
		return
	}
	asleep = true
	r.cfg.Logger.Debug("asleep", "epoch", n.epoch, "entry", n.last)
}

// newNap describes the sleep that could begin now.
func (r *Replica) newNap(leader string, term uint64) *nap {
	m := r.Members()
	n := &nap{leader: leader, epoch: record.LeaderEpoch(term), nodes: slices.Concat(m.Voters, m.Learners), voters: m.Voters, since: time.Now()}
	n.last, _ = r.store.LastIndex() // it never fails
	// As Raft does: by chance, so that not all stand for election at once.
	n.limit = r.cfg.ElectionTimeout + rand.N(r.cfg.ElectionTimeout)
	h := fnv.New64a()
	_, _ = h.Write(r.id[:]) // never fails
	_, _ = h.Write(putU64(nil, term))
	n.hash = h.Sum64()
	return n
}

// atEnd tells whether this replica's log ends with entry last, all of it is
// committed and applied, and the checkpoint covers it.
func (r *Replica) atEnd(e *engine, last uint64) bool {
	b := r.store.log.Bounds()
	if uint64(b.Next) != last+1 || b.First == b.Next || e.LastIndex() != last || e.AppliedIndex() != last ||
		record.Offset(r.high.Load()) != b.End || r.unsaved.Load() > 0 || r.chores.Load() != 0 {
		return false
	}
	// The state machine never hears of Raft's own last entries.
	for i := max(r.applied.Load()+1, uint64(b.First)); i <= last; i++ {
		h, err := r.store.log.ReadEntryHeader(record.EntryNumber(i))
		if err != nil || h.Kind != segment.KindNoop && h.Kind != segment.KindBarrier {
			return false
		}
	}
	return true
}

// holdAll tells whether all others are known to hold the last entry.
func (r *Replica) holdAll(n *nap) bool {
	for _, node := range n.nodes {
		if node != r.cfg.Node && r.progress.match(node) != n.last {
			return false
		}
	}
	return true
}

// askAll asks all others and tells whether all said yes.
func (r *Replica) askAll(ctx context.Context, n *nap, op sleepOp, term uint64) bool {
	return r.ask(ctx, n, op, term, len(n.nodes)-1, n.nodes)
}

// ask asks nodes other than this one and tells whether count of them said yes.
func (r *Replica) ask(ctx context.Context, n *nap, op sleepOp, term uint64, count int, nodes []string) bool {
	answers := make(chan bool, len(nodes))
	asked := 0
	for _, node := range nodes {
		if node == r.cfg.Node {
			continue
		}
		asked++
		req := append(slices.Clone(r.id[:]), byte(rpcSleep), byte(op))
		req = putU64(req, uint64(n.epoch), n.last, term)
		r.cfg.Mux.endpoint.Send(ctx, node, r.cfg.Mux.service, [][]byte{req}, func(resp []byte, err error) {
			answers <- err == nil && len(resp) == 1 && resp[0] == 1
		})
	}
	for ; asked > 0 && count > 0; asked-- {
		if <-answers { // Send ends the wait with ctx
			count--
		}
	}
	return count <= 0
}

// answerSleep is the other side of ask.
func (r *Replica) answerSleep(from string, body []byte) bool {
	d := decoder{b: body}
	op, epoch, last, term := sleepOp(d.u8()), record.LeaderEpoch(d.u64()), d.u64(), d.u64()
	if d.end() != nil {
		return false
	}
	n := r.nap.Load()
	same := n != nil && n.settled.Load() && n.leader == from && n.epoch == epoch && n.last == last
	switch op {
	case opConfirm:
		return same
	case opRouse:
		if same {
			r.wake(n, wakeLead)
		}
		return same
	case opProbe, opSleep:
		return same || r.followToSleep(from, epoch, last, term, op == opProbe)
	}
	return false
}

// followToSleep goes to sleep with the leader if this replica holds what it does.
func (r *Replica) followToSleep(leader string, epoch record.LeaderEpoch, last, term uint64, probe bool) bool {
	if !r.turning.TryLock() {
		return false
	}
	defer r.turning.Unlock()
	e := r.raft()
	_, led := e.LeaderWithID()
	if r.cfg.SleepAfter < 0 || r.nap.Load() != nil || e.State() != raft.Follower || string(led) != leader ||
		e.CurrentTerm() != uint64(epoch) || r.store.log.Bounds().LastTerm != term || !r.atEnd(e, last) {
		return false
	}
	if probe {
		return true
	}
	if !r.freeze() {
		return false
	}
	if !r.lieDown(e, r.newNap(leader, uint64(epoch))) {
		r.thaw()
		return false
	}
	return true
}

// freeze keeps everything from Raft until thaw; false if there is something
// under way. r.turning is held.
func (r *Replica) freeze() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.failed != nil || r.frozen || r.wanted() || r.inFlight > 0 || len(r.held) > 0 {
		return false
	}
	r.frozen = true
	return true
}

// wanted tells whether somebody needs Raft. r.mu is held.
func (r *Replica) wanted() bool { return r.busy > 0 || len(r.queue) > 0 }

func (r *Replica) thaw() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.claim.Load() != nil { // Raft has been started again, and endClaim will do it
		return
	}
	r.frozen = false
	if !r.closed && r.failed == nil {
		r.handOver()
	}
}

// lieDown shuts Raft down, unless somebody needs it after all. Raft may have
// gone on until it had ended; then there is no agreement, and it starts again.
// r.turning is held.
func (r *Replica) lieDown(e *engine, n *nap) bool {
	r.mu.Lock()
	if r.wanted() {
		r.mu.Unlock()
		return false
	}
	r.nap.Store(n)
	r.mu.Unlock()
	e.shutdown()
	if last, _ := r.store.LastIndex(); e.CurrentTerm() != uint64(n.epoch) || last != n.last {
		r.startAgain(n, wakeUp)
		return false
	}
	r.store.rest()
	n.settled.Store(true)
	r.announce()
	return true
}

// serveSleep answers a request about sleep.
func (m *Mux) serveSleep(id groupID, from string, body []byte, reply func([][]byte, error)) {
	yes := byte(0)
	if r := m.watch.replica(id); r != nil && r.answerSleep(from, body) {
		yes = 1
	}
	reply([][]byte{{yes}}, nil)
}

// confirmed asks a quorum whether the partition still sleeps, with this replica
// as its leader. While one does, no leader of a later epoch can have been
// elected before the question, so nothing lies above this high watermark that
// was acknowledged by then.
func (r *Replica) confirmed(ctx context.Context, n *nap) bool {
	if n == nil || n.leader != r.cfg.Node || !n.settled.Load() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.ElectionTimeout)
	defer cancel()
	return r.ask(ctx, n, opConfirm, 0, len(n.voters)/2, n.voters) && r.nap.Load() == n
}

// handDown has another replica take over from this one, which sleeps and closes.
func (r *Replica) handDown(n *nap) {
	ctx, cancel := context.WithTimeout(context.Background(), r.cfg.ElectionTimeout/4)
	defer cancel()
	for _, node := range n.voters {
		if node != r.cfg.Node && r.ask(ctx, n, opRouse, 0, 1, []string{node}) {
			return
		}
	}
}
