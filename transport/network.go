package transport

import (
	"errors"
	"fmt"
	"sync"

	"github.com/quorumlog/quorumlog/record"
)

// ErrNodeTaken says that a node of that name is part of the network already.
var ErrNodeTaken = errors.New("node id is taken")

// Network connects nodes that live in one process, without a port. Make one
// with NewNetwork and let each node Join it. It starts without faults; see Cut,
// CutOneWay, Isolate, Pause, Delay, Drop and Heal. Its methods may be called at once.
//
// What a link carries are requests, and the answers to requests that came the
// other way. Without a delay a message is handed over on the goroutine that
// sends it: handlers and done functions run below Send and below reply, so a
// caller must hold no lock there that they need. A network owns no goroutine;
// what is delayed waits in a timer, and is dropped when either node leaves.
type Network struct {
	mu       sync.RWMutex
	nodes    map[string]*endpoint
	links    map[way]*link   // only links that have, or had, a fault
	isolated map[string]bool // nodes cut off from all others
	paused   map[string]bool // nodes that neither send nor receive for now
	seed     uint64
}

// way is the direction of a link.
type way struct{ from, to string }

// NewNetwork returns a network without nodes and without faults.
func NewNetwork() *Network {
	return &Network{
		nodes:    make(map[string]*endpoint),
		links:    make(map[way]*link),
		isolated: make(map[string]bool),
		paused:   make(map[string]bool),
	}
}

// Join attaches a node until its endpoint is closed; after that the id is free
// again. It fails with ErrNodeTaken while another node has the id, and with
// record.ErrInvalid when the id is empty.
func (n *Network) Join(id string) (Endpoint, error) {
	e, err := n.join(id)
	if err != nil {
		return nil, err
	}
	return e, nil
}

func (n *Network) join(id string) (*endpoint, error) {
	if id == "" {
		return nil, fmt.Errorf("%w: a node needs an id to join a network", record.ErrInvalid)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.nodes[id] != nil {
		return nil, fmt.Errorf("%w: node %q is in this network already; close it first or use another id", ErrNodeTaken, id)
	}
	e := &endpoint{
		id:       id,
		net:      n,
		handlers: make(map[Service]Handler),
		sharers:  make(map[Service]SharedHandler),
		calls:    make(map[*call]struct{}),
	}
	n.nodes[id] = e
	return e, nil
}

// node returns the endpoint that has the id now, or nil.
func (n *Network) node(id string) *endpoint {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.nodes[id]
}

// leave detaches e and throws away what is under way from and to it, so that
// a later node of the same id never gets a message of this one.
func (n *Network) leave(e *endpoint) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.nodes, e.id)
	for w, l := range n.links {
		if w.from == e.id || w.to == e.id {
			l.clear()
		}
	}
}

// carry brings one message over the link, by calling deliver at once, later,
// or, when a fault swallows it, never.
func (n *Network) carry(w way, deliver func()) {
	n.mu.RLock()
	l, cut, paused := n.links[w], n.isCut(w), n.isPaused(w)
	n.mu.RUnlock()
	switch {
	case cut:
	case paused:
		n.hold(w, deliver)
	case l == nil:
		deliver()
	default:
		l.carry(deliver)
	}
}

// isCut reports whether isolation separates the two ends. n.mu is held.
func (n *Network) isCut(w way) bool {
	return w.from != w.to && (n.isolated[w.from] || n.isolated[w.to])
}

// isPaused reports whether messages on the link wait. n.mu is held.
func (n *Network) isPaused(w way) bool {
	return w.from != w.to && (n.paused[w.from] || n.paused[w.to])
}
