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
	l.begun.Add(1)
	if r.g.stages == nil {
		if err := guard(r.ctx, rec, r.handle); err != nil {
			return verdict{err: r.stopped(err)}, false
		}
		return verdict{}, true
	}
	v, done := r.attempt(l, rec)
	if done {
		l.tries, l.failed = 0, time.Time{}
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
	s := r.g.stages
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
		behind, err := r.g.keys.stageOf(r.ctx, l.win.claim, keyOf(&f, rec.Key), stage)
		if err != nil {
			return verdict{err: r.stopped(err)}, false
		}
		if behind > 0 {
			f.Cause, f.Reason = CauseOrder, "an earlier record of the key is being tried again"
			return r.moveTo(rec, &f, behind)
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
	return r.moveTo(rec, f, stage+1)
}

// moveTo moves a record to a stage, or behind the last one to the dead letters.
func (r *runner) moveTo(rec *record.Record, f *Failure, stage int) (verdict, bool) {
	topic, delay := r.g.stages.next(stage - 1)
	now := time.Now()
	if f.Due = (time.Time{}); delay > 0 {
		f.Due = now.Add(delay)
	}
	tp, offset, err := r.move(f.put(*rec, topic, now))
	if err != nil {
		err = fmt.Errorf("move offset %d of %v to %s: %w", rec.Offset, rec.TopicPartition(), topic, err)
		return verdict{err: r.stopped(err)}, false
	}
	r.g.logger.Warn("record moved", "partition", rec.TopicPartition(), "offset", rec.Offset, "to", topic, "cause", f.Cause, "reason", f.Reason)
	if r.g.stages.policy.KeyOrder && rec.Key != nil && topic != DeadLetterTopic(r.g.name) {
		r.g.keys.moved(keyOf(f, rec.Key), stage, tp, offset)
	}
	return verdict{}, true
}

// moveTimeout is how long a record is tried to be moved before Run returns.
const moveTimeout = 2 * time.Minute

// move appends a record to where it goes. It returns nil when a quorum holds it;
// only then does the record count as finished where it was, and is committed
// there. A crash between the two repeats the move and loses nothing. Where the
// append and the commit are to be one transaction, it is to be made here.
func (r *runner) move(rec record.Record) (record.TopicPartition, record.Offset, error) {
	ctx, cancel := context.WithTimeout(r.ctx, moveTimeout)
	defer cancel()
	for n := 1; ; n++ {
		tp, offset, err := r.g.cfg.Mover.Send(ctx, rec)
		if err == nil {
			return tp, offset, nil
		}
		if !mayPass(err) || errors.Is(err, record.ErrClosed) || ctx.Err() != nil {
			return tp, offset, err
		}
		r.g.logger.Warn("record could not be moved, trying again", "to", rec.Topic, "err", err)
		if pause(ctx, r.g.stages.policy.backoff(n)) != nil {
			return tp, offset, err
		}
	}
}
