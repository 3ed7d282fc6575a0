// Package relay passes TCP connections on, and fails as networks do. Tests put
// one in front of each node.
package relay

import (
	"errors"
	"net"
	"sync"
	"time"
)

// Relay takes connections at its address and passes them on to a target. Its
// methods may be called at once.
type Relay struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex
	change *sync.Cond // on mu: any of the fields below, but conns
	set    bool       // To was called
	target string     // empty breaks connections
	cut    bool
	delay  time.Duration
	closed bool
	conns  map[net.Conn]struct{}
}

// Listen begins to take connections at a free port of this machine. They wait for
// the first To.
func Listen() (*Relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Relay{listener: l, conns: map[net.Conn]struct{}{}}
	r.change = sync.NewCond(&r.mu)
	r.wg.Go(r.accept)
	return r, nil
}

// Addr returns the address to connect to.
func (r *Relay) Addr() string { return r.listener.Addr().String() }

// To sets where new connections go; "" breaks each at once, as a machine does on
// which nobody listens.
func (r *Relay) To(addr string) { r.update(func() { r.target, r.set = addr, true }) }

// Cut swallows all bytes until Heal. Nobody is told: connections stay.
func (r *Relay) Cut() { r.update(func() { r.cut = true }) }

// Delay lets bytes arrive d later.
func (r *Relay) Delay(d time.Duration) { r.update(func() { r.delay = d }) }

// Heal ends cuts and delays. What was in a cut arrives now.
func (r *Relay) Heal() { r.update(func() { r.cut, r.delay = false, 0 }) }

func (r *Relay) update(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	r.change.Broadcast()
}

// Break closes the connections that there are.
func (r *Relay) Break() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		_ = c.Close() // whoever copies finds it closed
	}
}

// Close ends everything.
func (r *Relay) Close() error {
	r.update(func() { r.closed = true })
	err := r.listener.Close()
	r.Break()
	r.wg.Wait()
	return err
}

func (r *Relay) accept() {
	for {
		from, err := r.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			r.wg.Go(func() { r.pass(from) })
		}
	}
}

// pass connects one connection with the target until either side ends it.
func (r *Relay) pass(from net.Conn) {
	if !r.add(from) {
		return
	}
	defer r.drop(from)
	r.mu.Lock()
	for !r.set && !r.closed {
		r.change.Wait()
	}
	target := r.target
	r.mu.Unlock()
	if target == "" {
		return
	}
	to, err := net.Dial("tcp", target)
	if err != nil || !r.add(to) {
		return
	}
	defer r.drop(to)
	var back sync.WaitGroup
	back.Go(func() { r.copy(from, to) })
	r.copy(to, from)
	back.Wait()
}

// add has Break close c, which is closed at once if the relay is.
func (r *Relay) add(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		_ = c.Close()
		return false
	}
	r.conns[c] = struct{}{}
	return true
}

func (r *Relay) drop(c net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = c.Close()
	delete(r.conns, c)
}

// copy copies until either end breaks, then breaks the other.
func (r *Relay) copy(to, from net.Conn) {
	defer func() {
		_ = to.Close()
		_ = from.Close()
	}()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if err != nil || !r.wait() {
			return
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

// wait returns when bytes may go on; false when the relay has closed.
func (r *Relay) wait() bool {
	r.mu.Lock()
	delay := r.delay
	r.mu.Unlock()
	if delay > 0 {
		time.Sleep(delay)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.cut && !r.closed {
		r.change.Wait()
	}
	return !r.closed
}
