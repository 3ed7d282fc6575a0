package group

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
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
	// Made tells topics of one name apart: a topic has a higher number than the one
	// that had its name before; 0 if this node knows of none. It must not wait. What a
	// group has seen of a topic with a lower number counts no more. Default: always 0.
	Made func(topic string) record.Offset
	// TopicID returns the id of the topic that has the name now, the zero id if this
	// node knows of none. It must not wait. Default: always the zero id.
	TopicID func(topic string) record.TopicID
	// SessionTimeout is for members that name none. Default 10 s.
	SessionTimeout time.Duration
	// OffsetsRetention is how long the offsets of a group without members are kept
	// after its last member went or, if later, after they were committed; then the
	// group is forgotten. Those of a group with members are kept. Default 7 days.
	OffsetsRetention time.Duration
	// MaxMembers is how many members a group may have. Default 1,000.
	MaxMembers int
	// Forgetful tells whether the coordinators of transactions may lose what they have
	// acknowledged when power is cut. It must not wait. Then what a transaction has pending
	// holds nobody up any more after 30 minutes: perhaps nobody knows of it who would settle
	// it. Default: never.
	Forgetful func() bool
	// CompactionFloor is as fold.Compaction.Floor. Default 4 MiB.
	CompactionFloor int64
	Logger          *slog.Logger // default silent
}

// Coordinator keeps the groups of one partition of __consumer_offsets. There
// is one on every node that holds a replica of it; the leader's answers. Its
// methods may be called at once. It owns a fold and one goroutine, which Start
// starts and Close ends.
type Coordinator struct {
	rules    rules
	logger   *slog.Logger
	fold     *fold.Fold
	state    *State   // under the fold's lock
	sessions sessions // under the fold's lock
	keep     time.Duration

	life context.Context // ends with Close
	end  context.CancelFunc
	wg   sync.WaitGroup
}

// retryAfter is when to try again to end sessions that could not be ended.
const retryAfter = time.Second

// Start begins to follow the partition.
func Start(cfg Config) *Coordinator {
	c := &Coordinator{
		rules:  rules{partitions: cfg.Partitions, made: cfg.Made, id: cfg.TopicID, maxMembers: cmp.Or(cfg.MaxMembers, 1000), forgetful: cfg.Forgetful},
		logger: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		keep:   cmp.Or(cfg.OffsetsRetention, 7*24*time.Hour),
		sessions: sessions{
			standard:  cmp.Or(cfg.SessionTimeout, 10*time.Second),
			deadlines: map[memberKey]time.Time{},
			timer:     time.NewTimer(time.Hour),
		},
	}
	c.sessions.disarm()
	c.life, c.end = context.WithCancel(context.Background())
	c.fold = fold.Start(fold.Config{
		Partition: cfg.Partition,
		Compaction: &fold.Compaction{
			New:   func() fold.State { return NewState() },
			Show:  func(s fold.State) { c.state = s.(*State) },
			Floor: cfg.CompactionFloor,
		},
		Logger: c.logger,
	})
	c.wg.Go(c.watch)
	return c
}

// Close ends the coordinator. Requests in progress return [record.ErrClosed],
// or *[record.OutcomeUnknownError]. Idempotent.
func (c *Coordinator) Close() {
	c.end()
	c.fold.Close()
	c.wg.Wait()
}

// Do answers one request.
//
// *[record.FencedError]: the coordinator does not know the member (any more),
// which must join again under a new id; or, for a commit, a partition is not
// the member's, and nothing of the request was stored. *[FullError] and
// [record.ErrInvalid]: nothing was done. [record.ErrNotLeader]: ask the node
// that leads. [record.ErrPending]: ask again when the transaction has ended.
// *[record.OutcomeUnknownError]: send the request again.
func (c *Coordinator) Do(ctx context.Context, group string, req Request) (Response, error) {
	if err := req.check(group); err != nil {
		return Response{}, err
	}
	switch req.Op {
	case OpCommitted:
		return c.committed(ctx, group, req)
	case OpDescribe:
		return c.describe(ctx, group)
	}
	var answer Response
	err := c.fold.Propose(ctx, func(epoch record.LeaderEpoch) ([]record.Record, error) {
		now := time.Now()
		c.sessions.begin(epoch, c.state, now)
		records, a, err := c.state.decide(c.rules, group, req, now)
		if err != nil {
			return nil, err
		}
		answer = a
		switch req.Op {
		case OpJoin:
			c.sessions.touch(memberKey{group, req.Member}, req.SessionTimeout, now)
		case OpHeartbeat:
			c.sessions.touch(memberKey{group, req.Member}, c.state.groups[group].members[req.Member].session, now)
		}
		return records, nil
	})
	if err != nil {
		return Response{}, err
	}
	return answer, nil
}

// committed looks offsets up in a state that no other leader can be ahead of:
// a new owner must not begin below what the last one has committed.
func (c *Coordinator) committed(ctx context.Context, group string, req Request) (Response, error) {
	var answer Response
	var pending error
	err := c.fold.Read(ctx, func() {
		answer.Generation = c.state.Generation(group)
		for _, tp := range req.Partitions {
			answer.Offsets = append(answer.Offsets, c.state.Committed(group, tp))
			pending = cmp.Or(pending, c.state.unsettled(c.rules, group, tp, time.Now()))
		}
	})
	if err == nil {
		err = pending
	}
	if err != nil {
		return Response{}, err
	}
	return answer, nil
}

// describe shows a group as no other leader can know it better.
func (c *Coordinator) describe(ctx context.Context, group string) (answer Response, err error) {
	err = c.fold.Read(ctx, func() {
		answer = Response{
			Generation: c.state.Generation(group),
			Members:    c.state.Members(group),
			Offsets:    c.state.offsetsOf(group),
		}
	})
	return answer, err
}

// View shows what this node knows of the groups; on a follower that may be old.
// fn must not keep s.
func (c *Coordinator) View(fn func(s *State)) {
	c.fold.View(func() { fn(c.state) })
}

// watch ends the memberships of those who are not heard of. It is the
// coordinator's own goroutine. A leader that is new sets its timer with the
// first request: until then nobody waits for anybody to be gone.
func (c *Coordinator) watch() {
	old := time.NewTicker(min(c.keep, time.Hour))
	defer old.Stop()
	for {
		select {
		case <-old.C:
			c.forget()
		case <-c.sessions.timer.C:
			c.expire()
		case <-c.life.Done():
			c.sessions.timer.Stop()
			return
		}
	}
}

func (c *Coordinator) expire() {
	err := c.fold.Propose(c.life, func(epoch record.LeaderEpoch) (records []record.Record, err error) {
		now := time.Now()
		c.sessions.begin(epoch, c.state, now)
		over := c.sessions.expired(c.state, now)
		for _, name := range slices.Sorted(maps.Keys(over)) {
			slices.Sort(over[name])
			c.logger.Info("members were not heard of within their session", "group", name, "members", over[name])
			rs, err := c.state.expire(c.rules, name, over[name], now)
			if err != nil {
				return nil, err
			}
			records = append(records, rs...)
		}
		return records, nil
	})
	if err == nil || errors.Is(err, record.ErrClosed) {
		return
	}
	// View keeps decisions out, and no other reader touches the sessions.
	c.fold.View(func() {
		c.sessions.disarm()
		if errors.Is(err, record.ErrNotLeader) {
			c.sessions.epoch = 0 // whoever leads next begins anew, this node as well
			return
		}
		c.logger.Warn("sessions could not be ended, trying again", "in", retryAfter, "err", err)
		now := time.Now()
		c.sessions.arm(now.Add(retryAfter), now)
	})
}
