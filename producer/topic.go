package producer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// topic is one topic as the producer knows it. The producer's lock guards it.
type topic struct {
	name   string
	id     record.TopicID
	past   map[record.TopicID]bool // ids of the topics of that name before
	picker Picker
	n      int // partitions; 0: the topic is gone, or was never there
	// parts are all there ever were: those from n on may still have batches in
	// flight, and go on with their sequences if they come back.
	parts    []*partition
	grown    int // how many it had before it grew, with RefuseGrowth; or 0
	learning bool
	window   *window // with Dedupe: of the ids; nil before the first
}

// pick returns the partition for r.
func (t *topic) pick(r *record.Record) (*partition, error) {
	if t.n == 0 { // it has gone while the record waited
		return nil, &record.UnknownTopicError{Topic: t.name, Partition: -1}
	}
	if t.grown > 0 && r.Key != nil {
		return nil, &TopicGrownError{Topic: t.name, Had: t.grown, Have: t.n}
	}
	n := t.picker.Pick(r, t.n)
	switch {
	case n < 0:
		return nil, fmt.Errorf("%w: partition %d of topic %q", record.ErrInvalid, n, t.name)
	case n >= t.n:
		return nil, &record.UnknownTopicError{Topic: t.name, Partition: int32(n)}
	}
	return t.parts[n], nil
}

// down reports whether the last try at a partition failed and is to be repeated.
func (t *topic) down(partition int) bool {
	pt := t.parts[partition]
	return pt.failures > 0 && !pt.idle()
}

// learn asks the cluster for the layout of a topic, without the lock.
func (p *Producer) learn(ctx context.Context, name string) (*topic, error) {
	p.mu.Unlock()
	id, n, err := p.cluster.Layout(ctx, name)
	p.mu.Lock()
	if err != nil {
		return nil, notWritten(name, err)
	}
	if err := p.refusal(); err != nil {
		return nil, err
	}
	if n < 1 {
		return nil, &record.UnknownTopicError{Topic: name, Partition: -1}
	}
	t := p.topics[name]
	if t == nil {
		t = &topic{name: name, id: id, past: make(map[record.TopicID]bool), picker: p.cfg.Partitioner(name)}
		if k, ok := t.picker.(*byKey); ok {
			k.down = t.down
		}
		p.topics[name] = t
	}
	p.looked(t, id, n, nil)
	return t, nil
}

// relearn asks the cluster for the layout of t again, on a goroutine of its own.
func (p *Producer) relearn(t *topic) {
	if t.learning || p.closed {
		return
	}
	t.learning = true
	p.wg.Go(func() {
		ctx, cancel := context.WithTimeout(p.ctx, tryTimeout)
		defer cancel()
		id, n, err := p.cluster.Layout(ctx, t.name)
		p.mu.Lock()
		defer p.mu.Unlock()
		t.learning = false
		p.looked(t, id, n, err)
	})
}

// look looks at the layout of t again, without the lock. That it cannot is no error.
func (p *Producer) look(ctx context.Context, t *topic) error {
	p.mu.Unlock()
	id, n, err := p.cluster.Layout(ctx, t.name)
	p.mu.Lock()
	p.looked(t, id, n, err)
	if errors.Is(err, record.ErrUnknownTopic) {
		return notWritten(t.name, err)
	}
	return p.refusal()
}

// looked takes in what Layout said.
func (p *Producer) looked(t *topic, id record.TopicID, n int, err error) {
	switch {
	case errors.Is(err, record.ErrUnknownTopic):
		p.lay(t, t.id, 0)
	case err == nil && n > 0 && !t.past[id] && (id != t.id || n >= t.n): // else another lookup knew more
		p.lay(t, id, n)
	}
}

// lay makes t have n partitions. Batches for those that are there no more, or for a
// topic of another id, are given up.
func (p *Producer) lay(t *topic, id record.TopicID, n int) {
	if t.n > 0 && (id != t.id || n != t.n) {
		p.cfg.Logger.Info("topic has another number of partitions, or was made anew", slog.String("topic", t.name), slog.Int("had", t.n), slog.Int("have", n))
	}
	old := t.parts
	switch {
	case id != t.id:
		t.past[t.id] = true
		t.grown, t.window = 0, nil
		for _, pt := range t.parts {
			pt.ident, pt.proven, pt.next = nil, time.Time{}, 0 // its leader knows nothing of us
		}
	case n <= t.n:
		old = t.parts[n:]
	default:
		old = nil
		if _, keyed := t.picker.(*byKey); keyed && t.n > 0 && p.cfg.RefuseGrowth && t.grown == 0 {
			t.grown = t.n
		}
	}
	t.id, t.n = id, n
	for i := len(t.parts); i < n; i++ {
		pt := &partition{tp: record.TopicPartition{Topic: t.name, Partition: int32(i)}, topic: t}
		t.parts = append(t.parts, pt)
		p.parts = append(p.parts, pt)
	}
	for _, pt := range old {
		p.giveUpAll(pt, &record.UnknownTopicError{Topic: t.name, Partition: -1})
	}
	p.landed()
}
