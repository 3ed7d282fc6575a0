package consumer

import (
	"context"
	"errors"
	"slices"
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

	paused atomic.Bool // by Pause; written under Group.mu, workers look without

	queue []Batch       // fetched, not handed out yet; packed unless it was given back
	err   error         // why the feed ended; comes out of Poll after the queue
	space chan struct{} // capacity 1: the queue has become shorter

	taking   bool          // a batch of it is on its way into the window
	win      *window       // of the Run in progress, once it has handed something out
	done     record.Offset // all below is finished by Run: as far as a commit may go
	stored   record.Offset // as far as one went; NoOffset before the first Run
	keysRead bool          // the retry topics were read since it was granted; guarded by keys.mu
	fenced   bool          // the coordinator refuses its commits
	moving   chan struct{} // capacity 1: held while a record is moved with its commit, or a Seek moves the claim
	doubt    atomic.Int64  // offset behind the record of which it is not known whether it was moved; 0 for none

	era    int                // counts the calls of Seek
	seek   record.Offset      // where the feed is to go on; NoOffset unless Seek was called
	cancel context.CancelFunc // ends the feed
	ended  chan struct{}      // closed when it has ended
}

func newClaim(tp record.TopicPartition) *claim {
	c := &claim{tp: tp, space: make(chan struct{}, 1), moving: make(chan struct{}, 1), done: record.NoOffset, stored: record.NoOffset, seek: record.NoOffset}
	c.wanted.Store(true)
	return c
}

// halted reports whether nothing of the claim may be handed out now.
func (c *claim) halted() bool { return !c.wanted.Load() || c.paused.Load() }

// busy reports whether the claim cannot be given up yet: records of it are being
// handled, or what is finished is not committed. saves says whether Run commits
// by itself.
func (c *claim) busy(saves bool) bool {
	if c.win == nil || c.taking {
		return c.taking
	}
	return c.win.running > 0 || saves && c.done != c.stored && !c.fenced
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
	if c.seek == record.NoOffset {
		c.err = place(c.tp, err)
	}
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
	cur := cursor{src: g.src, tp: c.tp, pos: pos, maxBytes: g.cfg.MaxPollBytes, iso: g.isolation(c.tp.Topic)}
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

		b := Batch{Topic: c.tp.Topic, Partition: c.tp.Partition, next: ch.next, claim: c, packed: ch.batches, from: ch.from}
		if err := g.push(ctx, b); err != nil {
			return err
		}
	}
}

// isolation returns what is seen of transactions in a topic. What was moved counts when
// it is committed where it was: else it would be handled in both places.
func (g *Group) isolation(topic string) record.Isolation {
	if g.stages != nil {
		if _, moved := g.stages.entered[topic]; moved {
			return record.ReadCommitted
		}
	}
	return g.cfg.Isolation
}

// beyondTries is how often a log must say in a row that it ends below the
// position before it is believed.
const beyondTries = 10

// push queues a batch for Poll and waits while the queue is full.
func (g *Group) push(ctx context.Context, b Batch) error {
	c := b.claim
	for {
		g.mu.Lock()
		full := len(c.queue) >= aheadBatches || c.seek != record.NoOffset || c.err != nil
		if !full {
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

// memory returns a slice for records that an earlier batch is through with, or nil.
func (g *Group) memory() []record.Record {
	select {
	case s := <-g.spare:
		return s
	default:
		return nil
	}
}

// unpack decodes the records of a batch as it comes from a feed; there may be
// none. It is left to who takes the batch, who has another processor for it. An
// error ends the feed: the data is damaged.
func (g *Group) unpack(b *Batch) error {
	if b.packed == nil {
		return nil
	}
	ch := chunk{tp: b.TopicPartition(), from: b.from, batches: b.packed}
	records, bytes, err := ch.decode(g.memory())
	if err != nil {
		b.claim.cancel()
		g.stall(b.claim, err)
		g.mu.Lock()
		b.claim.queue = nil // what is behind the damage is not handed out
		g.mu.Unlock()
		return err
	}
	b.Records, b.packed = records, nil
	b.each = bytes / max(1, len(records))
	return nil
}

// decode unpacks all records of the chunk that a user may see, into records if
// there is room. bytes is what they count as.
func (ch *chunk) decode(records []record.Record) (_ []record.Record, bytes int, err error) {
	count, stored := 0, 0
	for _, raw := range ch.batches {
		if !raw.IsControl() {
			count, stored = count+int(raw.Count()), stored+len(raw)
		}
	}
	// The count is the writer's word: it sizes memory only as far as the bytes
	// make it credible (seven is the smallest record). One more is for the try
	// that finds the end.
	if n := min(count, stored/7) + 1; cap(records) < n {
		records = make([]record.Record, 0, n)
	}
	var it record.Iterator
	for _, raw := range ch.batches {
		if raw.IsControl() {
			continue
		}
		if err := it.Reset(raw); err != nil {
			return nil, 0, err
		}
		for {
			last := len(records)
			if last == cap(records) {
				records = slices.Grow(records, 1)
			}
			// What was in the memory is written over: Next sets all other fields.
			records = records[:last+1]
			records[last].Topic, records[last].Partition = ch.tp.Topic, ch.tp.Partition
			if !it.Next(&records[last]) {
				records = records[:last]
				break
			}
			if records[last].Offset < ch.from {
				records = records[:last]
				continue
			}
			bytes += size(&records[last])
		}
		if err := it.Err(); err != nil {
			return nil, 0, err
		}
	}
	return records, bytes, nil
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
