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

// Heal ends every fault: cuts, isolation, delays and drops. What a fault has
// swallowed stays lost.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.isolated)
	for _, l := range n.links {
		l.set(func(l *link) { l.cut, l.delay, l.dropRate = false, 0, 0 })
	}
}

// fault changes the faults of one link.
func (n *Network) fault(w way, change func(*link)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.links[w]
	if l == nil {
		l = &link{net: n, way: w, rng: w.rng(n.seed)}
		n.links[w] = l
	}
	l.set(change)
}

// rng returns the source of a link's random choices.
func (w way) rng(seed uint64) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(w.from + "\x00" + w.to)) // a hash's Write returns no error
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}
