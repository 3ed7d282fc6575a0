package consumer

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// window is what a Run knows of one claim: which records it has handed to
// lanes, and how far they are finished. Fields are guarded by Group.mu unless
// they say otherwise.
type window struct {
	claim *claim
	lanes []lane

	flight  []*flight // oldest first; the last one may not be handed out to its end
	records int       // handed out, and not below the finished prefix
	bytes   int       // of their keys, values and headers, by the averages of their batches
	running int       // lanes with a worker on them
	turn    int       // lane for the next record without a key

	behind map[*record.Record]*lane // lanes that wait until their record is the first unfinished one
}

// flight is a batch on its way through the lanes.
type flight struct {
	batch    Batch
	handed   int          // records below are in lanes
	settled  int          // records below are counted out of the window
	finished atomic.Int32 // records below are finished; written by who finishes them
	ahead    []bool       // finished out of order; nil with one lane
	dropped  atomic.Bool  // a seek has left it behind; nothing of it counts
}

// lane is records that are handled one after the other: those of a partition,
// or, with several workers, those of some of its keys.
type lane struct {
	win    *window
	pieces []piece
	state  laneState
	timer  *time.Timer // ends the waiting

	tries  int       // of the record in front, so far; the worker's
	failed time.Time // when it failed first; the worker's
	moving *moving   // its move, if that is all there is left to do; the worker's
}

type laneState int8

const (
	laneIdle    laneState = iota // no pieces
	laneReady                    // in the queue of the workers
	laneRunning                  // a worker is on it
	laneWaiting                  // for its timer
	laneBehind                   // its record is to be moved, when those in front are finished
	laneParked                   // its claim is paused or not wanted
)

// piece is a run of records of a flight, [from, to).
type piece struct {
	in       *flight
	from, to int
}

const (
	// lanesPerWorker is how many lanes a partition has for each of several
	// workers: keys of one lane wait for each other.
	lanesPerWorker = 16
	// pieceRecords is how many records a worker takes at once, after which lanes
	// of other partitions get their turn.
	pieceRecords = 256
)

// newWindow returns an empty window.
func newWindow(c *claim, workers int) *window {
	w := &window{claim: c, behind: map[*record.Record]*lane{}}
	n := 1
	if workers > 1 {
		n = workers * lanesPerWorker
	}
	w.lanes = make([]lane, n)
	for i := range w.lanes {
		w.lanes[i].win = w
	}
	return w
}

// add takes a batch, of which nothing is in lanes yet.
func (w *window) add(b Batch) {
	f := &flight{batch: b}
	if len(w.lanes) > 1 {
		f.ahead = make([]bool, len(b.Records))
	}
	w.flight = append(w.flight, f)
}

// partial returns the flight that is not handed out to its end, or nil.
func (w *window) partial() *flight {
	if n := len(w.flight); n > 0 && w.flight[n-1].handed < len(w.flight[n-1].batch.Records) {
		return w.flight[n-1]
	}
	return nil
}

// hand moves records of the partial flight into lanes, as many as the limits
// leave room for, and returns the lanes that have something to do now.
func (w *window) hand(maxRecords, maxBytes int) (woken []*lane) {
	f := w.partial()
	if f == nil {
		return nil
	}
	from := f.handed
	for f.handed < len(f.batch.Records) && f.handed-from < pieceRecords && w.room(maxRecords, maxBytes) {
		w.records++
		w.bytes += f.batch.each
		if len(w.lanes) > 1 {
			woken = w.lanes[w.lane(&f.batch.Records[f.handed])].put(piece{f, f.handed, f.handed + 1}, woken)
		}
		f.handed++
	}
	if len(w.lanes) == 1 && f.handed > from {
		woken = w.lanes[0].put(piece{f, from, f.handed}, woken)
	}
	return woken
}

// room reports whether one more record may be handed out.
func (w *window) room(maxRecords, maxBytes int) bool {
	return w.records == 0 || w.records < maxRecords && w.bytes < maxBytes
}

func (l *lane) put(p piece, woken []*lane) []*lane {
	l.pieces = append(l.pieces, p)
	if l.state == laneIdle {
		l.state = laneReady
		woken = append(woken, l)
	}
	return woken
}

// lane returns the lane of a record: that of its key, or the next one.
func (w *window) lane(r *record.Record) int {
	if r.Key == nil {
		w.turn++
		return w.turn % len(w.lanes)
	}
	h := uint32(2166136261) // FNV-1a
	for _, b := range r.Key {
		h = (h ^ uint32(b)) * 16777619
	}
	return int(h % uint32(len(w.lanes)))
}

// size is what a record counts as, in bytes.
func size(r *record.Record) int {
	n := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}

// finish notes that record i is finished. With one lane the caller need not
// hold Group.mu: records finish in order.
func (f *flight) finish(i int) {
	if f.ahead == nil {
		f.finished.Store(int32(i + 1))
		return
	}
	f.ahead[i] = true
	n := int(f.finished.Load())
	for n < len(f.ahead) && f.ahead[n] {
		n++
	}
	f.finished.Store(int32(n))
}

// settle moves the finished prefix on and returns flights that are through.
func (w *window) settle() (through []*flight) {
	for len(w.flight) > 0 {
		f := w.flight[0]
		n := int(f.finished.Load())
		w.records -= n - f.settled
		w.bytes -= (n - f.settled) * f.batch.each
		f.settled = n
		if n < len(f.batch.Records) {
			if n > 0 {
				w.claim.done = f.batch.Records[n].Offset
			}
			return through
		}
		w.claim.done = f.batch.next
		through = append(through, f)
		w.flight = slices.Delete(w.flight, 0, 1)
	}
	return through
}

// rest returns the batches without what is finished, for the claim's queue.
func (w *window) rest() (queue []Batch) {
	w.settle()
	for _, f := range w.flight {
		b := f.batch
		b.Records = b.Records[f.settled:]
		queue = append(queue, b)
	}
	return queue
}

// drop forgets everything on its way.
func (w *window) drop() {
	for _, f := range w.flight {
		f.dropped.Store(true)
	}
	for i := range w.lanes {
		l := &w.lanes[i]
		if l.state == laneRunning {
			continue // its worker finds out
		}
		l.forget()
		l.pieces = nil
		if l.state != laneReady {
			l.stopWaiting()
			l.state = laneIdle
		}
	}
	clear(w.behind)
	w.flight, w.records, w.bytes = nil, 0, 0
}

// forget forgets what the worker knew of the record in front.
func (l *lane) forget() { l.tries, l.failed, l.moving = 0, time.Time{}, nil }

func (l *lane) stopWaiting() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}
