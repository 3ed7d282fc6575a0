package producer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// learnEvery is how often a producer that sends to a topic looks at its layout
// again. It also does when a partition is unknown.
const learnEvery = time.Minute

// topic is one topic as the producer knows it. The producer's lock guards it.
type topic struct {
	name   string
	id     record.TopicID
	picker Picker
	n      int // partitions; 0: the topic is gone, or was never there
	// parts are all there ever were: those from n on may still have batches in
	// flight, and go on with their sequences if they come back.
	parts    []*partition
	grown    int       // how many it had before it grew though that is not allowed; or 0
	learned  time.Time // when it was last asked for
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
		t = &topic{name: name, id: id, picker: p.cfg.Partitioner(name)}
		if k, ok := t.picker.(*byKey); ok {
			k.down = t.down
		}
		p.topics[name] = t
	}
	if id != t.id || n > t.n { // no other caller was faster
		p.lay(t, id, n)
	}
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
		t.learning, t.learned = false, time.Now()
		switch {
		case errors.Is(err, record.ErrUnknownTopic):
			p.lay(t, t.id, 0)
		case err == nil && n > 0:
			p.lay(t, id, n)
		}
	})
}

// lay makes t have n partitions. Those that are there no more lose their batches.
func (p *Producer) lay(t *topic, id record.TopicID, n int) {
	anew := id != t.id || n < t.n
	if t.n > 0 && (anew || n > t.n) {
		p.cfg.Logger.Info("topic has another number of partitions, or was made anew", slog.String("topic", t.name), slog.Int("had", t.n), slog.Int("have", n))
	}
	if _, keyed := t.picker.(*byKey); keyed && t.n > 0 && n > t.n && !anew && !p.cfg.AllowGrowth && t.grown == 0 {
		t.grown = t.n
	}
	if anew {
		t.grown, t.window = 0, nil
		for _, pt := range t.parts {
			pt.proven, pt.next = time.Time{}, 0 // its leader knows nothing of us
		}
	}
	if id != t.id && t.n > 0 && n != t.n { // keys that were placed among t.n would be among others
		for _, pt := range t.parts {
			p.giveUpAll(pt, &record.UnknownTopicError{Topic: t.name, Partition: -1})
		}
	}
	t.id, t.n, t.learned = id, n, time.Now()
	for i := len(t.parts); i < n; i++ {
		pt := &partition{tp: record.TopicPartition{Topic: t.name, Partition: int32(i)}, topic: t}
		t.parts = append(t.parts, pt)
		p.parts = append(p.parts, pt)
	}
	for _, pt := range t.parts[n:] {
		unknown := &record.UnknownTopicError{Topic: t.name, Partition: pt.tp.Partition}
		if n == 0 {
			unknown.Partition = -1
		}
		p.giveUpAll(pt, unknown)
	}
	p.landed()
}
