package producer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// tryTimeout bounds one try, so that a try swallowed by a broken link does not
// use up the delivery timeout while another node leads already.
const tryTimeout = 5 * time.Second

// send is the sender: the one goroutine that hands batches to the cluster, so
// that those of a partition arrive in order.
func (p *Producer) send() {
	for {
		select {
		case <-p.wake:
		case <-p.timer.C:
		case <-p.ctx.Done():
			return
		}
		p.sendQueued()
	}
}

// sendQueued sends what may be sent, one batch of each partition in turn.
func (p *Producer) sendQueued() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		now := time.Now()
		if !p.timerAt.IsZero() && !now.Before(p.timerAt) {
			p.tick(now)
		}
		if len(p.queue) == 0 {
			p.room(0) // those who were looked at last may have had nothing to send
		}
		if len(p.queue) == 0 || p.ctx.Err() != nil {
			return
		}
		p.working, p.queue = p.queue, p.working[:0]
		for _, pt := range p.working {
			pt.queued = false
			b := p.next(pt, now)
			if b == nil {
				continue
			}
			p.mu.Unlock()
			p.try(p.tryContext(now), b, b.try)
			p.mu.Lock()
			p.spare.putBuilder(b)
			if pt.waiting() {
				p.mark(pt)
			}
		}
	}
}

// next returns the batch of pt to send now, made ready for it, or nil.
func (p *Producer) next(pt *partition, now time.Time) *batch {
	if pt.failing || now.Before(pt.retryAt) {
		return nil
	}
	var b *batch
	switch {
	case pt.retries > 0 && pt.flying > 0 && !p.proven(pt, now):
		return nil
	case pt.retries > 0:
		b = pt.inFlight[len(pt.inFlight)-pt.retries]
		pt.retries--
	case p.renewing || p.windowFull(pt, now) || !p.sendable(pt, now):
		return nil
	case pt.ident == nil && p.ident == nil:
		p.askIdentity()
		return nil
	default:
		if len(pt.sealed) == 0 {
			pt.seal()
		}
		b = p.first(pt)
	}
	b.alone = b == pt.inFlight[0]
	b.flying = true
	b.try++
	pt.flying++
	return b
}

// first takes the oldest sealed batch of pt and gives it its sequence.
func (p *Producer) first(pt *partition) *batch {
	b := pt.sealed[0]
	pt.sealed = slices.Delete(pt.sealed, 0, 1)
	if b.try == 0 {
		if len(b.gone) > 0 {
			b.dropGone()
		}
		b.count, b.low = int32(len(b.slots)), pt.next
	}
	if pt.ident == nil {
		pt.ident, pt.seq, pt.proven = p.ident, 0, time.Time{}
	}
	if !p.cfg.DisableIdempotence {
		b.stamp = &record.ProducerStamp{ID: pt.ident.id, Epoch: pt.ident.epoch, Sequence: pt.seq}
		pt.seq = pt.seq.Add(b.count)
	}
	pt.sent++
	b.number = pt.sent
	pt.inFlight = append(pt.inFlight, b)
	p.inFlight++
	return b
}

// windowFull reports whether the next batch of pt must wait for those in
// flight. It counts from the oldest of them, whatever the others' answers were:
// a leader that has taken five more would not recognise it again.
func (p *Producer) windowFull(pt *partition, now time.Time) bool {
	if len(pt.inFlight) == 0 {
		return false
	}
	return !p.proven(pt, now) || pt.sent-pt.inFlight[0].number+1 >= int64(p.cfg.MaxInFlight)
}

// proven reports whether the leader of pt knows the sequences of this producer.
// One that does not would take only the first.
func (p *Producer) proven(pt *partition, now time.Time) bool {
	return p.cfg.DisableIdempotence || now.Sub(pt.proven) <= provenFor
}

// sendable reports whether pt has a batch that need not wait for more records.
func (p *Producer) sendable(pt *partition, now time.Time) bool {
	switch {
	case len(pt.sealed) > 0:
		return true
	case pt.open == nil:
		return false
	case p.cfg.Linger > 0 && !now.Before(pt.open.lingerUntil):
		return true
	case p.cfg.Linger > 0 && p.buffer.line.Len() == 0:
		return false
	default:
		return len(pt.inFlight) == 0 && !p.crowded(pt)
	}
}

// manyInFlight batches in all partitions are enough to keep leaders busy. More of
// them, while those that wait still fill, would be smaller and so cost more. When the
// buffer is full they do not fill any more, and disks or peers are slow perhaps.
const (
	manyInFlight         = 64
	manyInFlightWhenFull = 128
)

// hasRoom reports whether another batch may go that is not full, beside those in
// flight and so many more.
func (p *Producer) hasRoom(more int) bool {
	many := manyInFlight
	if p.buffer.line.Len() > 0 {
		many = manyInFlightWhenFull
	}
	return p.inFlight+more < many
}

// crowded reports whether a batch that is not full should wait because so many
// others are on their way. With a thousand partitions each would go nearly empty,
// and what a batch costs, whatever is in it, would leave the sender no time to fill
// it. pt is looked at again when there is room.
func (p *Producer) crowded(pt *partition) bool {
	if p.hasRoom(0) {
		return false
	}
	if !pt.crowded {
		pt.crowded = true
		p.crowd = append(p.crowd, pt)
	}
	return true
}

// room notes that n batches are not in flight any more, and has the sender look
// at as many partitions of the crowd as there is room for. Called with the lock.
func (p *Producer) room(n int) {
	p.inFlight -= n
	for len(p.crowd) > 0 && p.hasRoom(len(p.queue)) {
		pt := p.crowd[0]
		p.crowd = p.crowd[1:]
		pt.crowded = false
		p.mark(pt)
	}
}

// try hands b to the cluster. Called by the sender, without the lock.
func (p *Producer) try(ctx context.Context, b *batch, try int) {
	done := func(a record.Appended, err error) { p.answered(b, try, a, err) }
	codec, own := p.cfg.Codecs[b.pt.tp.Topic]
	if !own {
		codec = p.cfg.Codec
	}
	data, err := b.encode(record.BatchOptions{Codec: codec, Transactional: p.transactional})
	if err != nil {
		done(record.Appended{}, fmt.Errorf("%w: %w", record.ErrInvalid, err))
		return
	}
	p.cluster.Append(ctx, b.topic, b.pt.tp, data, b.acks, done)
}

// tryContext returns a context that ends tryTimeout from now, or up to a fifth
// of that earlier: tries begun at about the same time share one.
func (p *Producer) tryContext(now time.Time) context.Context {
	if !now.Before(p.triesRotate) {
		timeout := min(tryTimeout, p.cfg.DeliveryTimeout)
		p.triesRotate = now.Add(timeout / 5)
		// The one before goes on to its deadline: others use it.
		p.tries, p.endTries = context.WithTimeout(p.ctx, timeout)
	}
	return p.tries
}

// mark puts pt before the sender. Called with the lock.
func (p *Producer) mark(pt *partition) {
	if pt.queued {
		return
	}
	pt.queued = true
	p.queue = append(p.queue, pt)
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *Producer) markAll() {
	for _, pt := range p.parts {
		if !pt.idle() {
			p.mark(pt)
		}
	}
}

// schedule makes the sender look at all partitions at that time.
func (p *Producer) schedule(at time.Time) {
	if p.timerAt.IsZero() || at.Before(p.timerAt) {
		p.timerAt = at
		p.timer.Reset(time.Until(at))
	}
}

// tick does what is due and sets the timer for what comes next.
func (p *Producer) tick(now time.Time) {
	p.timerAt = time.Time{}
	for _, pt := range p.parts {
		if pt.idle() {
			continue
		}
		p.expire(pt, now)
		p.mark(pt)
		if at := pt.nextEvent(now); !at.IsZero() {
			p.schedule(at)
		}
	}
}
