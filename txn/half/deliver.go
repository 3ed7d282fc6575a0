package half

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// deliver appends committed messages to their topics, on the leader. It is the
// coordinator's own goroutine.
func (c *Coordinator) deliver() {
	changed := c.cfg.Changed()
	backoff := firstBackoff
	retry := time.NewTimer(0) // what a leader before has left
	defer retry.Stop()
	for {
		select {
		case <-c.work:
		case <-retry.C:
		case <-changed:
			changed = c.cfg.Changed() // before looking who leads
		case <-c.life.Done():
			return
		}
		if c.deliverAll() {
			backoff = firstBackoff
			continue
		}
		retry.Reset(backoff)
		backoff = min(2*backoff, lastBackoff)
	}
}

// deliverAll appends what is committed; false if some of it must be tried again.
func (c *Coordinator) deliverAll() bool {
	if _, err := c.cfg.Partition.Leading(); err != nil {
		return true // who leads next looks for itself
	}
	var waiting map[record.TopicPartition][]delivery
	lanes := map[record.TopicPartition]lane{}
	err := c.fold.Propose(c.life, func(record.LeaderEpoch) ([]record.Record, error) { // a new leader catches up
		waiting = c.state.waiting()
		for tp := range waiting {
			lanes[tp] = c.state.lanes[tp]
		}
		return nil, nil
	})
	if err != nil {
		return errors.Is(err, record.ErrNotLeader) || errors.Is(err, record.ErrClosed)
	}
	if len(waiting) == 0 {
		return true
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var done []delivery
	all := true
	for tp, vs := range waiting {
		wg.Go(func() {
			n, err := c.deliverTo(tp, lanes[tp], vs)
			mu.Lock()
			defer mu.Unlock()
			done = append(done, vs[:n]...)
			if err != nil {
				all = false
				c.logger.Warn("half messages are not delivered yet, trying again", "to", tp, "err", err)
			}
		})
	}
	wg.Wait()
	if len(done) > 0 {
		err = c.propose(c.life, func(d *decision) error { return d.delivered(done) })
	}
	return all && err == nil
}

// deliverTo appends messages of one partition, in their order, and returns how many
// are there for good, or have nowhere to go.
func (c *Coordinator) deliverTo(tp record.TopicPartition, l lane, vs []delivery) (n int, err error) {
	for _, v := range vs {
		switch err := c.append(tp, l, v); {
		case err == nil, errors.Is(err, record.ErrDuplicate):
		case errors.Is(err, record.ErrOutcomeUnknown):
			return n, err
		case errors.Is(err, record.ErrUnknownTopic):
			c.logger.Error("half message has no topic to go to any more", "group", v.group, "id", v.id, "topic", tp.Topic)
		case errors.Is(err, record.ErrOutOfOrder), errors.Is(err, record.ErrFenced):
			// The partition has forgotten the producer.
			return n, errors.Join(err, c.propose(c.life, func(d *decision) error { return d.relane(tp, l.Producer) }))
		default:
			return n, err
		}
		n++
	}
	return n, nil
}

// append appends one message.
func (c *Coordinator) append(tp record.TopicPartition, l lane, v delivery) error {
	var b record.Builder
	r := v.message.record()
	if err := b.Append(&r); err != nil {
		return err
	}
	batch, err := b.Build(record.BatchOptions{Producer: &record.ProducerStamp{ID: l.Producer, Sequence: v.message.Sequence}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.life, tryTimeout)
	defer cancel()
	return c.cfg.Append(ctx, tp, batch)
}
