package consumer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// Read returns the records of a topic as a sequence. Records of one partition
// come in offset order; between partitions there is no order.
//
// Partitions that the topic gets while it is read are read too, from their first
// record wherever the others began: all they hold is new. With [FromTime] they begin
// at that time.
//
// The sequence ends after the first error, which it yields with an empty
// record; the end of ctx is such an error. Each loop over it is a new read.
// Leaving the loop ends everything the read had started. The slices of a
// record belong to the reader.
//
// Errors: [record.ErrInvalid] for an argument that makes no sense,
// *[record.UnknownTopicError], *[record.OffsetRangeError] when the position is
// not in the log, also when retention has overtaken a slow reader.
func Read(ctx context.Context, src Source, topic string, opts ...ReadOption) iter.Seq2[record.Record, error] {
	cfg := readConfig{maxBytes: DefaultMaxBytes, caughtUp: func() {}}
	for _, opt := range opts {
		opt(&cfg)
	}
	return func(yield func(record.Record, error) bool) {
		if err := cfg.validate(topic); err != nil {
			yield(record.Record{}, err)
			return
		}
		r := &reader{src: src, topic: topic, cfg: cfg}
		if near, ok := src.(Near); ok && cfg.near {
			r.src = nearest{src, near}
		}
		if err := r.read(ctx, yield); err != nil {
			yield(record.Record{}, err)
		}
	}
}

// reader is one loop over a [Read]. It owns the goroutines that fetch: one for
// each partition when the read is live, one in all when it ends at the end; and
// one that looks for new partitions when a live read is of all.
type reader struct {
	src   Source
	topic string
	cfg   readConfig
}

// span is the part of one partition that is read.
type span struct {
	cursor
	start  record.Offset // of the log when the read began
	high   record.Offset // of the log when the read began
	end    record.Offset // NoOffset when the read is live
	oldest bool          // nothing is read yet, and whatever is oldest will do
}

// arrival is a chunk, or the error that ends the read, on its way to the loop.
type arrival struct {
	chunk
	end record.Offset
	err error
}

// read returns nil when the end was reached or the loop was left.
func (r *reader) read(ctx context.Context, yield func(record.Record, error) bool) error {
	spans, err := r.spans(ctx)
	if err != nil {
		return err
	}
	if r.cfg.backwards {
		return r.backwards(ctx, spans, yield)
	}
	behind := map[record.TopicPartition]record.Offset{} // where what was there at the beginning is not read yet
	for _, s := range spans {
		if s.pos < s.high {
			behind[s.tp] = s.high
		}
	}
	if len(behind) == 0 {
		r.cfg.caughtUp()
	}
	lanes := [][]span{spans}
	if !r.cfg.untilEnd {
		lanes = lanes[:0]
		for i := range spans {
			lanes = append(lanes, spans[i:i+1])
		}
	}

	ctx, cancel := context.WithCancel(ctx)
	arrivals := make(chan arrival, len(lanes))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	start := func(lane []span) { wg.Go(func() { follow(ctx, lane, arrivals) }) }
	for _, lane := range lanes {
		start(lane)
	}
	var grown chan span
	if !r.cfg.untilEnd && !r.cfg.one {
		grown = make(chan span)
		wg.Go(func() { r.watch(ctx, len(spans), grown, arrivals) })
	}
	for open := len(lanes); open > 0; { // each lane says once that it is through
		var a arrival
		select {
		case a = <-arrivals:
		case s := <-grown:
			start([]span{s})
			open++
			continue
		case <-ctx.Done():
			return fmt.Errorf("read topic %q: %w", r.topic, ctx.Err())
		}
		if a.err == errLaneEnd {
			open--
			continue
		}
		if a.err != nil {
			return a.err
		}
		if more, err := a.yield(yield); err != nil || !more {
			return err
		}
		if high, ok := behind[a.tp]; ok && a.next >= high {
			if delete(behind, a.tp); len(behind) == 0 {
				r.cfg.caughtUp()
			}
		}
	}
	return nil
}

// growthInterval is how often a live read looks for partitions that its topic has got.
const growthInterval = 500 * time.Millisecond

// watch sends the partitions that the topic gets while it is read, until ctx ends.
// That the number cannot be told is nothing to say: the lanes notice a lost topic.
func (r *reader) watch(ctx context.Context, have int, grown chan<- span, out chan<- arrival) {
	for pause(ctx, growthInterval) == nil {
		n, err := r.src.Partitions(ctx, r.topic)
		if err != nil {
			continue
		}
		for ; have < n; have++ {
			s, err := r.later(ctx, record.TopicPartition{Topic: r.topic, Partition: int32(have)})
			if err != nil {
				select {
				case out <- arrival{err: place(s.tp, err)}:
				case <-ctx.Done():
				}
				return
			}
			select {
			case grown <- s:
			case <-ctx.Done():
				return
			}
		}
	}
}

// later is the span of a partition that came after the read began: from its start,
// or where the time is that was asked for. An end or an offset was meant for those
// that there were.
func (r *reader) later(ctx context.Context, tp record.TopicPartition) (span, error) {
	s := r.whole(tp)
	s.oldest = true
	if r.cfg.origin == originTime {
		offset, ok, err := r.src.OffsetForTime(ctx, tp, r.cfg.time)
		if err != nil {
			return s, err
		}
		if ok {
			s.pos = offset
		}
	}
	return s, nil
}

// whole is the span of a partition from 0 on.
func (r *reader) whole(tp record.TopicPartition) span {
	return span{cursor: cursor{src: r.src, tp: tp, maxBytes: r.cfg.maxBytes, iso: r.cfg.iso}, end: record.NoOffset}
}

// errLaneEnd stands for the end of a lane in an arrival.
var errLaneEnd = errors.New("end of lane")

// startIn returns the log start that err tells of, 0 if it does not.
func startIn(err error) record.Offset {
	if err == nil {
		return 0
	}
	var outside *record.OffsetRangeError
	if errors.As(err, &outside) {
		return outside.Start
	}
	return 0
}

// follow fetches the spans of a lane one after the other until their ends, or
// until ctx ends when one has none.
func follow(ctx context.Context, lane []span, out chan<- arrival) {
	send := func(a arrival) bool {
		select {
		case out <- a:
			return a.err == nil
		case <-ctx.Done():
			return false
		}
	}
	for i := range lane {
		s := &lane[i]
		for s.end == record.NoOffset || s.pos < s.end {
			ch, err := s.fetch(ctx)
			if start := startIn(err); s.oldest && start > s.pos {
				s.pos = start // trimmed since we asked
				if !send(arrival{chunk: chunk{tp: s.tp, from: s.pos, next: s.pos}, end: s.end}) {
					return
				}
				continue
			}
			s.oldest = false
			if err != nil {
				err = place(s.tp, err)
			}
			if !send(arrival{chunk: ch, end: s.end, err: err}) {
				return
			}
		}
	}
	send(arrival{err: errLaneEnd})
}

// yield hands the records of the arrival to the loop and reports whether the
// loop wants more.
func (a *arrival) yield(yield func(record.Record, error) bool) (bool, error) {
	var it record.Iterator
	r := record.Record{Topic: a.tp.Topic, Partition: a.tp.Partition}
	for _, b := range a.batches {
		if b.IsControl() {
			continue
		}
		if err := it.Reset(b); err != nil {
			return false, place(a.tp, err)
		}
		for it.Next(&r) {
			if r.Offset < a.from {
				continue
			}
			if a.end != record.NoOffset && r.Offset >= a.end {
				return true, nil
			}
			if !yield(r, nil) {
				return false, nil
			}
		}
		if err := it.Err(); err != nil {
			return false, place(a.tp, err)
		}
	}
	return true, nil
}

// spans finds where each partition's read begins and ends.
func (r *reader) spans(ctx context.Context) ([]span, error) {
	n, err := r.src.Partitions(ctx, r.topic)
	if err != nil {
		return nil, err
	}
	first, last := int32(0), int32(n)
	if r.cfg.one {
		if r.cfg.partition >= last {
			return nil, &record.UnknownTopicError{Topic: r.topic, Partition: r.cfg.partition}
		}
		first, last = r.cfg.partition, r.cfg.partition+1
	}
	spans := make([]span, 0, last-first)
	for p := first; p < last; p++ {
		s, err := r.span(ctx, record.TopicPartition{Topic: r.topic, Partition: p})
		if err != nil {
			return nil, err
		}
		spans = append(spans, s)
	}
	return spans, nil
}

func (r *reader) span(ctx context.Context, tp record.TopicPartition) (span, error) {
	s := r.whole(tp)
	start, high, err := r.src.Offsets(ctx, tp, r.cfg.iso)
	if err != nil {
		return s, place(tp, err)
	}
	s.start, s.high = start, high
	switch r.cfg.origin {
	case originStart:
		s.pos, s.oldest = start, true
		if r.cfg.backwards {
			s.pos = high
		}
	case originEnd:
		s.pos = high
	case originOffset:
		s.pos = r.cfg.offset
		if r.cfg.backwards && s.pos >= start && s.pos < high {
			s.pos++ // the record at the offset is the first one
		}
	case originTime:
		offset, ok, err := r.src.OffsetForTime(ctx, tp, r.cfg.time)
		if err != nil {
			return s, place(tp, err)
		}
		s.pos, s.oldest = high, true // retention may take what was found
		if ok {
			s.pos = min(offset, high) // what came since the loop began is behind the end
		}
	}
	if r.cfg.untilEnd || r.cfg.backwards {
		// Nothing is fetched from a position at or above the end, so nobody
		// else would notice one that is not in the log.
		if s.pos < start || s.pos > high {
			return s, &record.OffsetRangeError{TopicPartition: tp, Offset: s.pos, Start: start, End: high}
		}
		s.end = high
	}
	return s, nil
}
