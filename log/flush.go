package log

import (
	"fmt"
	"slices"
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
// d > 0: a power cut may take the appends of the last d, and of as long before
// as the fsync takes.
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

// maxFlushes is how many logs a Flusher syncs at once: enough for the file
// system to write several in one go, and for slow ones to leave room.
const maxFlushes = 8

// Flusher syncs logs with FlushEvery, all logs of a node with one: those of one
// interval together, so that the file system can make one write of many. One
// that is slow takes one of eight places and delays no other. It owns a
// goroutine for each log that it is syncing, at most eight, and none in between.
type Flusher struct {
	mu      sync.Mutex
	rounds  map[time.Duration]*round // by interval, the next one of each
	ready   []*Log                   // their turn has come
	running int                      // goroutines that sync
	closed  bool
	wg      sync.WaitGroup // those goroutines, and timers that have fired or will
}

// round is the logs of one interval that will be synced together, one interval
// after the first of them was appended to.
type round struct {
	timer *time.Timer
	logs  []*Log
}

// NewFlusher returns a Flusher for Config.Flusher of any number of logs.
func NewFlusher() *Flusher { return &Flusher{rounds: map[time.Duration]*round{}} }

// add has l synced within its interval. The caller holds l.mu, and says so once
// until l is synced.
func (f *Flusher) add(l *Log) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	every := time.Duration(l.cfg.Flush)
	r := f.rounds[every]
	if r == nil {
		r = &round{}
		f.rounds[every] = r
		f.wg.Add(1)
		r.timer = time.AfterFunc(every, func() { defer f.wg.Done(); f.begin(every) })
	}
	r.logs = append(r.logs, l)
}

// begin is called when a round is due.
func (f *Flusher) begin(every time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.rounds[every]
	if r == nil { // closed meanwhile
		return
	}
	delete(f.rounds, every)
	f.ready = append(f.ready, r.logs...)
	for range min(maxFlushes-f.running, len(r.logs)) {
		f.running++
		f.wg.Go(f.run)
	}
}

// run syncs logs as long as there are any whose turn has come.
func (f *Flusher) run() {
	for l := f.take(); l != nil; l = f.take() {
		l.flush()
	}
}

func (f *Flusher) take() *Log {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.ready) == 0 {
		f.running--
		return nil
	}
	l := f.ready[0]
	f.ready = slices.Delete(f.ready, 0, 1)
	return l
}

// forget takes a log out that is closed.
func (f *Flusher) forget(l *Log) {
	f.mu.Lock()
	defer f.mu.Unlock()
	is := func(o *Log) bool { return o == l }
	f.ready = slices.DeleteFunc(f.ready, is)
	if r := f.rounds[time.Duration(l.cfg.Flush)]; r != nil {
		r.logs = slices.DeleteFunc(r.logs, is)
	}
}

// Close stops syncing and waits for what is under way. Close the logs before:
// they sync what is left. It may be called twice.
func (f *Flusher) Close() {
	f.mu.Lock()
	f.closed = true
	for _, r := range f.rounds {
		if r.timer.Stop() {
			f.wg.Done()
		}
	}
	clear(f.rounds)
	f.ready = nil
	f.mu.Unlock()
	f.wg.Wait()
}

// flush is Sync for the Flusher. An error is sticky: the log has said so, and
// says it to the next Append.
func (l *Log) flush() {
	l.mu.Lock()
	l.unsynced = false
	l.mu.Unlock()
	_ = l.Sync()
}
