package producer

import (
	"container/list"
	"fmt"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

const (
	defaultDedupeAge   = 10 * time.Minute
	defaultDedupeCount = 100_000
	maxIDBytes         = 255
)

// Dedupe recognises records that are sent again from outside, say because a
// client of the caller had no answer: each carries an id in a header, and one
// whose id was written already is not written again but answered with the first
// one's place and Result.Duplicate. The zero value is off.
//
// It needs a Name, since only who holds a name knows what it has written. The
// window is one per topic, whatever the partition, and bounded by Age and Count.
// A new holder of the name reads it back from the last Count records of each
// partition before it takes a record with an id, and remembers what it finds for
// Age.
//
// A record of unknown outcome is still sent again in the background under its own
// sequence, for Age, so that the answer is there when its id comes again. Where the
// producer had to give that up, the id is refused with *record.OutcomeUnknownError
// until another record has been written to its partition; then the log tells.
//
// What it does not see: ids that other producers wrote, and a record that an
// older holder, which is still alive or whose batch is still on a network, gets
// written between the new one's reading and its first batch to that partition.
type Dedupe struct {
	// Header is the name of the header. Records without it are not looked at. An
	// id has 1 to 255 bytes.
	Header string
	// Age is how long an id is remembered. Default 10 minutes.
	Age time.Duration
	// Count is how many ids of a topic are remembered, the newest. Default 100,000.
	Count int
}

func (d Dedupe) on() bool { return d.Header != "" }

// id returns the id of r, nil when it has none.
func (d Dedupe) id(r *record.Record) ([]byte, error) {
	if !d.on() {
		return nil, nil
	}
	for i := range r.Headers {
		h := &r.Headers[i]
		if h.Key != d.Header {
			continue
		}
		if n := len(h.Value); n < 1 || n > maxIDBytes {
			return nil, fmt.Errorf("%w: the record's id in header %q has %d bytes, want 1 to %d", record.ErrInvalid, d.Header, n, maxIDBytes)
		}
		return h.Value, nil
	}
	return nil, nil
}

// known is one id in a window: on its way while batch is set, of unknown outcome
// when failure is, else written.
type known struct {
	id     string
	at     time.Time
	window *window
	place  *list.Element
	pt     *partition

	batch *batch

	offset record.Offset
	synced bool

	failure error
	number  int64         // of the batch whose outcome is unknown
	low     record.Offset // below it that batch is not
}

// window is the ids of one topic. The producer's lock guards it.
type window struct {
	Dedupe
	byID  map[string]*known
	order list.List // of *known, oldest first

	ready chan struct{} // closed when it has been read back, or cannot be
	err   error         // why it cannot
}

func newWindow(d Dedupe) *window {
	return &window{Dedupe: d, byID: make(map[string]*known), ready: make(chan struct{})}
}

// find returns what is known of an id, or nil.
func (w *window) find(id []byte, now time.Time) *known {
	w.evict(now)
	return w.byID[string(id)]
}

// add remembers a new id; what it is, is for the caller to say.
func (w *window) add(id string, pt *partition, now time.Time) *known {
	if old := w.byID[id]; old != nil { // the log may hold it twice: it was forgotten between
		w.remove(old)
	}
	k := &known{id: id, at: now, window: w, pt: pt}
	w.byID[id] = k
	k.place = w.order.PushBack(k)
	w.evict(now)
	return k
}

func (w *window) remove(k *known) {
	if w.byID[k.id] == k {
		delete(w.byID, k.id)
		w.order.Remove(k.place)
	}
}

// evict forgets what is too old or too much, up to the first that is on its way.
func (w *window) evict(now time.Time) {
	for e := w.order.Front(); e != nil; e = w.order.Front() {
		k := e.Value.(*known)
		if k.batch != nil || len(w.byID) <= w.Count && now.Sub(k.at) < w.Age {
			return
		}
		w.remove(k)
	}
}
