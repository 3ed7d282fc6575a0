package transport

import (
	"cmp"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/quorumlog/quorumlog/record"
)

// addressBook is what a node knows of where the others are. Its methods may be
// called at once.
type addressBook struct {
	id, addr string // of this node

	mu      sync.Mutex
	entries map[string]*addresses
}

// source says who an address is from, the best first.
type source int

const (
	configured source = iota // Config.Peers
	itself                   // the node has said so
	hearsay                  // another node has
	sources
)

// addresses are where a node may be. One is used until it fails, then the next.
type addresses struct {
	of  [sources]string // "" for none
	use source
}

func newAddressBook(id, addr string, peers map[string]string) *addressBook {
	b := &addressBook{id: id, addr: addr, entries: map[string]*addresses{}}
	for peer, addr := range peers {
		if peer != id {
			b.entries[peer] = &addresses{of: [sources]string{configured: addr}}
		}
	}
	return b
}

// find returns the address to try for a node.
func (b *addressBook) find(id string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.entries[id]
	if a == nil {
		return "", fmt.Errorf("%w: nobody has said where node %q is; name it in Peers", record.ErrUnreachable, id)
	}
	return a.current(), nil
}

// current returns the address in use.
func (a *addresses) current() string {
	for a.of[a.use] == "" { // one of them is there
		a.use = (a.use + 1) % sources
	}
	return a.of[a.use]
}

// failed notes that a node was not found at an address.
func (b *addressBook) failed(id, addr string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.entries[id]; a.current() == addr {
		a.use = (a.use + 1) % sources
	}
}

// greeting returns what this node says to another. What Peers say is for this node
// alone: whoever it is about will say itself where the others find it.
func (b *addressBook) greeting(to string) hello {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := hello{from: b.id, to: to, addr: b.addr, known: map[string]string{}}
	for id, a := range b.entries {
		addr := cmp.Or(a.of[itself], a.of[hearsay])
		if id != to && addr != "" && len(h.known) < maxHello/(8*maxName) {
			h.known[id] = addr
		}
	}
	return h
}

// learn takes in what another node has said over a connection from remote, and
// returns the nodes that were not known before.
func (b *addressBook) learn(h hello, remote net.Addr) (fresh []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.note(h.from, itself, reachable(h.addr, remote))
	for id, addr := range h.known {
		if id != h.from && b.note(id, hearsay, addr) {
			fresh = append(fresh, id)
		}
	}
	return fresh
}

// note notes an address, and reports whether the node was not known before. b.mu
// is held.
func (b *addressBook) note(id string, from source, addr string) bool {
	if addr == "" || id == b.id {
		return false
	}
	a, known := b.entries[id]
	if !known {
		a = &addresses{}
		b.entries[id] = a
	}
	a.of[from] = addr
	return !known
}

// reachable returns addr, whose host is that of remote if it names none. A node
// that listens on all its addresses does not know under which the others see it.
func reachable(addr string, remote net.Addr) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || strings.Trim(port, "0") == "" {
		return ""
	}
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		return addr
	}
	host, _, err = net.SplitHostPort(remote.String())
	if err != nil {
		return ""
	}
	return net.JoinHostPort(host, port)
}
