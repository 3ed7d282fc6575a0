package producer

import (
	"context"
	"errors"

	"github.com/quorumlog/quorumlog/record"
)

// Result says where a record went.
type Result struct {
	Topic     string
	Partition int32
	Offset    record.Offset // NoOffset with AckNone, or when a duplicate's offset is forgotten
	Duplicate bool          // an earlier try had been written already
}

// Producer sends records to a cluster. See the package comment.
type Producer struct{}

// New returns a producer that works on c. It talks to the cluster with the
// first send only; that is also when a named producer fences an older one.
func New(c Cluster, cfg Config) (*Producer, error) { return nil, errors.ErrUnsupported }

// Send sends r and waits for its result. When ctx ends first, the error says
// whether r may still be written: *record.OutcomeUnknownError, or
// *NotWrittenError when it was still waiting here and has been taken back.
// Both wrap ctx.Err().
func (p *Producer) Send(ctx context.Context, r record.Record) (Result, error) {
	return Result{}, errors.ErrUnsupported
}

// SendAsync sends r and returns once it is in the buffer. It waits for space,
// and with a topic's first record for the number of its partitions, no longer
// than ctx; ctx means nothing to r after that.
//
// done, which may be nil, is called exactly once: before SendAsync returns when
// r is refused at once, otherwise on the producer's own goroutine, one callback
// after the other. A slow callback delays other callbacks, not sending.
func (p *Producer) SendAsync(ctx context.Context, r record.Record, done func(Result, error)) {}

// TrySendAsync is SendAsync that refuses r with record.ErrOverloaded where
// SendAsync would wait for space in the buffer.
func (p *Producer) TrySendAsync(ctx context.Context, r record.Record, done func(Result, error)) {}

// Flush sends what is in the buffer without lingering and waits until every
// record sent before the call has its result and its callback has returned.
// It does not say whether they were written. Not to be called from a callback.
func (p *Producer) Flush(ctx context.Context) error { return errors.ErrUnsupported }

// Close refuses new records, flushes, and ends the producer's goroutines. When
// ctx ends first it gives up what is left, whose results say whether it was
// written, and returns ctx.Err(). It may be called again; not from a callback.
func (p *Producer) Close(ctx context.Context) error { return errors.ErrUnsupported }
