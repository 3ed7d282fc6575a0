package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/record"
)

// Commit says that b is handled: the group resumes behind it. It returns when
// the coordinator has stored the offset, and keeps trying until ctx ends. A
// commit below what is committed already changes nothing.
//
// *[record.FencedError] means that the member lost the partition meanwhile;
// somebody else will get the records again. Poll goes on with what is owned.
// Any number of goroutines may commit at once.
func (g *Group) Commit(ctx context.Context, b Batch) error {
	if b.claim == nil {
		return fmt.Errorf("commit: %w: the batch is not from Poll", record.ErrInvalid)
	}
	return g.commitOffsets(ctx, map[record.TopicPartition]record.Offset{b.claim.tp: b.next},
		func(tp record.TopicPartition) bool { return g.claims[tp] == b.claim })
}

// CommitAsync is Commit without the waiting: done is called once, on a goroutine
// of the member's, with what Commit would have returned, and may be nil. Commits
// may overtake each other, which does no harm: the highest one counts. [Group.Close]
// waits for those under way.
func (g *Group) CommitAsync(ctx context.Context, b Batch, done func(error)) {
	g.wg.Go(func() {
		err := g.Commit(ctx, b)
		if done != nil {
			done(err)
		}
	})
}

// CommitOffsets commits positions by hand: for each partition, which must be
// owned, the offset of the next record to handle. All or none are stored. The
// rules are those of Commit.
func (g *Group) CommitOffsets(ctx context.Context, offsets map[record.TopicPartition]record.Offset) error {
	for tp, o := range offsets {
		if o < 0 {
			return fmt.Errorf("commit %v: %w: offset %d is negative; offsets begin at 0", tp, record.ErrInvalid, o)
		}
	}
	if len(offsets) == 0 {
		return nil
	}
	return g.commitOffsets(ctx, offsets,
		func(tp record.TopicPartition) bool { return g.claims[tp] != nil })
}

// Committed returns the group's committed offsets in tps, owned or not;
// partitions without one are absent.
func (g *Group) Committed(ctx context.Context, tps []record.TopicPartition) (map[record.TopicPartition]record.Offset, error) {
	resp, err := g.ask(ctx, group.Request{Op: group.OpCommitted, Partitions: tps})
	if err != nil {
		return nil, fmt.Errorf("committed offsets of group %q: %w", g.name, err)
	}
	committed := make(map[record.TopicPartition]record.Offset, len(tps))
	for _, o := range resp.Offsets {
		if o.Offset != record.NoOffset {
			committed[o.TopicPartition] = o.Offset
		}
	}
	return committed, nil
}

// commitOffsets stores offsets of partitions that the member must hold, which
// mine tells under Group.mu.
func (g *Group) commitOffsets(ctx context.Context, offsets map[record.TopicPartition]record.Offset, mine func(record.TopicPartition) bool) error {
	req := group.Request{Op: group.OpCommit}
	for _, tp := range slices.SortedFunc(maps.Keys(offsets), record.TopicPartition.Compare) {
		req.Offsets = append(req.Offsets, group.Offset{TopicPartition: tp, Offset: offsets[tp]})
	}
	if err := g.mayCommit(&req, mine); err != nil {
		return err
	}
	if err := g.commit(ctx, req); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.out != nil {
		if o, ok := offsets[g.out.tp]; ok && o >= g.outNext {
			g.out = nil
			signal(g.tidy) // its partition may be waiting to move
		}
	}
	return nil
}

// commit sends a commit until it is answered, fails for good, or ctx or the
// membership ends.
func (g *Group) commit(ctx context.Context, req group.Request) error {
	req.Member = g.Member()
	ctx, cancel := g.whileMember(ctx)
	defer cancel()
	_, err := g.ask(ctx, req)
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); errors.Is(cause, record.ErrClosed) {
		err = cause
	}
	if errors.Is(err, record.ErrFenced) {
		signal(g.nudge) // the session should know as well
	}
	return fmt.Errorf("commit to group %q: %w", g.name, err)
}

// mayCommit spares the coordinator commits that it would refuse, and keeps one
// of a partition that was lost and granted again from passing for a new one.
func (g *Group) mayCommit(req *group.Request, mine func(record.TopicPartition) bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stay.Err() != nil {
		return fmt.Errorf("commit to group %q: %w", g.name, record.ErrClosed)
	}
	req.Generation = g.generation // each partition was held without a break since it was granted
	for _, o := range req.Offsets {
		if !mine(o.TopicPartition) {
			return &record.FencedError{
				What: fmt.Sprintf("member %s of group %s in %v", g.member, g.name, o.TopicPartition),
				Have: int64(req.Generation), Want: int64(g.generation),
			}
		}
	}
	return nil
}

// whileMember returns ctx, ended with ErrClosed when the member has left.
func (g *Group) whileMember(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(g.stay, func() { cancel(record.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
