package group

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/quorumlog/quorumlog/internal/fold"
	"github.com/quorumlog/quorumlog/record"
)

// Config says which groups a coordinator keeps. Partition and Partitions are required.
type Config struct {
	// Partition is the one of __consumer_offsets that holds the groups.
	Partition fold.Partition
	// Partitions returns how many partitions a topic has as far as this node
	// knows, 0 if it knows of no such topic. It must not wait. What a group
	// once has seen does not shrink.
	Partitions func(topic string) int
	// SessionTimeout is for members that name none. Default 10 s.
	SessionTimeout time.Duration
	// MaxMembers is how many members a group may have. Default 1,000.
	MaxMembers int
	Logger     *slog.Logger // default silent
}

// Coordinator keeps the groups of one partition of __consumer_offsets. There
// is one on every node that holds a replica of it; the leader's answers. Its
// methods may be called at once. It owns a fold and one goroutine, which Start
// starts and Close ends.
type Coordinator struct{}

// Start begins to follow the partition.
func Start(cfg Config) *Coordinator { return &Coordinator{} }

// Do answers one request.
//
// *[record.FencedError]: the coordinator does not know the member (any more),
// which must join again under a new id; or, for a commit, a partition is not
// the member's, and nothing of the request was stored. *[FullError] and
// [record.ErrInvalid]: nothing was done. *[record.NotLeaderError]: ask the node
// that leads. *[record.OutcomeUnknownError]: send the request again.
func (c *Coordinator) Do(ctx context.Context, group string, req Request) (Response, error) {
	return Response{}, errors.New("not built yet")
}

// View shows what this node knows of the groups; on a follower that may be old.
// fn must not keep s.
func (c *Coordinator) View(fn func(s *State)) {}

// Close ends the coordinator. Idempotent.
func (c *Coordinator) Close() {}

var _ record.Offset
