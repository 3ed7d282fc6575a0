package producer

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// errGap is why a batch behind a gap is not sent again: if it was written, that
// would write it twice.
var errGap = errors.New("an earlier batch of the partition was given up")

// answered takes the cluster's answer to one try.
func (p *Producer) answered(b *batch, try int, a record.Appended, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !b.flying || b.try != try {
		return // answered before
	}
	now, pt := time.Now(), b.pt
	b.flying = false
	pt.flying--
	b.err = err
	if classify(err) == duplicate {
		a, err = record.Appended{BaseOffset: record.NoOffset, Duplicate: true}, nil
	}
	if err == nil {
		pt.remove(b)
		p.room(1)
		pt.failures, pt.retryAt, pt.lastError = 0, time.Time{}, nil
		if b.topic == pt.topic.id {
			pt.proven = now
			pt.acked = max(pt.acked, b.number)
			if a.BaseOffset != record.NoOffset {
				pt.next = max(pt.next, a.BaseOffset+record.Offset(b.count))
			}
		}
		p.finish(b, a, nil)
	} else {
		pt.failing = true
		pt.lastError = err
		if errors.Is(err, record.ErrUnknownTopic) {
			p.relearn(pt.topic) // it may have been made anew
		}
		switch classify(err) {
		case unknown:
			b.maybe = true
		case fenced:
			p.fail(err)
		}
	}
	if pt.failing && pt.flying == 0 {
		p.settle(pt, now)
	}
	p.landed()
	if pt.waiting() {
		p.mark(pt)
	}
}

// class is what an answer means for a batch.
type class int

const (
	written   class = iota
	duplicate       // written earlier, at a forgotten offset
	unknown         // may be written; send again
	passing         // not written; send again
	disorder        // not written: an earlier one is missing
	refused         // not written, and it never will be
	fenced          // not written, and nothing of this producer will be
)

func classify(err error) class {
	if err == nil {
		return written
	}
	is := func(target error) bool { return errors.Is(err, target) }
	var few *record.NotEnoughReplicasError
	switch {
	case is(record.ErrOutcomeUnknown): // first: it may wrap any of the others
		return unknown
	case is(record.ErrDuplicate):
		return duplicate
	case is(record.ErrFenced):
		return fenced
	case is(record.ErrOutOfOrder):
		return disorder
	case is(record.ErrTooLarge), is(record.ErrInvalid), is(record.ErrCorrupt):
		return refused
	case errors.As(err, &few) && !few.Appended:
		return passing
	case is(record.ErrNotLeader), is(record.ErrUnreachable), is(record.ErrOverloaded),
		is(record.ErrClosed),       // that node; another one will lead
		is(record.ErrUnknownTopic): // that node does not know it yet
		return passing
	}
	return unknown
}

// settle decides what becomes of the batches in flight of pt, none of which
// flies and all of which failed.
func (p *Producer) settle(pt *partition, now time.Time) {
	var kept, again []*batch
	gap := false
	for _, b := range pt.inFlight {
		c := classify(b.err)
		gap = gap || c == disorder && b.alone // what the leader misses is not here any more
		var cause error
		switch {
		case b.finished && !b.doubt: // at its deadline
			continue
		case p.fatal != nil:
			cause = p.fatal
		case c == refused, p.cfg.NoRetries:
			cause = b.err
		case b.topic != pt.topic.id: // that one is gone
			cause = &record.UnknownTopicError{Topic: pt.tp.Topic, Partition: -1}
		case gap && b.maybe:
			cause = fmt.Errorf("%w; %w", errGap, b.err)
		case gap:
			again = append(again, b)
			continue
		default:
			kept = append(kept, b)
			continue
		}
		p.finish(b, record.Appended{}, b.fault(cause))
	}
	p.room(len(pt.inFlight) - len(kept))
	pt.inFlight = kept
	pt.retries = len(kept)
	pt.sealed = append(again, pt.sealed...)
	pt.failing = false
	if gap {
		p.dropIdentity(pt)
	}
	if len(kept)+len(again) > 0 {
		pt.backOff(now)
		p.schedule(pt.retryAt)
	}
}

// fault returns the error for b, which is given up because of cause.
func (b *batch) fault(cause error) error {
	if b.maybe || b.flying {
		return &record.OutcomeUnknownError{TopicPartition: b.pt.tp, Err: cause}
	}
	return &NotWrittenError{TopicPartition: b.pt.tp, Err: cause}
}

// expire gives up the batches of pt that are past their deadline. Those in
// flight stay until they are settled: they have a sequence.
func (p *Producer) expire(pt *partition, now time.Time) {
	waiting := slices.Clone(pt.sealed)
	if pt.open != nil {
		waiting = append(waiting, pt.open)
	}
	for _, b := range waiting {
		if !now.Before(b.deadline) {
			pt.remove(b)
			p.finish(b, record.Appended{}, b.fault(p.timeout(pt)))
		}
	}
	for _, b := range pt.inFlight {
		switch {
		case !b.finished && !now.Before(b.deadline):
			fault := b.fault(p.timeout(pt))
			b.doubt = b.ids != nil && OutcomeOf(fault) == Unknown && !p.renewing
			b.doubtUntil = b.deadline.Add(p.cfg.Dedupe.Age)
			p.finish(b, record.Appended{}, fault)
			pt.failing = pt.failing || !b.flying && !b.doubt
		case b.doubt && (p.renewing || !now.Before(b.doubtUntil)):
			p.finish(b, record.Appended{}, b.fault(p.timeout(pt)))
			pt.failing = pt.failing || !b.flying
		case b.doubt:
			for _, f := range b.followers {
				if !now.Before(f.deadline) {
					p.finish(f, record.Appended{}, f.fault(p.timeout(pt)))
				}
			}
		}
	}
	if pt.failing && pt.flying == 0 {
		p.settle(pt, now)
	}
	p.landed()
}

// timeout says what kept the batches of pt from being written in time.
func (p *Producer) timeout(pt *partition) error {
	err := fmt.Errorf("%w after %v", ErrDeliveryTimeout, p.cfg.DeliveryTimeout)
	last := pt.lastError
	if last == nil && p.ident == nil {
		last = p.identErr
	}
	switch {
	case last == nil:
		return err
	case classify(last) == unknown: // another batch's outcome, maybe: for the text only
		return fmt.Errorf("%w: %v", err, last)
	}
	return fmt.Errorf("%w: %w", err, last)
}

// finish gives everybody who waits for a record of b its result. b must be out
// of all lists, or in flight.
func (p *Producer) finish(b *batch, a record.Appended, failure error) {
	if b.finished {
		if b.doubt {
			b.doubt = false
			p.resolve(b, a, failure)
		}
		return // at its deadline; this answer comes too late
	}
	b.finished, b.answer, b.failure = true, a, failure
	if b.ids != nil && !b.doubt {
		p.resolve(b, a, failure)
	}
	p.buffer.release(b.bytes)
	if b.try == 0 {
		p.spare.putBuilder(b)
	}
	calls := false
	for i, s := range b.slots {
		if s.wait != nil {
			s.wait.res, s.wait.err = b.result(i)
			s.wait.ready <- struct{}{}
		}
		calls = calls || s.done != nil
	}
	if calls {
		p.callbacks.add(b)
	} else {
		p.settled(b)
	}
}

// settled tells that b has nothing left to do.
func (p *Producer) settled(b *batch) {
	for _, f := range b.flushes {
		f.done()
	}
	b.flushes = nil
	if b.id == nil {
		p.spare.putSlots(b)
	}
}

// fail ends the producer: it is fenced, or has no way to an identity.
func (p *Producer) fail(err error) {
	if p.fatal != nil {
		return
	}
	p.fatal = err
	if !p.closed {
		close(p.refuse)
	}
	p.giveUp(err)
	p.landed()
}

// giveUp finishes everything that does not fly.
func (p *Producer) giveUp(cause error) {
	for _, pt := range p.parts {
		p.giveUpAll(pt, cause)
	}
}

// giveUpAll finishes everything of pt that does not fly.
func (p *Producer) giveUpAll(pt *partition, cause error) {
	waiting := pt.sealed
	if pt.open != nil {
		waiting = append(waiting, pt.open)
	}
	pt.open, pt.sealed = nil, nil
	for _, b := range waiting {
		p.finish(b, record.Appended{}, b.fault(cause))
	}
	for _, b := range pt.inFlight {
		if !b.flying {
			p.finish(b, record.Appended{}, b.fault(cause))
		}
	}
	pt.failing = pt.failing || pt.retries > 0
	if pt.failing && pt.flying == 0 {
		p.settle(pt, time.Now())
	}
}

// abandon finishes everything, whether it flies or not.
func (p *Producer) abandon(cause error) {
	p.giveUp(cause)
	for _, pt := range p.parts {
		for _, b := range pt.inFlight {
			p.finish(b, record.Appended{}, b.fault(cause))
		}
	}
}

// take returns the result that arrived.
func (w *waiter) take() (Result, error) {
	res, err := w.res, w.err
	*w = waiter{ready: w.ready}
	return res, err
}

// takeBack ends the wait of a Send whose context has ended: the record is taken
// out if it was never handed over.
func (p *Producer) takeBack(w *waiter, cause error) (Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := w.batch
	if b.finished {
		<-w.ready
		return w.take()
	}
	b.slots[w.index].wait = nil
	if b.try > 0 || b.ids != nil && b.ids[w.index] != nil && b.followed(b.ids[w.index]) {
		*w = waiter{ready: w.ready}
		return Result{}, &record.OutcomeUnknownError{TopicPartition: b.pt.tp, Err: cause}
	}
	b.gone = append(b.gone, w.index)
	if b.ids != nil {
		if k := b.ids[w.index]; k != nil {
			k.window.remove(k)
		}
	}
	*w = waiter{ready: w.ready}
	if len(b.gone) == len(b.slots) {
		b.pt.remove(b)
		p.finish(b, record.Appended{}, b.fault(cause))
	}
	return Result{}, &NotWrittenError{TopicPartition: b.pt.tp, Err: cause}
}
