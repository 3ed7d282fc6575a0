package producer

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// again reports whether the record with that id was sent before; then s is told
// what became of it. It waits for the window to be read back, and for a look into
// the log where an outcome is unknown, without the lock; when it returns false,
// the lock has been held since it looked.
func (p *Producer) again(ctx context.Context, t *topic, id []byte, s slot) (bool, error) {
	for {
		if t.window == nil {
			p.readBack(t)
		}
		w := t.window
		if err := p.await(ctx, t.name, w.ready); err != nil {
			return false, err
		}
		if w.err != nil {
			return false, notWritten(t.name, w.err)
		}
		if w != t.window {
			continue // the topic was made anew
		}
		k := w.find(id, time.Now())
		switch {
		case k == nil:
			return false, nil
		case k.batch != nil:
			p.follow(k, s)
			return true, nil
		case k.failure == nil:
			if err := p.look(ctx, t); err != nil {
				return false, err
			}
			if w != t.window {
				continue // what was written is gone with the old topic
			}
			f := follower(k, s)
			p.finish(f, record.Appended{BaseOffset: k.offset, Duplicate: true, Synced: k.synced}, nil)
			return true, nil
		case !k.decidable():
			return false, &record.OutcomeUnknownError{TopicPartition: k.pt.tp, Err: fmt.Errorf("id %q was sent before: %w", k.id, k.failure)}
		}
		if err := p.decide(ctx, k); err != nil {
			return false, err
		}
	}
}

// await waits for something, without the lock.
func (p *Producer) await(ctx context.Context, topic string, something <-chan struct{}) error {
	select {
	case <-something:
		return nil
	default:
	}
	refuse := p.refuse
	p.mu.Unlock()
	var err error
	select {
	case <-something:
	case <-refuse:
	case <-ctx.Done():
		err = notWritten(topic, fmt.Errorf("waited for the ids written before: %w", ctx.Err()))
	}
	p.mu.Lock()
	return cmp.Or(err, p.refusal())
}

// follower is the batch of a record that is not sent, since another of its id
// was: nobody but those who wait for its result see it.
func follower(k *known, s slot) *batch {
	f := &batch{pt: k.pt, slots: []slot{s}, id: k, try: 1, maybe: true}
	if s.wait != nil {
		s.wait.batch, s.wait.index = f, 0
	}
	return f
}

// follow has s told what becomes of k, which is on its way.
func (p *Producer) follow(k *known, s slot) {
	f := follower(k, s)
	f.deadline = time.Now().Add(p.cfg.DeliveryTimeout)
	k.batch.followers = append(k.batch.followers, f)
	p.schedule(f.deadline)
}

// followed reports whether somebody waits for the record of k.
func (b *batch) followed(k *known) bool {
	for _, f := range b.followers {
		if f.id == k && !f.finished {
			return true
		}
	}
	return false
}

// resolve takes in what became of the ids in b, and tells the followers.
func (p *Producer) resolve(b *batch, a record.Appended, failure error) {
	for i, k := range b.ids {
		if k == nil {
			continue
		}
		switch OutcomeOf(failure) {
		case Written:
			k.batch, k.offset, k.synced = nil, a.BaseOffset, a.Synced
			if k.offset != record.NoOffset {
				k.offset += record.Offset(i)
			}
		case NotWritten:
			k.batch = nil
			k.window.remove(k)
		case Unknown:
			k.batch, k.failure, k.low, k.number = nil, failure, b.low, b.number
		}
	}
	for _, f := range b.followers {
		answer := record.Appended{BaseOffset: f.id.offset, Duplicate: true, Synced: a.Synced}
		p.finish(f, answer, failure)
	}
	b.ids, b.followers = nil, nil
}

// decidable reports whether the log tells what became of k. It does when a later
// batch of the partition is known to be written: one of the same epoch follows
// k's own, and one of a later epoch has fenced it.
func (k *known) decidable() bool { return k.pt.acked > k.number }

// decide looks for k, whose outcome is unknown, in the log, without the lock.
func (p *Producer) decide(ctx context.Context, k *known) error {
	tp, low, id := k.pt.tp, k.low, p.held.id
	found, trimmed := record.NoOffset, false
	p.mu.Unlock()
	_, err := p.readIDs(ctx, tp, id,
		func(start, _ record.Offset) record.Offset {
			trimmed = start > low
			return max(start, low)
		},
		func(id []byte, at record.Offset) {
			if string(id) == k.id {
				found = at
			}
		})
	p.mu.Lock()
	if err := cmp.Or(p.refusal(), err); err != nil {
		return &record.OutcomeUnknownError{TopicPartition: tp, Err: err}
	}
	if found == record.NoOffset && trimmed {
		return &record.OutcomeUnknownError{TopicPartition: tp, Err: fmt.Errorf("id %q was sent before, and retention has removed where it would be: %w", k.id, k.failure)}
	}
	if k.failure != nil { // nobody else was faster
		k.failure, k.offset = nil, found
		if found == record.NoOffset {
			k.window.remove(k)
		}
	}
	return nil
}

// remember adds the id of the next record of b, nil for none.
func (p *Producer) remember(b *batch, id []byte) {
	var k *known
	if id != nil {
		k = b.pt.topic.window.add(string(id), b.pt, time.Now())
		k.batch = b
	}
	for len(b.ids) < len(b.slots) {
		b.ids = append(b.ids, nil)
	}
	b.ids = append(b.ids, k)
}
