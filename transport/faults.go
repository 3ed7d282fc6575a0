package transport

import (
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// Cut swallows every message between a and b, in both directions, until Heal.
// The one who sends learns nothing: its call waits until its context ends or
// one of the two nodes closes. Nodes need not have joined yet.
func (n *Network) Cut(a, b string) {
	n.CutOneWay(a, b)
	n.CutOneWay(b, a)
}

// CutOneWay swallows every message that goes from one node to another, until
// Heal: its requests, and its answers to the other's requests.
func (n *Network) CutOneWay(from, to string) {
	n.fault(way{from, to}, func(l *link) { l.cut = true })
}

// Isolate cuts a node off from all others, also from those that join later,
// until Heal. It still reaches itself.
func (n *Network) Isolate(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.isolated[id] = true
}

// Pause holds every message from and to a node, in order, until Resume or Heal,
// and delivers them then. The node still reaches itself; what happens inside it
// goes on.
func (n *Network) Pause(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.paused[id] = true
	for w, l := range n.links {
		if n.isPaused(w) { // what is delayed waits too
			l.set(func(l *link) { l.held, l.busy = true, true })
		}
	}
}

// Resume ends a pause. What was held arrives now, unless its link was cut meanwhile.
func (n *Network) Resume(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.paused, id)
	n.release()
}

// hold keeps a message until neither end of its link is paused.
func (n *Network) hold(w way, deliver func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.link(w)
	l.set(func(l *link) {
		l.held, l.busy = true, true
		l.queue = append(l.queue, parcel{time.Now().Add(l.delay), deliver})
	})
	n.release() // the pause may have ended a moment ago
}

// release lets links go on whose ends are not paused. n.mu is held.
func (n *Network) release() {
	for w, l := range n.links {
		if !n.isPaused(w) {
			l.release()
		}
	}
}

// Delay lets every message from one node to another arrive d later, in the
// order they were sent. Zero ends the delay; what is under way keeps its time,
// and what is sent after it stays behind it.
func (n *Network) Delay(from, to string, d time.Duration) {
	n.fault(way{from, to}, func(l *link) { l.delay = max(d, 0) })
}

// Drop swallows messages from one node to another at random; rate is the share
// of them, between 0 (none) and 1 (all). Which ones is decided by SetSeed.
func (n *Network) Drop(from, to string, rate float64) {
	n.fault(way{from, to}, func(l *link) { l.dropRate = rate })
}

// SetSeed starts the random choices of Drop anew. Links choose independently
// of each other: the same seed and the same messages on a link give the same
// losses on it. The seed of a new network is 0.
func (n *Network) SetSeed(seed uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seed = seed
	for w, l := range n.links {
		l.set(func(l *link) { l.rng = w.rng(seed) })
	}
}

// Heal ends every fault: cuts, isolation, pauses, delays and drops. What a fault has
// swallowed stays lost.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.isolated)
	clear(n.paused)
	for _, l := range n.links {
		l.set(func(l *link) { l.cut, l.delay, l.dropRate = false, 0, 0 })
	}
	n.release()
}

// fault changes the faults of one link.
func (n *Network) fault(w way, change func(*link)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.link(w).set(change)
}

// link returns a link, which is made if it had no fault so far. n.mu is held.
func (n *Network) link(w way) *link {
	l := n.links[w]
	if l == nil {
		l = &link{net: n, way: w, rng: w.rng(n.seed)}
		n.links[w] = l
	}
	return l
}

// rng returns the source of a link's random choices.
func (w way) rng(seed uint64) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(w.from + "\x00" + w.to)) // a hash's Write returns no error
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}
