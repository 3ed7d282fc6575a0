package producer

import (
	"context"
	"fmt"
	"slices"

	"github.com/quorumlog/quorumlog/record"
)

// SendTogether sends records of one topic as one batch, which is in the log as a
// whole or not at all, and waits for its result: that of the first record, the
// others follow it. The partition is the one that the partitioner picks for the
// first record that has a key; the others with a key must belong there as well.
//
// *record.TooLargeError when they do not fit into BatchBytes. record.ErrInvalid when
// they belong to different partitions, or with Dedupe, which looks at single
// records. When ctx ends first, *record.OutcomeUnknownError.
func (p *Producer) SendTogether(ctx context.Context, records []record.Record, opts ...SendOption) (Result, error) {
	if len(records) == 0 {
		return Result{}, fmt.Errorf("%w: there are no records", record.ErrInvalid)
	}
	type outcome struct {
		res Result
		err error
	}
	ch := make(chan outcome, 1)
	tp, err := p.addTogether(ctx, records, slot{done: func(res Result, err error) { ch <- outcome{res, err} }}, opts)
	if err != nil {
		return Result{}, err
	}
	select {
	case o := <-ch:
		return o.res, o.err
	case <-ctx.Done():
		return Result{}, &record.OutcomeUnknownError{TopicPartition: tp, Err: ctx.Err()}
	}
}

// addTogether copies the records into a batch of their own; s is for the first.
func (p *Producer) addTogether(ctx context.Context, records []record.Record, s slot, opts []SendOption) (record.TopicPartition, error) {
	acks, err := p.acks(opts)
	if err != nil {
		return record.TopicPartition{}, err
	}
	if p.cfg.Dedupe.on() {
		return record.TopicPartition{}, fmt.Errorf("%w: records are not sent together with Dedupe", record.ErrInvalid)
	}
	topic, size := records[0].Topic, 0
	for i := range records {
		r := &records[i]
		if r.Topic != topic || topic == "" {
			return record.TopicPartition{}, fmt.Errorf("%w: records of topics %q and %q are not one batch", record.ErrInvalid, topic, r.Topic)
		}
		size += record.SizeOf(r)
	}
	if record.HeaderSize+size > p.cfg.BatchBytes {
		return record.TopicPartition{}, &record.TooLargeError{What: "batch", Size: size, Limit: p.cfg.BatchBytes - record.HeaderSize}
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.refusal(); err != nil {
		return record.TopicPartition{}, err
	}
	t := p.topics[topic]
	if t == nil || t.n == 0 {
		if t, err = p.learn(ctx, topic); err != nil {
			return record.TopicPartition{}, err
		}
	}
	if !p.buffer.take(int64(size)) {
		if err := p.waitForSpace(ctx, topic, int64(size)); err != nil {
			return record.TopicPartition{}, err
		}
	}
	pt, err := p.putTogether(t, records, size, s, acks)
	if err != nil {
		p.buffer.release(int64(size))
		return record.TopicPartition{}, err
	}
	return pt.tp, nil
}

// putTogether makes a batch of records, whose bytes are taken.
func (p *Producer) putTogether(t *topic, records []record.Record, size int, s slot, acks record.Acks) (*partition, error) {
	first := max(0, slices.IndexFunc(records, func(r record.Record) bool { return r.Key != nil }))
	pt, err := t.pick(&records[first])
	if err != nil {
		return nil, err
	}
	for i := range records[first+1:] {
		r := &records[first+1+i]
		if r.Key == nil {
			continue
		}
		other, err := t.pick(r)
		if err != nil {
			return nil, err
		}
		if other != pt {
			return nil, fmt.Errorf("%w: records of %v and %v are not one batch", record.ErrInvalid, pt.tp, other.tp)
		}
	}
	b := p.newBatch(pt, acks)
	for i := range records {
		if err := b.builder.Append(&records[i]); err != nil {
			p.spare.putBuilder(b)
			p.spare.putSlots(b)
			return nil, err
		}
		b.slots = append(b.slots, s)
		s = slot{}
	}
	b.bytes = int64(size)
	if pt.open != nil {
		pt.seal()
	}
	pt.open = b
	pt.seal() // nobody else is to be in it: a record that is taken back makes it another
	p.schedule(b.deadline)
	p.mark(pt)
	return pt, nil
}
