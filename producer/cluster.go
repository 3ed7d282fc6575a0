package producer

import (
	"context"

	"github.com/quorumlog/quorumlog/record"
)

// Reader is what Config.Dedupe needs of a Cluster beside.
type Reader interface {
	// Offsets returns the log start offset and, for record.ReadUncommitted, the
	// high watermark. What a leader had taken before the call lies below it.
	Offsets(ctx context.Context, tp record.TopicPartition, iso record.Isolation) (start, high record.Offset, err error)
	// Fetch returns whole batches from the one that holds from on, which is below
	// the high watermark; *record.OffsetRangeError below the log start offset.
	Fetch(ctx context.Context, tp record.TopicPartition, from record.Offset, maxBytes int, iso record.Isolation) (record.Fetched, error)
}

// Cluster is the log as a producer sees it: a node, or a test's fake.
type Cluster interface {
	// Layout returns the id of topic and how many partitions it has. It may
	// create the topic. *record.UnknownTopicError when there is none.
	Layout(ctx context.Context, topic string) (record.TopicID, int, error)

	// Append hands b to the leader of tp and never blocks. Batches of one
	// partition that one goroutine appends are tried in that order. done is
	// called exactly once, on any goroutine, maybe before Append returns, and
	// soon after ctx has ended; it must not block.
	//
	// id is the topic that is meant, from Layout: with another one of the name, or
	// none, the answer is *record.UnknownTopicError.
	//
	// b is given away. Whoever gets it may stamp base offset and leader epoch
	// in place, and changes nothing else in it, ever: the producer reads the
	// other bytes again when it has to repeat the batch.
	Append(ctx context.Context, id record.TopicID, tp record.TopicPartition, b record.Batch, acks record.Acks, done func(record.Appended, error))

	// NewProducer returns an identity for the producer of that name, with a
	// higher epoch than any before; without a name it is a fresh id.
	NewProducer(ctx context.Context, name string) (record.ProducerID, record.ProducerEpoch, error)

	// RenewProducer returns the next identity of the producer that holds name as
	// (id, epoch), with a higher epoch, or *record.FencedError when another has
	// taken the name since. Asked again with the same arguments it gives the same
	// answer.
	RenewProducer(ctx context.Context, name string, id record.ProducerID, epoch record.ProducerEpoch) (record.ProducerID, record.ProducerEpoch, error)
}
