package replica

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/transport"
)

// watch takes the place of heartbeats for the groups of a node that sleep. Every
// now and then a node asks each node that leads some of them whether it still
// does: for all of them with one number. When the numbers differ it sends the
// list, and what is not on both sides wakes up. So a group that sleeps on one
// node and not on another does not stay so.
//
//	watch:  20 zero bytes | kind u8 | groups u32 | sum u64; answered with same u8
//	roll:   20 zero bytes | kind u8 | groups u32 | groups × (group 20 bytes | epoch u64);
//	        answered with groups u32 | groups × group, those that do not sleep there
//
// Who follows wakes up when the leader's node has not said yes for as long as an
// awake replica waits for a heartbeat, and stands for election. Who leads wakes
// up when it has not been asked for that long by nodes enough for a quorum: it
// may be cut off, and must not pass for the leader any more.
//
// It owns one goroutine, once there is a replica, and those that put replicas to
// sleep.
type watch struct {
	mux   *Mux
	turns chan struct{} // holds one for each replica that is being put to sleep
	wakes chan struct{} // holds one for each that wakes up because of silence
	wg    sync.WaitGroup

	mu       sync.Mutex // guards what follows
	replicas map[groupID]*Replica
	every    time.Duration       // a quarter of the shortest election timeout; 0 before there is a replica
	led      map[string]*contact // with nodes that lead what sleeps here
	followed map[string]*contact // with nodes where what this one leads sleeps
	asking   map[string]bool     // nodes that have not answered yet
}

// contact is what is known of another node.
type contact struct {
	at     time.Time // when it was known to live
	missed int       // looks since then
}

// enoughMissed looks tell silence from a process that stood still.
const enoughMissed = 3

// silent tells whether the other side of n has been silent for longer than limit.
func (c *contact) silent(n *nap, now time.Time, limit time.Duration) bool {
	if c == nil {
		return now.Sub(n.since) > limit
	}
	return now.Sub(later(n.since, c.at)) > limit && c.missed >= enoughMissed
}

// of returns the contact with a node. The watch's lock is held.
func of(contacts map[string]*contact, node string) *contact {
	c := contacts[node]
	if c == nil {
		c = &contact{}
		contacts[node] = c
	}
	return c
}

func newWatch(m *Mux) *watch {
	return &watch{
		mux: m, turns: make(chan struct{}, 16), wakes: make(chan struct{}, 16), replicas: map[groupID]*Replica{},
		led: map[string]*contact{}, followed: map[string]*contact{}, asking: map[string]bool{},
	}
}

func (w *watch) add(r *Replica) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.replicas[r.id] = r
	w.mux.news.fire()
	every := r.cfg.ElectionTimeout / 4
	if w.every == 0 {
		w.wg.Go(w.run)
		w.every = every
	}
	w.every = min(w.every, every)
}

func (w *watch) remove(r *Replica) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.replicas[r.id] == r {
		delete(w.replicas, r.id)
		w.mux.news.fire()
	}
}

func (w *watch) replica(id groupID) *Replica {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.replicas[id]
}

// asleep tells whether a group sleeps here and a message of that node is one of
// its own.
func (w *watch) asleep(id groupID, from string) bool {
	r := w.replica(id)
	if r == nil {
		return false
	}
	n := r.nap.Load()
	return n != nil && slices.Contains(n.nodes, from)
}

// rouse wakes a group that a message has come for and returns its transport,
// nil if it has ended meanwhile.
func (m *Mux) rouse(id groupID) *groupTransport {
	if r := m.watch.replica(id); r != nil {
		r.wake(r.nap.Load(), wakeUp)
	}
	return m.group(id)
}

// enter takes a turn in putting a replica to sleep, if one is free.
func (w *watch) enter() bool {
	select {
	case w.turns <- struct{}{}:
		return true
	default:
		return false
	}
}

func (w *watch) leave() { <-w.turns }

// heard returns when the node of a replica that sleeps was last known to live.
func (w *watch) heard(node string, n *nap) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return later(n.since, of(w.followed, node).at)
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func (w *watch) run() {
	for {
		w.mu.Lock()
		every := w.every
		w.mu.Unlock()
		select {
		case <-time.After(every):
			w.look(time.Now())
		case <-w.mux.life.Done():
			return
		}
	}
}

// all returns the replicas on this node.
func (w *watch) all() []*Replica {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]*Replica, 0, len(w.replicas))
	for _, r := range w.replicas {
		all = append(all, r)
	}
	return all
}

// sum stands for a set of sleeping groups and their epochs.
type sum struct {
	groups uint32
	hash   uint64
}

func (s sum) with(n *nap) sum { return sum{s.groups + 1, s.hash ^ n.hash} }

// look goes through all replicas once.
func (w *watch) look(now time.Time) {
	sums := map[string]sum{} // by leader
	for _, r := range w.all() {
		n := r.nap.Load()
		switch {
		case n == nil:
			r.considerSleep(now)
		case n.leader != r.cfg.Node:
			if w.silent(n, now) && n.waking.CompareAndSwap(false, true) {
				w.wg.Go(func() { w.wakeInTurn(r, n) })
			}
			if n.settled.Load() {
				sums[n.leader] = sums[n.leader].with(n)
			}
		case !w.quorum(n, now):
			w.wg.Go(func() { r.wake(n, wakeUp) })
		}
	}
	w.mu.Lock()
	for _, c := range w.followed {
		c.missed++
	}
	w.mu.Unlock()
	for node, s := range sums {
		w.ask(node, s, now)
	}
}

// silent tells whether the leader of a group that sleeps here has been silent.
func (w *watch) silent(n *nap, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.led[n.leader].silent(n, now, n.limit)
}

// quorum tells whether nodes enough have asked for a group that this node leads.
// It is more patient than they are, who can do something about it.
func (w *watch) quorum(n *nap, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	have := 0
	for _, node := range n.voters {
		if node == n.leader || !w.followed[node].silent(n, now, 2*n.limit) {
			have++
		}
	}
	return have > len(n.voters)/2
}

// wakeInTurn wakes a group whose leader is silent, and waits until it has another.
func (w *watch) wakeInTurn(r *Replica, n *nap) {
	select {
	case w.wakes <- struct{}{}:
		defer func() { <-w.wakes }()
	case <-w.mux.life.Done():
		return
	}
	defer n.waking.Store(false)
	if !w.silent(n, time.Now()) { // it is back
		return
	}
	r.wake(n, wakeLead)
	limit := time.After(r.cfg.ElectionTimeout)
	for {
		changed := r.changed.wait()
		if leader, _ := r.Leader(); leader != "" || r.stopped() != nil {
			return
		}
		select {
		case <-changed:
		case <-limit:
			return
		case <-w.mux.life.Done():
			return
		}
	}
}

// ask asks a node whether it leads the groups that sleep here under it.
func (w *watch) ask(node string, s sum, now time.Time) {
	w.mu.Lock()
	busy := w.asking[node]
	w.asking[node] = true
	of(w.led, node).missed++
	every := w.every
	w.mu.Unlock()
	if busy {
		return
	}
	ctx, cancel := context.WithTimeout(w.mux.life, 2*every)
	req := binary.BigEndian.AppendUint32(nodeFrame(rpcWatch), s.groups)
	req = putU64(req, s.hash)
	w.mux.endpoint.Send(ctx, node, w.mux.service, [][]byte{req}, func(resp []byte, err error) {
		cancel()
		switch {
		case err != nil:
			w.answered(node, time.Time{})
		case len(resp) == 1 && resp[0] == 1:
			w.answered(node, now)
		default:
			go w.call(node, 2*every) // done must not send
		}
	})
}

// answered notes the time of a question that a node has said yes to.
func (w *watch) answered(node string, asked time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.asking, node)
	if c := of(w.led, node); asked.After(c.at) {
		c.at, c.missed = asked, 0
	}
}

// call sends a node the list of groups that sleep here under it, and wakes up
// those that it does not know to sleep.
func (w *watch) call(node string, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(w.mux.life, timeout)
	defer cancel()
	asked := time.Now()
	naps := map[groupID]*nap{}
	for _, r := range w.all() {
		if n := r.nap.Load(); n != nil && n.leader == node && n.settled.Load() {
			naps[r.id] = n
		}
	}
	req := binary.BigEndian.AppendUint32(nodeFrame(rpcRoll), uint32(len(naps)))
	for id, n := range naps {
		req = append(req, id[:]...)
		req = putU64(req, uint64(n.epoch))
	}
	resp, err := transport.Call(ctx, w.mux.endpoint, node, w.mux.service, req)
	d := decoder{b: resp}
	for k := d.u32(); k > 0 && d.err == nil && err == nil; k-- {
		id := d.group()
		if r, n := w.replica(id), naps[id]; r != nil && n != nil {
			r.wake(n, wakeUp)
		}
	}
	if err != nil || d.end() != nil {
		asked = time.Time{}
	}
	w.answered(node, asked)
}

// serve is the other side of ask and call. It does not wait.
func (w *watch) serve(from string, kind rpcKind, body []byte, reply func([][]byte, error)) {
	now := time.Now()
	d := decoder{b: body}
	count := d.u32()
	if kind == rpcWatch {
		theirs := sum{count, d.u64()}
		same := d.end() == nil && theirs == w.sumFor(from)
		if same {
			w.follow(from, now)
		}
		reply([][]byte{putFlags(nil, same, 1)}, nil)
		return
	}
	theirs := map[groupID]record.LeaderEpoch{}
	for ; count > 0 && d.err == nil; count-- {
		id := d.group()
		theirs[id] = record.LeaderEpoch(d.u64())
	}
	if err := d.end(); err != nil {
		reply(nil, err)
		return
	}
	reply([][]byte{w.compare(from, theirs, now)}, nil)
	w.follow(from, now)
}

// follow notes that a node has asked.
func (w *watch) follow(node string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := of(w.followed, node)
	c.at, c.missed = now, 0
}

// sumFor stands for the groups that sleep here, led by this node, and on that one.
func (w *watch) sumFor(node string) (s sum) {
	for _, r := range w.all() {
		if n := r.nap.Load(); n != nil && n.leader == r.cfg.Node && n.settled.Load() && slices.Contains(n.nodes, node) {
			s = s.with(n)
		}
	}
	return s
}

// compare returns which of their groups do not sleep here, encoded, and wakes
// those that sleep here and not there. What is going to sleep just now is left
// alone: it is among theirs before it is among ours.
func (w *watch) compare(node string, theirs map[groupID]record.LeaderEpoch, now time.Time) []byte {
	var gone []byte
	var count uint32
	for _, r := range w.all() {
		epoch, listed := theirs[r.id]
		delete(theirs, r.id)
		n := r.nap.Load()
		switch {
		case listed && n != nil && n.leader == r.cfg.Node && n.epoch == epoch:
		case listed && n == nil && r.hushed(epoch):
		case listed:
			gone = append(gone, r.id[:]...)
			count++
		case n != nil && n.leader == r.cfg.Node && slices.Contains(n.nodes, node) && now.Sub(n.since) > r.cfg.ElectionTimeout:
			go r.wake(n, wakeUp)
		}
	}
	for id := range theirs { // closed, or never here
		gone = append(gone, id[:]...)
		count++
	}
	return append(binary.BigEndian.AppendUint32(nil, count), gone...)
}

// hushed tells whether this replica leads in that epoch and is putting the
// others to sleep.
func (r *Replica) hushed(epoch record.LeaderEpoch) bool {
	r.mu.Lock()
	frozen := r.frozen
	r.mu.Unlock()
	_, leading := r.Leader()
	return frozen && r.leads() && leading == epoch
}

// nodeFrame begins a message that is of no group.
func nodeFrame(kind rpcKind) []byte { return append(make([]byte, groupIDSize), byte(kind)) }
