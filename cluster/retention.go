package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/replica"
)

// retainTimeout bounds the work on one partition, which may wait for the disk
// and for a quorum: the next check goes on.
const retainTimeout = 30 * time.Second

// PartitionPlan is what retention removes from one partition, or would.
type PartitionPlan struct {
	Partition int32
	log.Plan
}

// Retain applies a topic's retention now, as each partition's leader does in the
// background anyway, and returns what went. A partition that failed is left out
// and named in the error. *InvalidTopicError for the cluster's own topics, which
// keep what they need.
func (n *Node) Retain(ctx context.Context, topic string) ([]PartitionPlan, error) {
	return n.retention(ctx, topic, opRetain)
}

// PlanRetention returns what Retain would remove, and removes nothing.
func (n *Node) PlanRetention(ctx context.Context, topic string) ([]PartitionPlan, error) {
	return n.retention(ctx, topic, opPlanRetention)
}

func (n *Node) retention(ctx context.Context, topic, op string) ([]PartitionPlan, error) {
	ctx, leave, err := n.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	if isInternal(topic) {
		return nil, &InvalidTopicError{Topic: topic, Reason: "the cluster's own topics keep what they need"}
	}
	t, err := n.topic(ctx, topic)
	if err != nil {
		return nil, err
	}
	answers := make([]*log.Plan, t.Partitions())
	errs := make([]error, t.Partitions())
	var g errgroup.Group
	g.SetLimit(64)
	for i := range answers {
		g.Go(func() error {
			p, err := n.known(record.TopicPartition{Topic: topic, Partition: int32(i)})
			if err != nil {
				errs[i] = err
				return nil
			}
			a, err := n.ask(ctx, p, fmt.Sprintf("%s of %v", op, p.tp), request{Op: op})
			if err != nil {
				errs[i] = err
			} else {
				answers[i] = a.Plan
			}
			return nil
		})
	}
	_ = g.Wait() // each has its own error
	var plans []PartitionPlan
	for i, plan := range answers {
		if plan != nil {
			plans = append(plans, PartitionPlan{Partition: int32(i), Plan: *plan})
		}
	}
	return plans, errors.Join(errs...)
}

// answerRetention does what retention asks of a leader.
func (n *Node) answerRetention(ctx context.Context, p *partition, rep *replica.Replica, op string) (*log.Plan, error) {
	do := rep.Retain
	if op == opPlanRetention {
		do = rep.PlanRetention
	}
	plan, err := do(ctx, n.keep(p))
	return &plan, err
}

// retain checks what the partitions may forget that this node leads, all of them
// one after the other, until the node closes.
func (n *Node) retain(life context.Context) {
	retainEvery(life, n.cfg.RetentionInterval, n.retained, n.cfg.Logger)
}

// retainer is a partition as retention sees it: a replica, or a test's fake.
type retainer interface {
	Retain(ctx context.Context, keep log.Retention) (log.Plan, error)
}

// retained is a partition whose log may forget something.
type retained struct {
	retainer
	tp   record.TopicPartition
	keep log.Retention
}

func retainEvery(ctx context.Context, interval time.Duration, list func() []retained, logger *slog.Logger) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, p := range list() {
			one, cancel := context.WithTimeout(ctx, retainTimeout)
			_, err := p.Retain(one, p.keep)
			cancel()
			switch {
			case ctx.Err() != nil:
				return
			case err != nil && !errors.Is(err, record.ErrNotLeader): // the next leader has a timer of its own
				logger.Warn("retention failed; it is tried again", "partition", p.tp.String(), "in", interval, "error", err)
			}
		}
	}
}

// retained returns the partitions that this node leads and that forget.
func (n *Node) retained() (list []retained) {
	for _, p := range n.all() {
		rep, _, _ := p.state()
		if rep == nil {
			continue
		}
		if node, _ := rep.Leader(); node != n.cfg.ID {
			continue
		}
		if keep := n.keep(p); keep != (log.Retention{}) {
			list = append(list, retained{rep, p.tp, keep})
		}
	}
	return list
}

// keep returns what a partition keeps; all of it if it is the cluster's own.
func (n *Node) keep(p *partition) log.Retention {
	if isInternal(p.tp.Topic) {
		return log.Retention{}
	}
	t, _ := n.folded(p.tp.Topic)
	return t.Config.retention()
}
