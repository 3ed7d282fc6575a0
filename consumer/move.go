package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// Mover makes the topics that records are moved to, and appends them. A node
// gives its groups one. Any number of goroutines may call it at once.
type Mover interface {
	// EnsureTopic makes a topic with so many partitions unless there is one of
	// that name, whatever it has.
	EnsureTopic(ctx context.Context, name string, partitions int) error
	// HasTopic reports whether there is a topic of that name.
	HasTopic(name string) bool
	// Send appends r to r.Topic, in the partition of its key, and returns where it
	// is when a quorum holds it.
	Send(ctx context.Context, r record.Record) (record.TopicPartition, record.Offset, error)
}

// stages are the topics that a group moves records through.
type stages struct {
	group   string
	policy  RetryPolicy
	entered map[string]int // of each topic a member reads for it: 0 for the redriven, 1 for Delays[0] ...
}

// stageTopic returns the name of a retry topic.
func stageTopic(group string, stage int) string { return fmt.Sprintf("%s.retry.%d", group, stage) }

func redriveTopic(group string) string { return group + ".redrive" }

// DeadLetterTopic returns the name of the topic of a group's dead letters.
func DeadLetterTopic(group string) string { return group + ".dlq" }

// openStages makes the topics and returns them with what a member must read.
// A topic of a policy with more delays, which another member had, is read on.
func openStages(ctx context.Context, m Mover, group string, policy RetryPolicy, partitions int) (*stages, []string, error) {
	s := &stages{group: group, policy: policy, entered: map[string]int{redriveTopic(group): 0}}
	for i := range policy.Delays {
		s.entered[stageTopic(group, i+1)] = i + 1
	}
	var topics []string
	for topic := range s.entered {
		if err := m.EnsureTopic(ctx, topic, partitions); err != nil {
			return nil, nil, err
		}
		topics = append(topics, topic)
	}
	if err := m.EnsureTopic(ctx, DeadLetterTopic(group), 1); err != nil {
		return nil, nil, err
	}
	for i := len(policy.Delays) + 1; m.HasTopic(stageTopic(group, i)); i++ {
		s.entered[stageTopic(group, i)] = i
		topics = append(topics, stageTopic(group, i))
	}
	return s, topics, nil
}

// next returns the topic behind a stage, and how long a record waits there.
func (s *stages) next(stage int) (topic string, delay time.Duration) {
	if stage < len(s.policy.Delays) {
		return stageTopic(s.group, stage+1), s.policy.Delays[stage]
	}
	return DeadLetterTopic(s.group), 0
}

// deal has the handler see a record, and does with a failure what the policy
// says. It reports whether the record is finished.
func (r *runner) deal(l *lane, rec *record.Record) (verdict, bool) {
	if r.g.stages == nil {
		if err := guard(r.ctx, rec, r.handle); err != nil {
			return verdict{err: r.stopped(err)}, false
		}
		return verdict{}, true
	}
	v, done := r.attempt(l, rec)
	if done {
		l.forget()
	}
	return v, done
}

// stopped returns the end of ctx instead of the error of a handler that was
// told to stop by it.
func (r *runner) stopped(err error) error {
	if r.ctx.Err() != nil {
		return r.ctx.Err()
	}
	return err
}

// attempt is deal under a policy.
func (r *runner) attempt(l *lane, rec *record.Record) (verdict, bool) {
	s, c := r.g.stages, l.win.claim
	if c.doubt.Load() == int64(rec.Offset)+1 { // perhaps since a Run before
		if moved, err := r.wasMoved(c, rec); err != nil {
			return verdict{err: r.stopped(err)}, false
		} else if moved {
			return verdict{}, true
		}
	}
	if l.moving != nil {
		return r.moveOn(l, rec)
	}
	stage, moved := s.entered[rec.Topic]
	seen := *rec
	f := Failure{Group: s.group, Origin: rec.TopicPartition(), Offset: rec.Offset, Time: rec.Time}
	if moved {
		if was, ok := FailureOf(*rec); ok { // else somebody wrote to the topic: it is a record like others
			f = was
			seen = f.at(seen)
		}
		if wait := time.Until(f.Due); wait > 0 {
			return verdict{wait: wait}, false
		}
	}
	if s.policy.KeyOrder && rec.Key != nil {
		behind, err := r.g.keys.stageOf(r.ctx, c, keyOf(&f, rec.Key), stage)
		if err != nil {
			return verdict{err: r.stopped(err)}, false
		}
		if behind > 0 {
			f.Cause, f.Reason = CauseOrder, "an earlier record of the key is being tried again"
			return r.moveTo(l, rec, f, behind)
		}
	}
	err := guard(r.ctx, &seen, r.handle)
	if err == nil {
		return verdict{}, true
	}
	if r.ctx.Err() != nil {
		return verdict{err: r.ctx.Err()}, false
	}
	return r.failed(l, rec, &f, stage, err)
}

// failed decides what becomes of a record whose handler failed.
func (r *runner) failed(l *lane, rec *record.Record, f *Failure, stage int, err error) (verdict, bool) {
	policy := &r.g.stages.policy
	now := time.Now()
	l.tries++
	if l.failed.IsZero() {
		l.failed = now
	}
	action, cause := policy.judge(err)
	if action == Stop {
		return verdict{err: err}, false
	}
	if action == Retry && l.tries <= policy.InPlace {
		r.g.logger.Info("handler failed, trying again", "partition", rec.TopicPartition(), "offset", rec.Offset, "tries", l.tries, "err", err)
		return verdict{wait: policy.backoff(l.tries)}, false
	}
	f.Cause, f.Reason = cause, err.Error()
	f.Attempts += l.tries
	if f.First.IsZero() {
		f.First = l.failed
	}
	f.Last = now
	if action == DeadLetter {
		stage = len(policy.Delays)
	}
	return r.moveTo(l, rec, *f, stage+1)
}

// moving is a move that is decided on and not done.
type moving struct {
	failure Failure
	stage   int       // behind the last one: the dead letters
	tries   int       // that have failed
	since   time.Time // when the first one began
}

// moveTimeout is how long a record is tried to be moved before Run returns.
const moveTimeout = 2 * time.Minute

// moveTo moves a record to a stage, or behind the last one to the dead letters.
func (r *runner) moveTo(l *lane, rec *record.Record, f Failure, stage int) (verdict, bool) {
	l.moving = &moving{failure: f, stage: stage}
	return r.moveOn(l, rec)
}

// moveOn tries to do the lane's move. Between two tries the lane keeps no worker,
// and may be left behind by a seek or the loss of its partition.
func (r *runner) moveOn(l *lane, rec *record.Record) (verdict, bool) {
	m, s := l.moving, r.g.stages
	topic, delay := s.next(m.stage - 1)
	now := time.Now()
	if m.failure.Due = (time.Time{}); delay > 0 {
		m.failure.Due = now.Add(delay)
	}
	if m.since.IsZero() {
		m.since = now
	}
	out := m.failure.put(*rec, topic, now)
	var tp record.TopicPartition
	var offset record.Offset
	var err error
	if r.atomic != nil {
		tp, offset, err = r.moveAndCommit(l.win.claim, rec, out)
	} else {
		tp, offset, err = r.move(out)
	}
	switch {
	case err == nil:
		r.g.logger.Warn("record moved", "partition", rec.TopicPartition(), "offset", rec.Offset, "to", topic, "cause", m.failure.Cause, "reason", m.failure.Reason)
		if r.g.keys != nil && rec.Key != nil && topic != DeadLetterTopic(s.group) {
			r.g.keys.moved(keyOf(&m.failure, rec.Key), m.stage, tp, offset)
		}
		return verdict{}, true
	case errors.Is(err, errBehind):
		m.since = time.Time{}
		return verdict{behind: true}, false
	}
	m.tries++
	wait := s.policy.backoff(m.tries)
	left := moveTimeout - time.Since(m.since)
	switch {
	case errors.Is(err, record.ErrFenced) && r.atomic != nil: // lost: the session is about to hear, and then nobody tries again
		signal(r.g.nudge)
		wait = r.g.cfg.HeartbeatInterval
	case !mayPass(err), errors.Is(err, record.ErrClosed):
		left = 0
	}
	if left <= 0 || r.ctx.Err() != nil {
		err = fmt.Errorf("move offset %d of %v to %s: %w", rec.Offset, rec.TopicPartition(), topic, err)
		return verdict{err: r.stopped(err)}, false
	}
	r.g.logger.Warn("record could not be moved, trying again", "partition", rec.TopicPartition(), "offset", rec.Offset, "to", topic, "err", err)
	return verdict{wait: min(wait, left)}, false
}

// move appends a record to where it goes. When it returns nil a quorum holds it;
// only then does the record count as finished where it was, and is committed
// there. A crash between the two repeats the move and loses nothing.
func (r *runner) move(rec record.Record) (record.TopicPartition, record.Offset, error) {
	ctx, cancel := context.WithTimeout(r.ctx, moveTimeout)
	defer cancel()
	return r.g.cfg.Mover.Send(ctx, rec)
}
