package consumer

import (
	"context"
	"slices"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// Batch is a run of records of one partition, as one Poll hands them out. Its
// slices belong to the caller.
type Batch struct {
	Topic     string
	Partition int32
	Records   []record.Record // at least one, in offset order

	next   record.Offset // what committing the batch commits
	claim  *claim
	packed []record.Batch // instead of Records, until somebody takes it
	from   record.Offset  // of packed, what lies below does not count
	each   int            // bytes of a record, on average
}

// TopicPartition returns the partition of the batch.
func (b *Batch) TopicPartition() record.TopicPartition {
	return record.TopicPartition{Topic: b.Topic, Partition: b.Partition}
}

// Poll returns the next records of one of the owned partitions, which take
// turns, and waits until there are some. Call it from one goroutine at a time.
//
// The batch before counts as dealt with, committed or not: its partition may
// now move to another member. Errors are those that waiting cannot mend:
// [record.ErrClosed] after Close, a topic that is gone, damaged data. An error
// of one partition comes up in its turn each time; the others go on.
func (g *Group) Poll(ctx context.Context) (Batch, error) {
	g.mu.Lock()
	g.polls++
	g.polling = true
	if g.out != nil {
		g.out = nil
		signal(g.tidy)
	}
	g.mu.Unlock()
	defer g.pollEnded()
	for {
		select {
		case <-g.closing:
			return Batch{}, g.closedError()
		case <-ctx.Done():
			return Batch{}, ctx.Err()
		default:
		}
		b, ok, err := g.take()
		if err != nil {
			return Batch{}, err
		}
		if ok {
			if err := g.unpack(&b); err != nil {
				return Batch{}, place(b.TopicPartition(), err)
			}
			if len(b.Records) > 0 {
				return b, nil
			}
			g.passOver(b)
			continue
		}
		select {
		case <-g.wake:
		case <-g.closing:
		case <-ctx.Done():
		}
	}
}

// passOver forgets a batch from take that holds nothing for a user.
func (g *Group) passOver(b Batch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.out == b.claim {
		g.out = nil
		signal(g.tidy)
	}
}

func (g *Group) pollEnded() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.polling, g.active = false, time.Now()
}

// take picks the next batch, if there is one.
func (g *Group) take() (Batch, bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return Batch{}, false, g.err
	}
	for i := range g.ring {
		at := (g.turn + i) % len(g.ring)
		c := g.ring[at]
		if !c.ready || c.halted() {
			continue
		}
		if len(c.queue) > 0 {
			b := c.queue[0]
			c.queue = slices.Delete(c.queue, 0, 1)
			g.out, g.outNext = c, b.next
			g.turn = at + 1
			signal(c.space)
			return b, true, nil
		}
		if c.err != nil {
			g.turn = at + 1
			return Batch{}, false, c.err
		}
	}
	return Batch{}, false, nil
}
