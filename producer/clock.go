package producer

import "time"

// clock tells the time for records that have none. To ask the system takes as long
// as the rest of a small record's way into its batch, so while many come within a
// millisecond a goroutine asks for all of them, once a millisecond or, when the
// machine is busy, a little less often. The producer's lock guards it.
type clock struct {
	ms      int64 // the last answer, since 1970
	taken   int   // records that have got it
	running bool  // tell does the asking
}

const (
	// busyRecords in a millisecond make the goroutine start, and half of them let it go on.
	busyRecords = 256
	clockTick   = time.Millisecond
)

// now returns the time in milliseconds since 1970. Called with the lock.
func (p *Producer) now() int64 {
	c := &p.clock
	if c.running {
		c.taken++
		return c.ms
	}
	if ms := time.Now().UnixMilli(); ms != c.ms {
		c.ms, c.taken = ms, 0
	}
	if c.taken++; c.taken == busyRecords && !p.closed {
		c.running, c.taken = true, 0
		p.wg.Go(p.tell)
	}
	return c.ms
}

// tell asks the system as long as it is worth it.
func (p *Producer) tell() {
	tick := time.NewTicker(clockTick)
	defer tick.Stop()
	for again := true; again; {
		select {
		case <-tick.C:
		case <-p.ctx.Done():
		}
		p.mu.Lock()
		c := &p.clock
		again = c.taken >= busyRecords/2 && p.ctx.Err() == nil
		c.ms, c.taken, c.running = time.Now().UnixMilli(), 0, again
		p.mu.Unlock()
	}
}
