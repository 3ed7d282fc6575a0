package replica

import (
	"context"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// How producers are forgotten:
//
// The idempotence state of a partition would grow with every producer that ever
// wrote to it. So the leader decides now and then that producers whose last batch
// lies below some offset are forgotten, and writes that down as a command: all
// replicas forget the same at the same place of the log, whatever their clocks
// and configurations say. Records' times play no part, so a producer with a wrong
// clock neither loses its state nor keeps it.
//
// A producer that was forgotten and comes back is told so (record.OutOfOrderError,
// Unknown) unless its batch has sequence 0. It goes on with a new identity, as
// package producer does by itself; a batch it had no answer for is in doubt.

// marksPerExpiry is how finely age is measured: a producer is forgotten when it
// has not written for ProducerExpiry, or up to an eighth longer.
const marksPerExpiry = 8

// mark says that offset was the high watermark at a time.
type mark struct {
	at     time.Time
	offset record.Offset
}

// forgetting is what a replica notes to decide on producers. Replica.mu guards it.
type forgetting struct {
	// marks are an eighth of ProducerExpiry apart, oldest first; only the first may
	// be older than that. A restart loses them, which only delays.
	marks   []mark
	below   record.Offset // producers that wrote last below it are forgotten
	pending bool          // a command is on its way
}

// note takes the high watermark of this moment.
func (f *forgetting) note(now time.Time, high record.Offset, expiry time.Duration) {
	if n := len(f.marks); n == 0 || now.Sub(f.marks[n-1].at) >= expiry/marksPerExpiry {
		f.marks = append(f.marks, mark{now, high})
	}
	for len(f.marks) > 1 && now.Sub(f.marks[1].at) >= expiry {
		f.marks = f.marks[1:]
	}
}

// expired returns the offset below which no producer's last batch should lie.
func (f *forgetting) expired(now time.Time, expiry time.Duration) record.Offset {
	if len(f.marks) == 0 || now.Sub(f.marks[0].at) < expiry {
		return 0
	}
	return f.marks[0].offset
}

// watchProducers looks whether there are producers to forget, as the high watermark
// has moved; a partition that nobody writes to keeps what it has. r.mu is held.
func (r *Replica) watchProducers(now time.Time) {
	f, expiry := &r.forgetting, r.cfg.ProducerExpiry
	f.note(now, record.Offset(r.high.Load()), expiry)
	if (len(r.producers) > r.cfg.MaxProducers || f.expired(now, expiry) > f.below) && !f.pending && r.leads() {
		r.want(choreForget)
	}
}

// forgetProducers proposes to forget those that are too old or too many.
func (r *Replica) forgetProducers() {
	r.mu.Lock()
	f, high := &r.forgetting, record.Offset(r.high.Load())
	offset := f.expired(time.Now(), r.cfg.ProducerExpiry)
	if len(r.producers) > r.cfg.MaxProducers {
		offset = max(offset, r.producers.oldest(len(r.producers)-r.cfg.MaxProducers*7/8, high, r.transactions.open))
	}
	if f.pending || !r.producers.endBelow(offset, high, r.transactions.open) {
		f.below = max(f.below, offset)
		r.mu.Unlock()
		return
	}
	f.pending = true
	r.mu.Unlock()
	r.submit(context.Background(), &proposal{data: command{commandForget, offset}.encode()}, func(_ record.Appended, err error) {
		if err != nil { // the next write asks again
			r.mu.Lock()
			f.pending = false
			r.mu.Unlock()
		}
	})
}
