package transport

import (
	"math/rand/v2"
	"sync"
	"time"
)

// link is one direction between two nodes and its faults. While nothing is
// delayed it hands messages over at once; else they wait in queue, in order,
// and one timer at a time delivers them.
type link struct {
	net *Network
	way way

	mu       sync.Mutex // never held while something is delivered
	cut      bool
	held     bool // until release: what comes waits in queue, and no timer is set
	delay    time.Duration
	dropRate float64
	rng      *rand.Rand
	queue    []parcel
	timer    *time.Timer // runs deliverDue; nil until something was delayed
	busy     bool        // the timer is set or deliverDue runs: go behind the queue
}

// parcel is a message under way.
type parcel struct {
	due     time.Time
	deliver func()
}

// set changes the link's faults.
func (l *link) set(change func(*link)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
}

// carry delivers one message now or later, or swallows it.
func (l *link) carry(deliver func()) {
	l.mu.Lock()
	if l.cut || l.dropRate > 0 && l.rng.Float64() < l.dropRate {
		l.mu.Unlock()
		return
	}
	if l.delay == 0 && !l.busy {
		l.mu.Unlock()
		deliver()
		return
	}
	defer l.mu.Unlock()
	l.queue = append(l.queue, parcel{time.Now().Add(l.delay), deliver})
	if !l.busy && !l.held {
		l.busy = true
		l.wake(l.delay)
	}
}

// wake sets the timer. l.mu is held.
func (l *link) wake(in time.Duration) {
	if l.timer == nil {
		l.timer = time.AfterFunc(in, l.deliverDue)
		return
	}
	l.timer.Reset(in)
}

// deliverDue delivers what has waited long enough and sets the timer for the
// rest. A cut swallows also what was sent before it.
func (l *link) deliverDue() {
	for {
		p, ok := l.pop()
		if !ok {
			return
		}
		if !l.swallows() {
			p.deliver()
		}
	}
}

// pop takes the first message if it is due. If not, it either sets the timer
// for it or, with an empty queue, lets the link be direct again.
func (l *link) pop() (parcel, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held { // release sets the timer
		return parcel{}, false
	}
	if len(l.queue) == 0 {
		l.queue, l.busy = nil, false
		return parcel{}, false
	}
	p := l.queue[0]
	if wait := time.Until(p.due); wait > 0 {
		l.wake(wait)
		return parcel{}, false
	}
	l.queue[0] = parcel{}
	l.queue = l.queue[1:]
	return p, true
}

// swallows reports whether the two ends are cut off from each other.
func (l *link) swallows() bool {
	l.net.mu.RLock()
	isolated := l.net.isCut(l.way)
	l.net.mu.RUnlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	return isolated || l.cut
}

// release lets what was held go on.
func (l *link) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held {
		l.held = false
		l.wake(0)
	}
}

// clear throws away what is under way.
func (l *link) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = nil
	if l.held {
		return // release finds the queue empty
	}
	if l.timer != nil && l.timer.Stop() {
		l.busy = false // else deliverDue is about to find the queue empty
	}
}
