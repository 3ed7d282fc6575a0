// Package relay passes TCP connections on, and fails as networks do. Tests put
// one in front of each node.
package relay

import (
	"errors"
	"math/rand/v2"
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
	set    bool       // Target was called
	target string     // empty breaks connections
	to     faults     // of bytes on their way to the target
	back   faults     // of those on their way back
	closed bool
	conns  map[net.Conn]struct{}
}

// Side says which bytes a fault is for.
type Side int

const (
	Both Side = iota
	To        // those on their way to the target
	Back      // those on their way back
)

// faults are those of one side.
type faults struct {
	cut   bool
	delay time.Duration
	rate  float64 // how often a piece breaks its connection
}

// Listen begins to take connections at a free port of this machine. They wait for
// the first Target.
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

// Target sets where new connections go; "" breaks each at once, as a machine does on
// which nobody listens.
func (r *Relay) Target(addr string) { r.update(func() { r.target, r.set = addr, true }) }

// Cut holds bytes back until they are let go on. Nobody is told: connections stay.
func (r *Relay) Cut(s Side, cut bool) { r.fault(s, func(f *faults) { f.cut = cut }) }

// Delay lets each piece arrive d later, and those behind it.
func (r *Relay) Delay(s Side, d time.Duration) { r.fault(s, func(f *faults) { f.delay = d }) }

// Tear has pieces break their connections at random; rate is the share of those.
func (r *Relay) Tear(s Side, rate float64) { r.fault(s, func(f *faults) { f.rate = rate }) }

// Heal ends all faults. What was cut off arrives now.
func (r *Relay) Heal() { r.fault(Both, func(f *faults) { *f = faults{} }) }

func (r *Relay) fault(s Side, change func(*faults)) {
	r.update(func() {
		if s != Back {
			change(&r.to)
		}
		if s != To {
			change(&r.back)
		}
	})
}

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
	back.Go(func() { r.copy(from, to, &r.back) })
	r.copy(to, from, &r.to)
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
func (r *Relay) copy(to, from net.Conn, f *faults) {
	defer func() {
		_ = to.Close()
		_ = from.Close()
	}()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if err != nil || !r.wait(f) {
			return
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

// wait returns when a piece may go on; false when its connection is to break.
func (r *Relay) wait(f *faults) bool {
	r.mu.Lock()
	delay, rate := f.delay, f.rate
	r.mu.Unlock()
	if delay > 0 {
		time.Sleep(delay)
	}
	if rate > 0 && rand.Float64() < rate {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for f.cut && !r.closed {
		r.change.Wait()
	}
	return !r.closed
}
