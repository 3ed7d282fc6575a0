package producer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// readBack begins to fill the window of t from the log.
func (p *Producer) readBack(t *topic) {
	w := newWindow(p.cfg.Dedupe)
	t.window = w
	p.wg.Go(func() {
		ctx, cancel := context.WithTimeout(p.ctx, p.cfg.DeliveryTimeout)
		defer cancel()
		p.mu.Lock()
		defer p.mu.Unlock()
		defer close(w.ready)
		if w.err = p.fill(ctx, t, w); w.err != nil && t.window == w {
			t.window = nil // the next record tries again
		}
	})
}

// fill adds the ids in the log to w, with the lock but while it reads. It has an
// identity first, so that an older holder of the name is fenced where the new one
// has written.
func (p *Producer) fill(ctx context.Context, t *topic, w *window) error {
	ident, err := p.awaitIdentity(ctx)
	if err != nil {
		return err
	}
	for _, pt := range t.parts[:t.n] {
		now := time.Now()
		p.mu.Unlock()
		high, err := p.readIDs(ctx, pt.tp, ident.id,
			func(start, high record.Offset) record.Offset { return max(start, high-record.Offset(w.Count)) },
			func(id []byte, at record.Offset) {
				w.add(string(id), pt, now).offset = at // nobody else has w yet
			})
		p.mu.Lock()
		if err != nil {
			return fmt.Errorf("read the ids in %v: %w", pt.tp, err)
		}
		if t.window != w {
			return nil // the topic was made anew, and w is of no use
		}
		pt.next = max(pt.next, high)
	}
	return nil
}

// readIDs calls each for the ids in the records of one producer in a partition,
// from an offset that begin picks up to the high watermark, which it returns.
func (p *Producer) readIDs(ctx context.Context, tp record.TopicPartition, producer record.ProducerID, begin func(start, high record.Offset) record.Offset, each func(id []byte, at record.Offset)) (record.Offset, error) {
	start, high, err := p.reader.Offsets(ctx, tp, record.ReadUncommitted)
	if err != nil {
		return 0, err
	}
	var it record.Iterator
	for from := begin(start, high); from < high; {
		f, err := p.reader.Fetch(ctx, tp, from, 0, record.ReadUncommitted)
		var gone *record.OffsetRangeError
		if errors.As(err, &gone) && gone.Start > from { // by retention, meanwhile
			from = gone.Start
			continue
		}
		if err != nil {
			return 0, err
		}
		for _, b := range f.Batches {
			from = b.NextOffset()
			if b.ProducerID() != producer || b.IsControl() {
				continue
			}
			if err := it.Reset(b); err != nil {
				return 0, err
			}
			for r := (record.Record{}); it.Next(&r); {
				if id, err := p.cfg.Dedupe.id(&r); err == nil && id != nil {
					each(id, r.Offset)
				}
			}
			if err := it.Err(); err != nil {
				return 0, err
			}
		}
	}
	return high, nil
}
