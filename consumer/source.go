package consumer

import (
	"context"
	"time"

	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/record"
)

// Source is the topics as a consumer sees them: a node, or a test's slices.
// Any number of goroutines may call it at once.
type Source interface {
	// Partitions returns how many partitions the topic has.
	Partitions(ctx context.Context, topic string) (int, error)
	// Fetch returns whole, checked batches of about maxBytes, at least one,
	// beginning with the one that holds from. It waits until there is one, and
	// returns soon after ctx ends. That a message was lost on the way, it must
	// notice by itself. An empty answer makes the reader ask again.
	Fetch(ctx context.Context, tp record.TopicPartition, from record.Offset, maxBytes int, iso record.Isolation) (record.Fetched, error)
	// Offsets returns the first readable offset and the end: the last stable
	// offset, or with record.ReadUncommitted the high watermark.
	Offsets(ctx context.Context, tp record.TopicPartition, iso record.Isolation) (start, end record.Offset, err error)
	// OffsetForTime returns the offset of the first readable record, in offset
	// order, whose time is t or later; false if there is none.
	OffsetForTime(ctx context.Context, tp record.TopicPartition, t time.Time) (record.Offset, bool, error)
}

// Near is a [Source] that can also be read beside the leader: FetchNear is Fetch
// from a replica that is close by, and may be a little behind.
type Near interface {
	FetchNear(ctx context.Context, tp record.TopicPartition, from record.Offset, maxBytes int, iso record.Isolation) (record.Fetched, error)
}

// nearest is a Source whose Fetch is that of Near.
type nearest struct {
	Source
	near Near
}

func (n nearest) Fetch(ctx context.Context, tp record.TopicPartition, from record.Offset, maxBytes int, iso record.Isolation) (record.Fetched, error) {
	return n.near.FetchNear(ctx, tp, from, maxBytes, iso)
}

// Coordinator keeps the groups: who is a member, who owns which partition, and
// the committed offsets. It finds the right node, notices lost messages and
// retries leader changes until ctx ends. Package group says what the answers mean.
type Coordinator interface {
	Group(ctx context.Context, group string, req group.Request) (group.Response, error)
}
