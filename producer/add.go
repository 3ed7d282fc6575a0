package producer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// add copies r into the open batch of its partition. It returns nil or why r
// was refused; it was not written then.
func (p *Producer) add(ctx context.Context, r *record.Record, s slot, wait bool, opts []SendOption) error {
	if err := ctx.Err(); err != nil {
		return notWritten(r.Topic, err)
	}
	if r.Topic == "" {
		return fmt.Errorf("%w: the record has no topic", record.ErrInvalid)
	}
	acks, err := p.acks(opts)
	if err != nil {
		return err
	}
	id, err := p.cfg.Dedupe.id(r)
	if err != nil {
		return err
	}
	size := record.SizeOf(r)
	if record.HeaderSize+size > p.cfg.BatchBytes {
		return &record.TooLargeError{What: "record", Size: size, Limit: p.cfg.BatchBytes - record.HeaderSize}
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.refusal(); err != nil {
		return err
	}
	t := p.topics[r.Topic]
	if t == nil || t.n == 0 {
		if t, err = p.learn(ctx, r.Topic); err != nil {
			return err
		}
	}
	if !p.buffer.take(int64(size)) {
		if !wait {
			return &BufferFullError{Need: int64(size), Free: p.buffer.limit - p.buffer.used, Limit: p.buffer.limit}
		}
		if err := p.waitForSpace(ctx, r.Topic, int64(size)); err != nil {
			return err
		}
	}
	taken, err := p.take(ctx, t, r, size, s, acks, id)
	if !taken {
		p.buffer.release(int64(size))
	}
	return err
}

// take adds r, whose bytes are taken, to a batch of t, unless it was sent before.
func (p *Producer) take(ctx context.Context, t *topic, r *record.Record, size int, s slot, acks record.Acks, id []byte) (bool, error) {
	for {
		pt, err := p.place(ctx, t, r)
		if err != nil {
			return false, err
		}
		topic, n := t.id, t.n
		if id != nil {
			if again, err := p.again(ctx, t, id, s); again || err != nil {
				return false, err
			}
		}
		if topic == t.id && n == t.n {
			err = p.put(pt, r, size, s, acks, id)
			return err == nil, err
		}
	}
}

// place picks the partition for r. Before a batch is begun, and when there is no
// such partition, it looks at the layout of t again, without the lock.
func (p *Producer) place(ctx context.Context, t *topic, r *record.Record) (*partition, error) {
	pt, err := p.pick(t, r)
	switch {
	case err == nil && pt.open != nil:
		return pt, nil
	case err != nil && !errors.Is(err, record.ErrUnknownTopic):
		return nil, err
	}
	id, n := t.id, t.n
	if err := p.look(ctx, t); err != nil {
		return nil, err
	}
	if id == t.id && n == t.n {
		return pt, err
	}
	return p.pick(t, r)
}

func (p *Producer) pick(t *topic, r *record.Record) (*partition, error) {
	p.scratch = *r
	defer func() { p.scratch = record.Record{} }() // the caller's slices are its own again
	return t.pick(&p.scratch)
}

// put adds r, whose bytes are taken, to a batch of pt.
func (p *Producer) put(pt *partition, r *record.Record, size int, s slot, acks record.Acks, id []byte) error {
	if pt.open != nil && (pt.open.builder.Len()+size > p.cfg.BatchBytes || pt.open.acks != acks) {
		pt.seal()
		p.mark(pt)
	}
	b := pt.open
	if b == nil {
		b = p.newBatch(pt, acks)
	}
	now := int64(0)
	if r.Time.IsZero() {
		now = p.now()
	}
	if err := b.builder.AppendAt(r, now); err != nil {
		if pt.open == nil {
			p.spare.putBuilder(b)
			p.spare.putSlots(b)
		}
		return err
	}
	if pt.open == nil {
		pt.open = b
		p.schedule(b.deadline)
		if p.cfg.Linger > 0 {
			p.schedule(b.lingerUntil)
		}
		if p.sendable(pt, time.Time{}) {
			p.mark(pt)
		}
	}
	if s.wait != nil {
		s.wait.batch, s.wait.index = b, len(b.slots)
	}
	if id != nil || b.ids != nil {
		p.remember(b, id)
	}
	b.slots = append(b.slots, s)
	b.bytes += int64(size)
	return nil
}

func (p *Producer) newBatch(pt *partition, acks record.Acks) *batch {
	now := time.Now()
	b := &batch{pt: pt, topic: pt.topic.id, acks: acks, deadline: now.Add(p.cfg.DeliveryTimeout)}
	if p.cfg.Linger > 0 {
		b.lingerUntil = now.Add(p.cfg.Linger)
	}
	b.builder, b.slots = p.spare.take()
	return b
}

// waitForSpace waits in line for size bytes, without the lock. Meanwhile batches leave
// as without Linger, and more of them may be in flight.
func (p *Producer) waitForSpace(ctx context.Context, topic string, size int64) error {
	tk, refuse := p.buffer.queue(size), p.refuse
	if p.cfg.Linger > 0 {
		p.markAll()
	}
	p.room(0)
	p.mu.Unlock()
	var err error
	select {
	case <-tk.granted:
	case <-refuse:
	case <-ctx.Done():
		err = notWritten(topic, fmt.Errorf("waited for space in the producer's buffer: %w", ctx.Err()))
	}
	p.mu.Lock()
	if err == nil {
		err = p.refusal()
	}
	if err != nil {
		p.buffer.leave(tk)
	}
	return err
}

// spares keeps the memory of finished batches for the next ones, until the
// garbage collector wants it.
type spares struct {
	builders sync.Pool // of *record.Builder
	slots    sync.Pool // of *[]slot
}

func (s *spares) take() (*record.Builder, []slot) {
	b, _ := s.builders.Get().(*record.Builder)
	if b == nil {
		b = new(record.Builder)
	}
	slots, _ := s.slots.Get().(*[]slot)
	if slots == nil {
		return b, nil
	}
	return b, *slots
}

func (s *spares) putBuilder(b *batch) {
	if b.builder != nil {
		b.builder.Reset()
		s.builders.Put(b.builder)
		b.builder = nil
	}
}

func (s *spares) putSlots(b *batch) {
	if cap(b.slots) > 0 {
		clear(b.slots)
		slots := b.slots[:0]
		s.slots.Put(&slots)
		b.slots = nil
	}
}
