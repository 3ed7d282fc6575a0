package log

import (
	"fmt"
	"sync"
	"time"
)

// FlushPolicy says when appended entries are made to survive a power cut. A
// crash of the process alone loses nothing under any policy.
type FlushPolicy time.Duration

const (
	// FlushEach: Append returns after fsync. Nothing acknowledged is lost. Default.
	FlushEach FlushPolicy = 0
	// FlushNever leaves it to the operating system, except when a segment is
	// sealed. A power cut may take what was appended since.
	FlushNever FlushPolicy = -1
)

// FlushEvery returns the policy of one fsync for all that was appended within d,
// d > 0: a power cut may take the appends of the last d.
func FlushEvery(d time.Duration) FlushPolicy { return FlushPolicy(d) }

// String returns "each", "never" or "every 1s".
func (p FlushPolicy) String() string {
	switch {
	case p == FlushEach:
		return "each"
	case p < 0:
		return "never"
	}
	return fmt.Sprintf("every %v", time.Duration(p))
}

// flusher syncs for FlushEvery. It owns one goroutine, which start starts and
// stop waits for.
type flusher struct {
	dirty chan struct{} // nil with the other policies
	quit  chan struct{}
	wg    sync.WaitGroup
}

func (f *flusher) start(l *Log) {
	every := time.Duration(l.cfg.Flush)
	if every <= 0 {
		return
	}
	f.dirty, f.quit = make(chan struct{}, 1), make(chan struct{})
	f.wg.Go(func() {
		for f.next(every) {
			_ = l.Sync() // the log has said so itself, and says it to the next Append
		}
	})
}

// next waits for something to sync and then for the interval; false to stop.
func (f *flusher) next(every time.Duration) bool {
	select {
	case <-f.quit:
		return false
	case <-f.dirty:
	}
	select {
	case <-f.quit:
		return false
	case <-time.After(every):
		return true
	}
}

// wake says that something was appended.
func (f *flusher) wake() {
	select {
	case f.dirty <- struct{}{}:
	default: // known already, or nobody waits for it
	}
}

func (f *flusher) stop() {
	if f.quit != nil {
		close(f.quit)
	}
	f.wg.Wait()
}
