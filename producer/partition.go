package producer

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

const (
	// A partition waits between firstBackoff and lastBackoff, doubled with each
	// failure, before it tries again: an election takes a few hundred milliseconds.
	firstBackoff = 10 * time.Millisecond
	lastBackoff  = 500 * time.Millisecond

	// provenFor is how long after a success a leader is trusted to know the
	// sequences of this producer. Leaders forget idle producers, after a day.
	provenFor = 10 * time.Minute
)

// partition holds the batches of one partition, oldest first: those in flight,
// those sealed, the open one. The producer's lock guards it.
type partition struct {
	tp    record.TopicPartition
	topic *topic

	open     *batch // takes records; nil when there is none
	sealed   []*batch
	inFlight []*batch // in sequence order; a failed one stays until it is settled
	flying   int      // how many of them have no answer yet
	retries  int      // the last so many of them failed and wait to be sent again

	sent   int64         // number of the last batch that was given one
	acked  int64         // the highest number of one that is known to be written
	next   record.Offset // behind that one
	ident  *identity     // nil: take the producer's current one, and begin at sequence 0
	seq    record.Sequence
	proven time.Time // last success under ident; zero: send one batch alone

	failing   bool // a try failed: nothing is sent until nothing flies
	failures  int  // since the last success
	retryAt   time.Time
	lastError error

	queued  bool // in Producer.queue
	crowded bool // in Producer.crowd
}

// waiting reports whether something waits to be sent.
func (pt *partition) waiting() bool {
	return pt.open != nil || len(pt.sealed) > 0 || pt.retries > 0
}

// idle reports whether there is nothing to do and nothing to wait for.
func (pt *partition) idle() bool {
	return !pt.waiting() && len(pt.inFlight) == 0
}

// seal closes the open batch.
func (pt *partition) seal() {
	pt.sealed = append(pt.sealed, pt.open)
	pt.open = nil
}

// remove takes b out of wherever it waits.
func (pt *partition) remove(b *batch) {
	if pt.open == b {
		pt.open = nil
	}
	is := func(o *batch) bool { return o == b }
	pt.sealed = slices.DeleteFunc(pt.sealed, is)
	pt.inFlight = slices.DeleteFunc(pt.inFlight, is)
}

// backOff puts off the next try.
func (pt *partition) backOff(now time.Time) {
	d := min(firstBackoff<<min(pt.failures, 10), lastBackoff)
	pt.failures++
	pt.retryAt = now.Add(d/2 + rand.N(d/2))
}

// nextEvent returns when pt needs attention though nothing else happens; zero
// for never.
func (pt *partition) nextEvent(now time.Time) time.Time {
	var at time.Time
	sooner := func(t time.Time) {
		if t.After(now) && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	for _, b := range pt.inFlight {
		if !b.finished {
			sooner(b.deadline)
			break // the others are younger
		}
		if b.doubt {
			sooner(b.doubtUntil)
			for _, f := range b.followers {
				sooner(f.deadline)
			}
		}
	}
	if len(pt.sealed) > 0 {
		sooner(pt.sealed[0].deadline)
	}
	if pt.open != nil {
		sooner(pt.open.deadline)
		sooner(pt.open.lingerUntil)
	}
	sooner(pt.retryAt)
	return at
}
