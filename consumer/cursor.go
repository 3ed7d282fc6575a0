package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorumlog/quorumlog/record"
)

// cursor is a position in one partition. It is used by one goroutine.
type cursor struct {
	src      Source
	tp       record.TopicPartition
	pos      record.Offset // next offset to fetch
	maxBytes int
	iso      record.Isolation
}

// chunk is what one fetch brought: records at from and above count, those
// below only share the first batch with them.
type chunk struct {
	tp      record.TopicPartition
	from    record.Offset
	next    record.Offset // the position after the chunk
	batches []record.Batch
}

// fetch waits for the next batches and moves the position behind them, also
// when they hold nothing a user may see.
func (c *cursor) fetch(ctx context.Context) (chunk, error) {
	for {
		f, err := c.src.Fetch(ctx, c.tp, c.pos, c.maxBytes, c.iso)
		if err != nil {
			return chunk{}, err
		}
		if len(f.Batches) == 0 && f.Next <= c.pos {
			if err := ctx.Err(); err != nil {
				return chunk{}, err
			}
			continue
		}
		for _, b := range f.Batches {
			if err := b.CheckHeader(); err != nil {
				return chunk{}, err
			}
		}
		next := f.Next
		if n := len(f.Batches); n > 0 {
			next = max(next, f.Batches[n-1].NextOffset())
		}
		if next <= c.pos {
			return chunk{}, &record.BatchError{
				BaseOffset: f.Batches[0].BaseOffset(),
				Reason:     fmt.Sprintf("ends at %d, but %d was asked for", next, c.pos),
			}
		}
		ch := chunk{tp: c.tp, from: c.pos, next: next, batches: f.Batches}
		c.pos = next
		return ch, nil
	}
}

// place adds to err which partition it happened in, unless the error says so itself.
func place(tp record.TopicPartition, err error) error {
	switch {
	case errors.Is(err, record.ErrOffsetOutOfRange), errors.Is(err, record.ErrUnknownTopic), errors.Is(err, record.ErrNotLeader):
		return err
	}
	return fmt.Errorf("read %v: %w", tp, err)
}
