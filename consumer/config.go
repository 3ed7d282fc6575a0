package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/record"
)

// StartAt says where a group begins in a partition without a committed offset.
type StartAt int8

const (
	// AtStart begins with the oldest record. Default: nothing is missed.
	AtStart StartAt = iota
	// AtEnd begins behind the last record, as it is when the partition is
	// assigned for the first time. Partitions that a topic gets when the group has
	// read it already begin with their first record all the same.
	AtEnd
)

// Config says how a member of a group behaves. Config{} works.
type Config struct {
	// ClientID names this process in the coordinator's member list.
	ClientID string
	// InstanceID makes the member a static one: with Close it does not leave, and
	// whoever joins with its id within its session timeout takes its partitions
	// over, so that a restart moves nothing. Of two clients with the same id the
	// one that started last stays, and the other's Poll and Run end with
	// [record.ErrFenced]. Default "": Close leaves.
	InstanceID string
	// Assignor is the rule that spreads partitions over members: [group.Sticky],
	// [group.Range] or [group.RoundRobin]; what most members ask for is used.
	// Default: sticky, which moves as few partitions as possible.
	Assignor string
	// SessionTimeout is how long the coordinator waits for a heartbeat before
	// it gives the member's partitions to others. Default 10 s.
	SessionTimeout time.Duration
	// HeartbeatInterval is how often the member reports, and so about how soon
	// it learns of a change. Default 200 ms.
	HeartbeatInterval time.Duration
	// ProgressTimeout is how long a handler may be at one record, or the caller
	// between two calls of Poll while there are records, before the member gives
	// all its partitions up to others. It joins again when the handler returns or
	// Poll is called. SessionTimeout tells that a process is gone, from outside;
	// this tells, from inside, that it lives and does nothing. It also bounds how
	// long a member that was fenced tries to join again before Poll and Run return
	// the reason. Default 5 minutes.
	ProgressTimeout time.Duration
	// MaxPollBytes is about how many bytes (as stored) one Poll hands out; at
	// least one batch comes whatever the limit. Each owned partition holds up
	// to three times as much. Default [DefaultMaxBytes].
	MaxPollBytes int
	// Workers is how many records Run handles at a time. With one, the records of
	// a partition are handled in order; with more, those of each key in a
	// partition are, and records without a key are in no order. Default 1.
	Workers int
	// MaxInFlight is how many records of a partition Run has between the first
	// unfinished one and the last one it has begun or is about to. Default 10,000.
	MaxInFlight int
	// MaxInFlightBytes bounds the keys, values and headers of these records; one
	// record goes whatever its size. Default 16 MiB.
	MaxInFlightBytes int
	// Commit says when Run commits. Default [AfterHandler].
	Commit CommitMoment
	// CommitInterval is the time between two commits [OnTimer]. Default 5 s.
	CommitInterval time.Duration
	// Retry says what becomes of records whose handler fails. Default: the first
	// failure ends Run with its error.
	Retry RetryPolicy
	// Mover moves the records that Retry is about. Node.Group sets it.
	Mover Mover
	// StartAt counts where no offset is committed. Default [AtStart].
	StartAt StartAt
	// ResumeAt says where to begin in newly owned partitions, for who keeps its
	// offsets in a database of its own, in the transactions that hold its results:
	// that makes the results exactly once. For each partition it returns the
	// offset of the next record to handle; those it leaves out begin at the
	// committed offset. It runs before OnAssigned, on the same goroutine; its error
	// comes out of Poll and Run. A member that lost a partition and does not know
	// it yet must be refused by the database: store offset o+1 only where o, or
	// less, is stored. Run commits to the coordinator all the same, so that lag is
	// visible there; nothing depends on it.
	ResumeAt func(ctx context.Context, tps []record.TopicPartition) (map[record.TopicPartition]record.Offset, error)
	// Isolation says what is seen of transactions. Default [record.ReadCommitted]; so
	// the group's retry topics are read in any case.
	Isolation record.Isolation
	// OnAssigned is called before the first record of newly owned partitions is
	// handed out, OnRevoked before partitions are given up, or after they were
	// lost with the session. Both run on a goroutine of the member's, one call
	// at a time, while Poll goes on with other partitions. They may commit; they
	// must not call Close. ctx ends when the member closes.
	OnAssigned, OnRevoked func(ctx context.Context, tps []record.TopicPartition)
	// Logger gets what an operator should know. Default silent.
	Logger *slog.Logger
}

// maxWorkers bounds the goroutines and lanes of one member.
const maxWorkers = 1024

func (c Config) withDefaults() Config {
	c.SessionTimeout = cmp.Or(c.SessionTimeout, 10*time.Second)
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, 200*time.Millisecond)
	c.ProgressTimeout = cmp.Or(c.ProgressTimeout, 5*time.Minute)
	c.MaxPollBytes = cmp.Or(c.MaxPollBytes, DefaultMaxBytes)
	c.Workers = cmp.Or(c.Workers, 1)
	c.MaxInFlight = cmp.Or(c.MaxInFlight, 10_000)
	c.MaxInFlightBytes = cmp.Or(c.MaxInFlightBytes, 16<<20)
	c.CommitInterval = cmp.Or(c.CommitInterval, 5*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Retry.active() {
		c.Retry = c.Retry.withDefaults()
	}
	nothing := func(context.Context, []record.TopicPartition) {}
	if c.OnAssigned == nil {
		c.OnAssigned = nothing
	}
	if c.OnRevoked == nil {
		c.OnRevoked = nothing
	}
	return c
}

// Validate reports everything that is wrong with c, not only the first thing.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	if c.HeartbeatInterval < 0 {
		errs = append(errs, fmt.Errorf("HeartbeatInterval is %v, want more than 0", c.HeartbeatInterval))
	}
	if c.SessionTimeout < 2*c.HeartbeatInterval || c.SessionTimeout < 0 {
		errs = append(errs, fmt.Errorf("SessionTimeout is %v, want at least two heartbeat intervals (%v each), or one lost heartbeat loses all partitions", c.SessionTimeout, c.HeartbeatInterval))
	}
	if c.ProgressTimeout < c.HeartbeatInterval {
		errs = append(errs, fmt.Errorf("ProgressTimeout is %v, want at least a heartbeat interval, %v: it is looked at so often", c.ProgressTimeout, c.HeartbeatInterval))
	}
	if c.MaxPollBytes < 0 {
		errs = append(errs, fmt.Errorf("MaxPollBytes is %d, want at least 1", c.MaxPollBytes))
	}
	if c.Workers < 1 || c.Workers > maxWorkers {
		errs = append(errs, fmt.Errorf("%d Workers, want 1 to %d", c.Workers, maxWorkers))
	}
	if c.MaxInFlight < 1 || c.MaxInFlightBytes < 1 {
		errs = append(errs, fmt.Errorf("MaxInFlight is %d and MaxInFlightBytes is %d, want at least 1 each", c.MaxInFlight, c.MaxInFlightBytes))
	}
	if c.Retry.active() {
		errs = append(errs, c.Retry.validate()...)
		if c.Mover == nil {
			errs = append(errs, errors.New("there is a Retry policy but no Mover to move records"))
		}
	}
	if c.Commit < AfterHandler || c.Commit > ByHand {
		errs = append(errs, fmt.Errorf("the moment of Commit is %v, which is unknown", c.Commit))
	}
	if c.CommitInterval < 0 {
		errs = append(errs, fmt.Errorf("CommitInterval is %v, want more than 0", c.CommitInterval))
	}
	if !slices.Contains([]string{"", group.Sticky, group.Range, group.RoundRobin}, c.Assignor) {
		errs = append(errs, fmt.Errorf("the Assignor %q is unknown, want %q, %q or %q", c.Assignor, group.Sticky, group.Range, group.RoundRobin))
	}
	if c.StartAt != AtStart && c.StartAt != AtEnd {
		errs = append(errs, fmt.Errorf("StartAt is %d, want AtStart or AtEnd", c.StartAt))
	}
	if c.Isolation != record.ReadCommitted && c.Isolation != record.ReadUncommitted {
		errs = append(errs, fmt.Errorf("Isolation is %d, want ReadCommitted or ReadUncommitted", c.Isolation))
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("consumer config: %w: %w", record.ErrInvalid, errors.Join(errs...))
}
