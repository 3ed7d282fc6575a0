package consumer

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// aheadBatches is how many fetches of a partition wait for Poll; one more may
// be on its way.
const aheadBatches = 2

// claim is one partition that the member holds in its coordinator's eyes. Its
// feed is one goroutine, which the keeper starts and ends. Fields are guarded
// by Group.mu unless they say otherwise.
type claim struct {
	tp     record.TopicPartition
	wanted atomic.Bool // the coordinator lists it; written under Group.mu, Run looks without
	known  bool        // OnAssigned was called, so OnRevoked is due; the keeper's own
	ready  bool        // OnAssigned is done: Poll may hand out

	queue []Batch       // fetched, not handed out yet
	err   error         // why the feed ended; comes out of Poll after the queue
	space chan struct{} // capacity 1: the queue has become shorter

	cancel context.CancelFunc // ends the feed
	ended  chan struct{}      // closed when it has ended
}

func newClaim(tp record.TopicPartition) *claim {
	c := &claim{tp: tp, space: make(chan struct{}, 1)}
	c.wanted.Store(true)
	return c
}

// startFeed begins to fetch at pos. Called by the keeper, once.
func (g *Group) startFeed(c *claim, pos record.Offset) {
	ctx, cancel := context.WithCancel(g.life)
	c.cancel, c.ended = cancel, make(chan struct{})
	g.wg.Go(func() {
		defer close(c.ended)
		if err := g.feed(ctx, c, pos); ctx.Err() == nil {
			g.stall(c, err)
		}
	})
}

// stall makes err come out of Poll in the claim's turn, after what is queued.
func (g *Group) stall(c *claim, err error) {
	g.mu.Lock()
	c.err = place(c.tp, err)
	g.mu.Unlock()
	signal(g.wake)
}

// stopFeed ends the feed, if there is one, and waits for it. Called by the
// keeper and, after that has ended, by Close.
func (c *claim) stopFeed() {
	if c.cancel == nil {
		return
	}
	c.cancel()
	<-c.ended
}

// feed fetches until ctx ends or there is an error that waiting cannot mend,
// and returns which.
func (g *Group) feed(ctx context.Context, c *claim, pos record.Offset) error {
	cur := cursor{src: g.src, tp: c.tp, pos: pos, maxBytes: g.cfg.MaxPollBytes, iso: g.cfg.Isolation}
	beyond := 0 // answers in a row that called pos too high
	for {
		ch, err := cur.fetch(ctx)
		var outside *record.OffsetRangeError
		switch {
		case err == nil:
			beyond = 0
		case errors.As(err, &outside):
			if beyond++; cur.pos > outside.End && beyond < beyondTries {
				// A leader that is new may not know yet how far the log is
				// committed. To start over on its word would repeat everything.
				if err := pause(ctx, g.cfg.HeartbeatInterval); err != nil {
					return err
				}
				continue
			}
			g.logger.Warn("position is not in the log, reading from its start",
				"partition", c.tp, "position", cur.pos, "start", outside.Start, "end", outside.End)
			cur.pos, beyond = outside.Start, 0
			continue
		case mayPass(err):
			g.logger.Warn("fetch failed, trying again", "partition", c.tp, "position", cur.pos, "err", err)
			if err := pause(ctx, g.cfg.HeartbeatInterval); err != nil {
				return err
			}
			continue
		default:
			return err
		}

		b, err := ch.decode()
		if err != nil {
			return err
		}
		if len(b.Records) == 0 {
			continue
		}
		b.claim = c
		if err := g.push(ctx, b); err != nil {
			return err
		}
	}
}

// beyondTries is how often a log must say in a row that it ends below the
// position before it is believed.
const beyondTries = 10

// push queues a batch for Poll and waits while the queue is full.
func (g *Group) push(ctx context.Context, b Batch) error {
	c := b.claim
	for {
		g.mu.Lock()
		full := len(c.queue) >= aheadBatches
		if !full {
			b.generation = g.generation
			c.queue = append(c.queue, b)
		}
		g.mu.Unlock()
		if !full {
			signal(g.wake)
			return nil
		}
		select {
		case <-c.space:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// decode unpacks all records of the chunk that a user may see.
func (ch *chunk) decode() (Batch, error) {
	b := Batch{Topic: ch.tp.Topic, Partition: ch.tp.Partition, next: ch.next}
	count, size := 0, 0
	for _, raw := range ch.batches {
		if !raw.IsControl() {
			count, size = count+int(raw.Count()), size+len(raw)
		}
	}
	// The count is the writer's word: it sizes memory only as far as the bytes
	// make it credible (seven is the smallest record). One more is for the try
	// that finds the end.
	records := make([]record.Record, 0, min(count, size/7)+1)
	blank := record.Record{Topic: b.Topic, Partition: b.Partition}
	var it record.Iterator
	for _, raw := range ch.batches {
		if raw.IsControl() {
			continue
		}
		if err := it.Reset(raw); err != nil {
			return Batch{}, err
		}
		for {
			records = append(records, blank)
			last := len(records) - 1
			if !it.Next(&records[last]) {
				records = records[:last]
				break
			}
			if records[last].Offset < ch.from {
				records = records[:last]
			}
		}
		if err := it.Err(); err != nil {
			return Batch{}, err
		}
	}
	b.Records = records
	return b, nil
}

// signal wakes the one goroutine that waits on ch, or lets the next wait pass.
func signal(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// pause waits for d or for the end of ctx, whose error it returns.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
