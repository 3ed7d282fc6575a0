package producer

import (
	"context"
	"sync"
)

// flush is one Flush that waits for batches.
type flush struct {
	left int
	over chan struct{}
}

func (f *flush) done() {
	if f.left--; f.left == 0 {
		close(f.over)
	}
}

// wait waits for what is left.
func (f *flush) wait(ctx context.Context) error {
	select {
	case <-f.over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Flush sends what is in the buffer without lingering and waits until every
// record sent before the call has its result and its callback has returned.
// It does not say whether they were written. Not to be called from a callback.
func (p *Producer) Flush(ctx context.Context) error {
	f := &flush{over: make(chan struct{})}
	p.mu.Lock()
	waitFor := func(b *batch) {
		b.flushes = append(b.flushes, f)
		f.left++
	}
	waitForAll := func(batches []*batch) {
		for _, b := range batches {
			if !b.finished {
				waitFor(b)
			}
			for _, o := range b.followers {
				if !o.finished {
					waitFor(o)
				}
			}
		}
	}
	for _, pt := range p.parts {
		if pt.open != nil {
			pt.seal()
			p.mark(pt)
		}
		waitForAll(pt.sealed)
		waitForAll(pt.inFlight)
	}
	for _, b := range p.callbacks.left {
		waitFor(b)
	}
	none := f.left == 0
	p.mu.Unlock()
	if none {
		return nil
	}
	return f.wait(ctx)
}

// callbacks holds the finished batches whose callbacks have not all returned,
// the one that is running first. The producer's lock guards it.
type callbacks struct {
	left []*batch
	some sync.Cond // left is not empty, or stop
	stop bool
}

func (c *callbacks) add(b *batch) {
	c.left = append(c.left, b)
	c.some.Signal()
}

// runCallbacks is the goroutine that runs the callbacks.
func (p *Producer) runCallbacks() {
	c := &p.callbacks
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		for len(c.left) == 0 {
			if c.stop {
				return
			}
			c.some.Wait()
		}
		b := c.left[0]
		p.mu.Unlock()
		b.callBack()
		p.mu.Lock()
		c.left[0] = nil
		c.left = c.left[1:]
		p.settled(b)
	}
}
