package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorumlog/quorumlog/record"
)

const (
	// firstStep is how many offsets a backwards read steps back at first; later
	// steps are as long as a fetch brings records.
	firstStep = 64
	maxStep   = 1 << 16
)

// backwards reads the spans one after the other, each from its position down to
// the log start. It returns nil when it is through or the loop was left. It owns
// no goroutine.
func (r *reader) backwards(ctx context.Context, spans []span, yield func(record.Record, error) bool) error {
	for i := range spans {
		s := &spans[i]
		step := record.Offset(firstStep)
		for top := s.pos; top > s.start; {
			records, from, err := s.before(ctx, top, step)
			if ctx.Err() != nil {
				return fmt.Errorf("read topic %q: %w", r.topic, ctx.Err())
			}
			if err != nil {
				return place(s.tp, err)
			}
			bytes := 1
			for i := len(records) - 1; i >= 0; i-- {
				bytes += size(&records[i])
				if !yield(records[i], nil) {
					return nil
				}
			}
			step = min(max(record.Offset(r.cfg.maxBytes*len(records)/bytes), firstStep), maxStep)
			top = from
		}
	}
	return nil
}

// before returns the records below top, those of about step offsets, and from
// where they begin. The batch that holds the first of them is taken whole, so
// that none is read twice.
func (s *span) before(ctx context.Context, top, step record.Offset) (records []record.Record, from record.Offset, err error) {
	from = max(s.start, top-step)
	for s.cursor.pos = from; s.cursor.pos < top; {
		ch, err := s.fetch(ctx)
		var outside *record.OffsetRangeError
		switch {
		case errors.As(err, &outside) && outside.Start > s.cursor.pos: // trimmed meanwhile
			s.start = outside.Start
			records, from, s.cursor.pos = nil, min(s.start, top), s.start
			continue
		case err != nil:
			return nil, from, err
		}
		if ch.from == from && len(ch.batches) > 0 {
			from = max(s.start, min(from, ch.batches[0].BaseOffset()))
			ch.from = from
		}
		more, _, err := ch.decode(nil)
		if err != nil {
			return nil, from, err
		}
		for _, r := range more {
			if r.Offset < top {
				records = append(records, r)
			}
		}
	}
	return records, from, nil
}
