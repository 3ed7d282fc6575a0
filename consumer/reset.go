package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/record"
)

// ResetTo says where [Reset] moves a group.
type ResetTo struct {
	to     origin
	offset record.Offset
	time   time.Time
	ago    bool // time is back before now
	back   time.Duration
}

// ToStart moves to the oldest record of each partition.
func ToStart() ResetTo { return ResetTo{to: originStart} }

// ToEnd moves behind the newest record of each partition.
func ToEnd() ResetTo { return ResetTo{to: originEnd} }

// ToOffset moves to offset o of each partition, or to the nearest one in its log.
func ToOffset(o record.Offset) ResetTo { return ResetTo{to: originOffset, offset: o} }

// ToTime moves to the first record of each partition whose time is t or later, or
// to the end where there is none.
func ToTime(t time.Time) ResetTo { return ResetTo{to: originTime, time: t} }

// Back moves to where the records of the last d begin, as [ToTime] with d ago.
func Back(d time.Duration) ResetTo { return ResetTo{to: originTime, ago: true, back: d} }

// OffsetMove is what a reset does, or would do, to one partition.
type OffsetMove struct {
	record.TopicPartition
	From record.Offset // what is committed; record.NoOffset if nothing is
	To   record.Offset
}

// ErrActive matches *[ActiveError].
var ErrActive = errors.New("group is active")

// ActiveError says that a group has members, which would undo a reset with their
// next commits. Nothing was done.
type ActiveError struct {
	Group   string
	Members []string // their clients, or ids where these have no name
}

// Is reports whether target is [ErrActive].
func (e *ActiveError) Is(target error) bool { return target == ErrActive }

func (e *ActiveError) Error() string {
	return fmt.Sprintf("group %q has %d members, %q; close them first", e.Group, len(e.Members), e.Members)
}

// PlanReset returns what [Reset] would do now, sorted by partition, and does nothing.
func PlanReset(ctx context.Context, src Source, coord Coordinator, name string, topics []string, to ResetTo) ([]OffsetMove, error) {
	plan, _, err := planReset(ctx, src, coord, name, topics, to)
	return plan, err
}

// Reset moves a group's committed offsets in all partitions of the topics, all or
// none, and returns what it did. Without topics it moves all that the group has
// committed, its retry topics as well. It waits for transactions that have offsets of
// the group. *[ActiveError] while the group has members.
func Reset(ctx context.Context, src Source, coord Coordinator, name string, topics []string, to ResetTo) ([]OffsetMove, error) {
	plan, members, err := planReset(ctx, src, coord, name, topics, to)
	if err != nil {
		return nil, err
	}
	if len(members) > 0 {
		return nil, activeError(name, members)
	}
	req := group.Request{Op: group.OpCommit, Rewind: true}
	for _, m := range plan {
		req.Offsets = append(req.Offsets, group.Offset{TopicPartition: m.TopicPartition, Offset: m.To})
	}
	if len(plan) == 0 {
		return nil, nil
	}
	_, err = coord.Group(ctx, name, req)
	if errors.Is(err, record.ErrFenced) { // somebody has joined meanwhile
		if d, err := coord.Group(ctx, name, group.Request{Op: group.OpDescribe}); err == nil {
			return nil, activeError(name, d.Members)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reset group %q: %w", name, err)
	}
	return plan, nil
}

func activeError(name string, members []group.Member) error {
	e := &ActiveError{Group: name}
	for _, m := range members {
		e.Members = append(e.Members, cmp.Or(m.Client, m.ID))
	}
	return e
}

func planReset(ctx context.Context, src Source, coord Coordinator, name string, topics []string, to ResetTo) ([]OffsetMove, []group.Member, error) {
	fail := func(err error) ([]OffsetMove, []group.Member, error) {
		return nil, nil, fmt.Errorf("reset group %q: %w", name, err)
	}
	if to.to == originOffset && to.offset < 0 {
		return fail(fmt.Errorf("%w: offset %d is negative; offsets begin at 0", record.ErrInvalid, to.offset))
	}
	if to.back < 0 {
		return fail(fmt.Errorf("%w: %v back is in the future", record.ErrInvalid, to.back))
	}
	if to.ago {
		to.time = time.Now().Add(-to.back)
	}
	d, err := coord.Group(ctx, name, group.Request{Op: group.OpDescribe})
	if err != nil {
		return fail(err)
	}
	moves := map[record.TopicPartition]*OffsetMove{}
	for _, o := range d.Offsets {
		if len(topics) == 0 || slices.Contains(topics, o.Topic) {
			moves[o.TopicPartition] = &OffsetMove{TopicPartition: o.TopicPartition, From: o.Offset}
		}
	}
	for _, topic := range topics {
		n, err := src.Partitions(ctx, topic)
		if err != nil {
			return fail(err)
		}
		for p := range int32(n) {
			if tp := (record.TopicPartition{Topic: topic, Partition: p}); moves[tp] == nil {
				moves[tp] = &OffsetMove{TopicPartition: tp, From: record.NoOffset}
			}
		}
	}
	var plan []OffsetMove
	for _, tp := range sorted(moves) {
		m := moves[tp]
		if m.To, err = to.find(ctx, src, tp); err != nil {
			return fail(place(tp, err))
		}
		plan = append(plan, *m)
	}
	return plan, d.Members, nil
}

// find returns the offset in one partition.
func (to ResetTo) find(ctx context.Context, src Source, tp record.TopicPartition) (record.Offset, error) {
	start, end, err := src.Offsets(ctx, tp, record.ReadCommitted)
	if err != nil {
		return record.NoOffset, err
	}
	switch to.to {
	case originStart:
		return start, nil
	case originOffset:
		return min(max(to.offset, start), end), nil
	case originTime:
		o, ok, err := src.OffsetForTime(ctx, tp, to.time)
		if err != nil {
			return record.NoOffset, err
		}
		if ok {
			return min(max(o, start), end), nil
		}
	}
	return end, nil
}

func sorted[V any](m map[record.TopicPartition]V) []record.TopicPartition {
	return slices.SortedFunc(maps.Keys(m), record.TopicPartition.Compare)
}
