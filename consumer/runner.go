package consumer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// runner is one [Group.Run]. The caller's goroutine dispatches; the runner owns
// the workers and the goroutine that commits, and ends them before Run returns.
//
//	claim.queue -> dispatch -> lanes of the claim's window -> workers
//	                                     finished prefix   -> commits
//
// A lane is the unit of order: one worker at a time is on it, and one that waits
// for its next try keeps no worker. Fields are guarded by Group.mu unless they
// say otherwise.
type runner struct {
	g      *Group
	handle Handler
	ctx    context.Context // of the handlers
	store  context.Context // of commits and moves; ends a session timeout after ctx

	atomic AtomicMover // nil: append, then commit

	wg       sync.WaitGroup
	ready    []*lane
	waiting  map[*lane]bool // their timers are to be stopped
	serving  []progress     // of each worker
	work     *sync.Cond     // on Group.mu: ready has grown, or stopping
	stopping bool
	stop     atomic.Bool // stopping, for workers between two records
	err      error       // why

	dirty     chan struct{} // capacity 1: there may be something to commit
	unsaved   atomic.Bool   // dirty was signalled since the last look
	endCommit chan struct{} // closed when the workers have ended
	ended     chan struct{} // closed when the run is over
}

func newRunner(ctx, store context.Context, g *Group, handle Handler) *runner {
	return &runner{
		g: g, handle: handle, ctx: ctx, store: store, atomic: g.atomicMover(),
		waiting: map[*lane]bool{}, serving: make([]progress, g.cfg.Workers),
		work:  sync.NewCond(&g.mu),
		dirty: make(chan struct{}, 1), endCommit: make(chan struct{}), ended: make(chan struct{}),
	}
}

// run returns when something has ended it, with what is finished committed and
// the rest back in the queues.
func (r *runner) run() error {
	var committer sync.WaitGroup
	committer.Go(r.commits)
	for i := range r.serving {
		r.wg.Go(func() { r.worker(&r.serving[i]) })
	}
	r.end(r.dispatch())
	r.wg.Wait()
	close(r.endCommit)
	committer.Wait()
	err := r.commitAll(true)
	r.g.mu.Lock()
	r.putBack()
	why := r.err
	r.g.mu.Unlock()
	if err != nil {
		why = errors.Join(why, err)
	}
	return why
}

// end has everything stop after the records under way. The first reason counts.
func (r *runner) end(err error) {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	r.halt(err)
}

// halt is end under Group.mu.
func (r *runner) halt(err error) {
	if r.stopping {
		return
	}
	r.stopping, r.err = true, err
	r.stop.Store(true)
	for l := range r.waiting {
		l.stopWaiting()
	}
	r.work.Broadcast()
	signal(r.g.wake)
}

// putBack gives what is not finished back to the queues.
func (r *runner) putBack() {
	for _, c := range r.g.ring {
		if c.win == nil {
			continue
		}
		c.queue = append(c.win.rest(), c.queue...)
		c.win = nil
	}
	signal(r.g.tidy)
	signal(r.g.wake)
}

// dispatch hands records to lanes until the run is to end, and returns why.
func (r *runner) dispatch() error {
	g := r.g
	for {
		select {
		case <-g.closing:
			return g.closedError()
		case <-r.ctx.Done():
			return r.ctx.Err()
		default:
		}
		more, err := r.step()
		if err != nil {
			return err
		}
		if more {
			continue
		}
		select {
		case <-g.wake:
		case <-g.closing:
		case <-r.ctx.Done():
		}
	}
}

// step hands out one piece of each claim that has room, and reports whether
// there may be more to do at once.
func (r *runner) step() (more bool, err error) {
	g := r.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.stopping {
		return false, r.err
	}
	if g.err != nil {
		return false, g.err
	}
	for i := range g.ring {
		c := g.ring[(g.turn+i)%len(g.ring)]
		if !c.ready || c.halted() || c.fenced { // fenced: somebody else has it, the session is about to hear
			continue
		}
		if c.win != nil {
			r.unpark(c.win)
		}
		if c.win == nil || c.win.partial() == nil {
			switch {
			case len(c.queue) > 0:
				if c.win != nil && !c.win.room(g.cfg.MaxInFlight, g.cfg.MaxInFlightBytes) {
					continue
				}
				g.turn = (g.turn + i) % len(g.ring)
				if err := r.take(c); err != nil {
					return false, err
				}
				return true, nil // Group.mu was free meanwhile: begin anew
			case c.err != nil && (c.win == nil || len(c.win.flight) == 0):
				g.turn = (g.turn + i + 1) % len(g.ring)
				return false, c.err
			default:
				continue
			}
		}
		woken := c.win.hand(g.cfg.MaxInFlight, g.cfg.MaxInFlightBytes)
		more = more || c.win.partial() != nil && c.win.room(g.cfg.MaxInFlight, g.cfg.MaxInFlightBytes)
		more = more || c.win.partial() == nil && len(c.queue) > 0 && c.win.room(g.cfg.MaxInFlight, g.cfg.MaxInFlightBytes)
		for _, l := range woken {
			r.push(l)
		}
	}
	return more, nil
}

// take brings the next batch of a claim into its window, for which Group.mu is
// given away meanwhile. With OnReceipt it is committed first.
func (r *runner) take(c *claim) error {
	g := r.g
	b, era := c.queue[0], c.era
	c.queue = slices.Delete(c.queue, 0, 1)
	signal(c.space)
	c.taking = true // not to be given up now
	defer func() {
		c.taking = false
		signal(g.tidy)
	}()
	g.mu.Unlock()
	err := g.unpack(&b)
	g.mu.Lock()
	switch {
	case err != nil:
		return place(c.tp, err)
	case len(b.Records) == 0, g.claims[c.tp] != c, c.era != era:
		return nil
	case c.halted():
		c.queue = slices.Insert(c.queue, 0, b)
		return nil
	}
	if c.win == nil {
		c.win = newWindow(c, g.cfg.Workers)
		c.done = b.Records[0].Offset
		if c.stored == record.NoOffset || g.cfg.Commit != ByHand {
			c.stored = c.done
		}
	}
	c.win.add(b)
	if g.cfg.Commit != OnReceipt {
		return nil
	}
	g.mu.Unlock()
	err = r.save([]saving{{c, b.next, era}}, false)
	g.mu.Lock()
	if c.era == era && c.stored < b.next { // not committed, so not to be handled
		c.win.flight = c.win.flight[:len(c.win.flight)-1]
		c.queue = slices.Insert(c.queue, 0, b)
	}
	return err
}

// unpark readies the lanes whose claim may go on again.
func (r *runner) unpark(w *window) {
	for i := range w.lanes {
		if l := &w.lanes[i]; l.state == laneParked {
			r.resume(l)
		}
	}
}

// resume readies a lane that is neither ready nor running.
func (r *runner) resume(l *lane) {
	l.state = laneIdle
	if len(l.pieces) > 0 {
		l.state = laneReady
		r.push(l)
	}
}

// push queues a lane that is ready.
func (r *runner) push(l *lane) {
	r.ready = append(r.ready, l)
	r.work.Signal()
}

// worker serves one lane after the other, and notes in at which one.
func (r *runner) worker(at *progress) {
	g := r.g
	ok := false
	defer func() {
		if !ok { // runtime.Goexit in the handler, which nothing can hold up
			r.end(errGoexit)
		}
	}()
	g.mu.Lock()
	for {
		l := r.next()
		if l == nil {
			g.mu.Unlock()
			ok = true
			return
		}
		*at = progress{lane: l}
		p := l.pieces[0]
		g.mu.Unlock()
		end, v := r.serve(l, p)
		g.mu.Lock()
		*at = progress{}
		r.served(l, end, v)
	}
}

var errGoexit = errors.New("the handler ended its goroutine (runtime.Goexit); return from it instead")

// next waits for a lane that may run and marks it; nil when the run is to end.
func (r *runner) next() *lane {
	for {
		if r.stopping {
			return nil
		}
		if len(r.ready) == 0 {
			r.work.Wait()
			continue
		}
		l := r.ready[0]
		r.ready = r.ready[1:]
		switch {
		case len(l.pieces) == 0:
			l.state = laneIdle
		case l.win.claim.halted():
			l.state = laneParked
		default:
			l.state = laneRunning
			l.win.running++
			return l
		}
	}
}

// verdict is why a worker leaves a lane.
type verdict struct {
	wait   time.Duration // > 0: the record in front is tried again so much later
	behind bool          // the record in front is to be moved when those before it are finished
	err    error         // the run is to end
}

// serve handles the records of a piece until one is to wait, the claim may not
// go on, or the run is to end. It returns the first record that is not finished.
func (r *runner) serve(l *lane, p piece) (int, verdict) {
	each := r.g.cfg.Commit == EachRecord
	for i := p.from; i < p.to; i++ {
		if r.stop.Load() || r.ctx.Err() != nil || p.in.dropped.Load() || l.win.claim.halted() {
			return i, verdict{}
		}
		if v, done := r.deal(l, &p.in.batch.Records[i]); !done {
			return i, v
		}
		r.finish(p.in, i)
		if each {
			if err := r.commitOf(l.win.claim); err != nil {
				return i + 1, verdict{err: err}
			}
		}
	}
	return p.to, verdict{}
}

// finish notes that a record is finished, and that a commit may be due.
func (r *runner) finish(f *flight, i int) {
	if f.ahead == nil {
		f.finish(i)
	} else {
		r.g.mu.Lock()
		f.finish(i)
		r.g.mu.Unlock()
	}
	if !r.unsaved.Load() && r.g.cfg.Commit == AfterHandler {
		r.unsaved.Store(true)
		signal(r.dirty)
	}
}

// served puts the lane away as far as at. Group.mu is held.
func (r *runner) served(l *lane, at int, v verdict) {
	w := l.win
	w.running--
	switch p := &l.pieces[0]; {
	case p.in.dropped.Load():
		l.forget()
		v.behind = false
		l.pieces = slices.DeleteFunc(l.pieces, func(p piece) bool { return p.in.dropped.Load() })
	case at == p.to:
		l.pieces = l.pieces[1:]
	default:
		p.from = at
	}
	r.g.recycle(w.settle())
	switch {
	case len(l.pieces) == 0:
		l.state = laneIdle
	case v.wait > 0 && !r.stopping:
		r.wait(l, v.wait)
	case v.behind:
		w.stayBehind(l)
	default:
		r.resume(l)
	}
	r.wakeHead(w)
	if v.err != nil {
		r.halt(v.err)
	}
	if w.claim.halted() && w.running == 0 {
		signal(r.dirty) // its partition may be waiting to move
		signal(r.g.tidy)
	}
	signal(r.g.wake) // there may be room
}

// wait has the lane come back after d.
func (r *runner) wait(l *lane, d time.Duration) {
	l.state = laneWaiting
	r.waiting[l] = true
	var t *time.Timer
	t = time.AfterFunc(d, func() {
		r.g.mu.Lock()
		defer r.g.mu.Unlock()
		if l.timer != t {
			return // stopped too late
		}
		l.timer = nil
		delete(r.waiting, l)
		r.resume(l)
	})
	l.timer = t
}
