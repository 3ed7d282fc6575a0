package log

import (
	"sync"
	"time"
)

// maxStep is how far a clock may be set ahead and be believed at once. It is
// far more than a time server corrects, and far less than what is retained.
const maxStep = time.Hour

// watch is the time by which retention reckons ages: the wall clock, unless that
// is set far ahead of what the monotonic clock allows. See Retention.
type watch struct {
	read  func() (wall time.Time, elapsed time.Duration)
	floor time.Time // a clock that says less than this is behind

	mu sync.Mutex // guards what follows
	// What the wall clock said when it was last in step, and the monotonic one then.
	wall    time.Time
	elapsed time.Duration
	ahead   bool // the wall clock is not believed
}

func newWatch(now func() time.Time) *watch {
	began := now()
	return &watch{
		wall: began.Round(0),
		read: func() (time.Time, time.Duration) { t := now(); return t.Round(0), t.Sub(began) },
	}
}

// now returns the time. ahead is by how much the wall clock says more than that;
// it is told once.
func (w *watch) now() (now time.Time, ahead time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wall, elapsed := w.read()
	expected := w.wall.Add(elapsed - w.elapsed)
	step := wall.Sub(expected)
	if step > maxStep && !expected.Before(w.floor) {
		if !w.ahead {
			ahead = step
		}
		w.ahead = true
		return expected, ahead
	}
	if step >= -maxStep { // one that was set back may be set right again, so what it said before still counts
		w.wall, w.elapsed = wall, elapsed
	}
	w.ahead = false
	return wall, 0
}

// retentionTime returns the time by which keep is applied.
func (l *Log) retentionTime(keep Retention) time.Time {
	now, ahead := l.watch.now()
	if ahead > 0 && keep.MaxAge > 0 {
		l.cfg.Logger.Warn("the clock was set ahead; ages are counted on from before until it is set back or the log is opened again",
			"dir", l.dir, "ahead", ahead, "counted", now)
	}
	return now
}
