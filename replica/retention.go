package replica

import (
	"context"
	"slices"

	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
)

// PlanRetention says what Retain would remove now. Only the leader plans:
// *record.NotLeaderError otherwise.
func (r *Replica) PlanRetention(ctx context.Context, keep log.Retention) (log.Plan, error) {
	if err := r.stopped(); err != nil {
		return log.Plan{}, err
	}
	if node, _ := r.Leader(); node != r.cfg.Node {
		return log.Plan{}, r.notLeader()
	}
	plan, err := r.store.log.PlanRetention(ctx, keep, record.Offset(r.lastStable.Load()))
	if err != nil {
		return log.Plan{}, err
	}
	start := r.startOffset()
	plan.Start = max(plan.Start, start)
	plan.Segments = slices.DeleteFunc(plan.Segments, func(s log.Expired) bool { return s.End <= start }) // decided, and about to go
	return plan, nil
}

// Retain moves the log start offset, on all replicas, to where keep has it by
// this leader's segments, and returns what goes. It never passes the high
// watermark. The files are removed soon after, each replica's own: those wholly
// below the new start. Errors are those of TrimTo.
func (r *Replica) Retain(ctx context.Context, keep log.Retention) (log.Plan, error) {
	plan, err := r.PlanRetention(ctx, keep)
	if err != nil || len(plan.Segments) == 0 {
		return plan, err
	}
	before := r.startOffset()
	if _, err := r.TrimTo(ctx, plan.Start); err != nil {
		return log.Plan{}, err
	}
	reasons := map[log.Reason]int{}
	for _, s := range plan.Segments {
		reasons[s.Reason]++
	}
	r.cfg.Logger.Info("retention moved the log start", "from", before, "to", plan.Start, "bytes", plan.Bytes(),
		"segments", len(plan.Segments), "by age", reasons[log.ReasonAge], "by size", reasons[log.ReasonBytes])
	return plan, nil
}
