package fold

import (
	"errors"
	"slices"
	"sync"

	"github.com/quorumlog/quorumlog/record"
)

// maxTogether is how many decisions are written as one batch at most.
const maxTogether = 128

// errLeft is what becomes of a decision that nobody waits for any more.
var errLeft = errors.New("nobody waits for the decision")

// proposal is one decision to be made.
type proposal struct {
	key    string // "" for one that must be alone
	decide func(record.LeaderEpoch) ([]record.Record, error)
	done   chan error // capacity 1: what became of it

	mu      sync.Mutex
	left    bool // nobody waits for it: decide must not run any more
	decided bool // decide has run
}

// run makes the decision, if somebody waits for it.
func (p *proposal) run(epoch record.LeaderEpoch) ([]record.Record, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left {
		return nil, errLeft
	}
	p.decided = true
	return p.decide(epoch)
}

// leave tells that nobody waits any more, and returns whether the decision was made.
func (p *proposal) leave() (decided bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = true
	return p.decided
}

func finish(all []*proposal, err error) {
	for _, p := range all {
		p.done <- err
	}
}

// waiters are the proposals that nobody has begun with, oldest first.
type waiters struct {
	mu     sync.Mutex
	all    []*proposal
	closed bool
}

func (w *waiters) add(p *proposal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, p)
}

func (w *waiters) remove(p *proposal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = slices.DeleteFunc(w.all, func(o *proposal) bool { return o == p })
}

// with takes p and those that can be written with it: the oldest of each other key.
// None if p was taken before.
func (w *waiters) with(p *proposal) (taken []*proposal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.all, p) {
		return nil
	}
	taken = []*proposal{p}
	if len(w.all) == 1 {
		w.all[0], w.all = nil, w.all[:0]
		return taken
	}
	keys := map[string]bool{p.key: true, "": true}
	w.all = slices.DeleteFunc(w.all, func(o *proposal) bool {
		if o == p {
			return true
		}
		if p.key == "" || keys[o.key] || len(taken) == maxTogether {
			return false
		}
		keys[o.key] = true
		taken = append(taken, o)
		return true
	})
	return taken
}

// spawn runs fn in a goroutine of wg; false when the fold has been closed.
func (w *waiters) spawn(wg *sync.WaitGroup, fn func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		wg.Go(fn)
	}
	return !w.closed
}

func (w *waiters) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}
