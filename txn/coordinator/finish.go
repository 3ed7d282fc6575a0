package coordinator

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

const (
	// tryTimeout bounds one try to reach a participant: the node that it goes to
	// may be cut off while another one leads already.
	tryTimeout   = 5 * time.Second
	firstBackoff = 10 * time.Millisecond
	lastBackoff  = time.Second
	// completeAfter is when it is written down that everybody has a verdict: the
	// next transaction of the id, if it begins before, says so too.
	completeAfter = time.Second
)

// verdict is one that was written.
type verdict struct {
	t     *transaction       // prepared
	epoch record.LeaderEpoch // in which this node has written it
}

func (v *verdict) marker() record.Marker {
	return record.Marker{Producer: v.t.Producer, Epoch: v.t.Epoch, Commit: v.t.Status == PrepareCommit, Coordinator: v.epoch}
}

func (v *verdict) identity() Response { return Response{v.t.Producer, v.t.Epoch} }

// delivered returns the identity of the last verdict on id that everybody has, if it
// may not be written down yet. It counts in the epoch in which it was delivered: who
// leads later, this node too, has not seen to it.
func (c *Coordinator) delivered(id string, epoch record.LeaderEpoch) Response {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.complete[id]; v != nil && v.epoch == epoch {
		return v.identity()
	}
	return Response{Producer: record.NoProducerID}
}

// deliver gives a verdict to everybody who took part. It tries once. That they have
// it is written down later; who leads before delivers it again, which has no effect.
func (c *Coordinator) deliver(ctx context.Context, id string, v *verdict) error {
	m, tps := v.marker(), v.t.sorted()
	err := each(len(tps)+len(v.t.Groups), func(i int) error {
		if i < len(tps) {
			return c.cfg.Participants.Mark(ctx, tps[i], m)
		}
		return c.cfg.Participants.Settle(ctx, v.t.Groups[i-len(tps)], m)
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.complete[id] = v
	c.mu.Unlock()
	c.arm(time.Now().Add(completeAfter))
	return nil
}

// each does n things at once and returns their errors.
func each(n int, do func(i int) error) error {
	if n == 1 {
		return do(0)
	}
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// finisher carries one verdict to everybody who took part.
type finisher struct {
	over  chan struct{} // closed when it is done, or given up
	err   error         // why it was given up; read after over
	again bool          // asked for once more: it must not be given up for what was before; guarded by Coordinator.mu
}

// finish starts carrying the verdict on id, unless somebody does already. That one
// may be about to give up, for it began in an epoch that is over: then it begins anew.
func (c *Coordinator) finish(id string) *finisher {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.finishing[id]; f != nil {
		f.again = true
		return f
	}
	f := &finisher{over: make(chan struct{})}
	if c.closed {
		f.err = record.ErrClosed
		close(f.over)
		return f
	}
	c.finishing[id] = f
	c.wg.Go(func() {
		for again := true; again; {
			f.err = c.carry(id)
			c.mu.Lock()
			again = f.again && errors.Is(f.err, record.ErrNotLeader)
			f.again = false
			if !again {
				delete(c.finishing, id)
			}
			c.mu.Unlock()
		}
		close(f.over)
	})
	return f
}

// finished waits until the verdict on id has reached everybody.
func (c *Coordinator) finished(ctx context.Context, id string) error {
	f := c.finish(id)
	select {
	case <-f.over:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// carry sends the verdict on id until everybody has it, and writes that down. It
// gives up when this node does not lead any more: the next leader begins anew.
func (c *Coordinator) carry(id string) error {
	for backoff := firstBackoff; ; backoff = min(2*backoff, lastBackoff) {
		done, err := c.carryOnce(id)
		switch {
		case err == nil && done:
			return nil
		case errors.Is(err, record.ErrClosed):
			return err
		case errors.Is(err, record.ErrNotLeader):
			if _, follows := c.cfg.Partition.Leading(); follows != nil {
				return err
			} // it leads still, after a hand-over that failed, or again
		case err != nil:
			c.logger.Warn("the end of a transaction is not written down yet, trying again", "id", id, "in", backoff, "err", err)
		}
		if err := c.pause(backoff); err != nil {
			return err
		}
	}
}

func (c *Coordinator) carryOnce(id string) (done bool, err error) {
	var t *transaction
	var epoch record.LeaderEpoch
	// A decision, though it writes nothing: a new leader must have caught up.
	err = c.fold.ProposeFor(c.life, id, func(e record.LeaderEpoch) ([]record.Record, error) {
		t, epoch = c.state.transactions[id], e
		return nil, nil
	})
	if err != nil {
		return false, err
	}
	if t == nil || !t.Status.prepared() {
		return true, nil
	}
	m := record.Marker{Producer: t.Producer, Epoch: t.Epoch, Commit: t.Status == PrepareCommit, Coordinator: epoch}
	if err := c.markAll(id, t, m); err != nil {
		return false, err
	}
	return true, c.completed(id, Response{t.Producer, t.Epoch})
}

// completed writes down that everybody has the verdict.
func (c *Coordinator) completed(id string, who Response) error {
	fresh := record.NoProducerID
	for {
		err := c.fold.ProposeFor(c.life, id, func(record.LeaderEpoch) ([]record.Record, error) {
			now := time.Now()
			next, err := c.state.complete(id, who, fresh, now)
			if err != nil || next == nil {
				return nil, err
			}
			return []record.Record{encode(now, id, next)}, nil
		})
		if !errors.Is(err, errNeedID) {
			return err
		}
		if fresh, err = c.cfg.NewProducerID(c.life); err != nil {
			return err
		}
	}
}

// markAll returns when every participant has the marker.
func (c *Coordinator) markAll(id string, t *transaction, m record.Marker) error {
	ctx, cancel := context.WithCancel(c.life)
	defer cancel()
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		first error
	)
	send := func(what string, once func(ctx context.Context) error) {
		wg.Go(func() {
			if err := c.repeat(ctx, id, what, m.Coordinator, once); err != nil {
				mu.Lock()
				if first == nil {
					first = err
				}
				mu.Unlock()
				cancel()
			}
		})
	}
	for _, tp := range t.sorted() {
		send(tp.String(), func(ctx context.Context) error { return c.cfg.Participants.Mark(ctx, tp, m) })
	}
	for _, group := range t.Groups {
		send("group "+group, func(ctx context.Context) error { return c.cfg.Participants.Settle(ctx, group, m) })
	}
	wg.Wait()
	return first
}

// repeat does once until it succeeds, or this node does not lead in epoch any more.
func (c *Coordinator) repeat(ctx context.Context, id, what string, epoch record.LeaderEpoch, once func(ctx context.Context) error) error {
	for backoff := firstBackoff; ; backoff = min(2*backoff, lastBackoff) {
		try, cancel := context.WithTimeout(ctx, tryTimeout)
		err := once(try)
		cancel()
		switch {
		case err == nil, errors.Is(err, record.ErrUnknownTopic): // what is gone has no readers
			return nil
		case errors.Is(err, record.ErrFenced): // a newer coordinator is at it
			return &record.NotLeaderError{}
		case ctx.Err() != nil:
			return c.ended(ctx.Err())
		}
		if leads, err := c.cfg.Partition.Leading(); err != nil {
			return err
		} else if leads != epoch {
			return &record.NotLeaderError{}
		}
		c.logger.Warn("a marker was not taken, trying again", "id", id, "to", what, "in", backoff, "err", err)
		if err := sleep(ctx, backoff); err != nil {
			return c.ended(err)
		}
	}
}

func (c *Coordinator) pause(d time.Duration) error {
	if err := sleep(c.life, d); err != nil {
		return record.ErrClosed
	}
	return nil
}

// ended says why a wait ended, if it was the coordinator's end.
func (c *Coordinator) ended(err error) error {
	if c.life.Err() != nil {
		return record.ErrClosed
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
