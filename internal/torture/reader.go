package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/quorumlog/quorumlog/consumer"
	"github.com/quorumlog/quorumlog/record"
)

// reader reads one partition over and over, through changing nodes: it goes on
// where it was, and now and then begins anew.
type reader struct {
	who     string
	tp      record.TopicPartition
	rng     *rand.Rand
	client  *client
	history *history
	cfg     Config
	iso     record.Isolation
}

func newReader(i int, tp record.TopicPartition, f *fleet, rng *rand.Rand) *reader {
	return &reader{who: fmt.Sprintf("reader %d", i), tp: tp, rng: rng, client: f.client(i), history: f.history, cfg: f.cfg, iso: isolation(i)}
}

// isolation is that of the i-th reader.
func isolation(i int) record.Isolation {
	return []record.Isolation{record.ReadCommitted, record.ReadUncommitted}[i%2]
}

// run reads until ctx ends.
func (r *reader) run(ctx context.Context) {
	src := watched{r.cfg.WrapSource(r.client), r.who, r.history}
	for ctx.Err() == nil {
		left := 100 + r.rng.IntN(3000) // records until the next change
		pos := r.history.position(r.who, r.tp)
		live, cancel := context.WithTimeout(ctx, time.Duration(r.rng.IntN(10_000))*time.Millisecond)
		for rec, err := range consumer.Read(live, src, r.tp.Topic, consumer.Partition(r.tp.Partition), consumer.FromOffset(pos), consumer.Isolation(r.iso), consumer.MaxBytes(1<<r.rng.IntN(16))) {
			if err != nil {
				r.judge(err, pos)
				break
			}
			r.history.read(r.who, r.iso, rec)
			pos = rec.Offset + 1
			if left--; left == 0 {
				break
			}
		}
		cancel()
		r.client.moveHome(r.rng)
		if left == 0 && r.rng.IntN(3) == 0 { // not too far, or it never gets to the end
			r.history.seek(r.who, r.tp, max(0, pos-record.Offset(r.rng.IntN(4000))))
		}
		if !pause(ctx, time.Duration(r.rng.IntN(20))*time.Millisecond) {
			return
		}
	}
}

// judge complains about an error that no fault explains.
func (r *reader) judge(err error, pos record.Offset) {
	for _, fine := range []error{context.DeadlineExceeded, context.Canceled, record.ErrUnreachable} {
		if errors.Is(err, fine) {
			return
		}
	}
	var outside *record.OffsetRangeError
	if errors.As(err, &outside) && pos < outside.Start {
		r.history.seek(r.who, r.tp, outside.Start)
		return
	}
	if !injected(err) {
		r.history.violate(BadError, "%s reads %v at offset %d: %v", r.who, r.tp, pos, err)
	}
}
