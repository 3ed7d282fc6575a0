package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/quorumlog/quorumlog"
)

// members is the consumer group: one member on each node.
type members struct {
	say    func(string, ...any)
	stopIt context.CancelFunc // ends all runs

	mu     sync.Mutex
	groups map[string]*quorumlog.Group // by node
	runs   sync.WaitGroup
	errs   []error
	failed chan struct{} // closed with the first error
}

func join(ctx context.Context, ns *nodes, say func(string, ...any)) (*members, error) {
	ms := &members{say: say, stopIt: func() {}, groups: make(map[string]*quorumlog.Group), failed: make(chan struct{})}
	for _, id := range nodeIDs {
		g, err := ns.get(id).Group(ctx, group, []string{topic}, quorumlog.GroupConfig{
			OnAssigned: func(_ context.Context, tps []quorumlog.TopicPartition) {
				say("the member on node %s reads %v now", id, tps)
			},
			OnRevoked: func(_ context.Context, tps []quorumlog.TopicPartition) {
				say("the member on node %s gives up %v", id, tps)
			},
		})
		if err != nil {
			return nil, errors.Join(err, ms.close(ctx))
		}
		ms.groups[id] = g
	}
	return ms, nil
}

// start lets every member handle records; Run commits what is handled.
func (ms *members) start(ctx context.Context, l *ledger) {
	ctx, ms.stopIt = context.WithCancel(ctx)
	for id, g := range ms.groups {
		ms.runs.Go(func() {
			err := g.Run(ctx, func(_ context.Context, r quorumlog.Record) error { return l.handle(r) })
			if !errors.Is(err, quorumlog.ErrClosed) && ctx.Err() == nil {
				ms.fail(fmt.Errorf("member on node %s: %w", id, err))
			}
		})
	}
}

func (ms *members) fail(err error) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if len(ms.errs) == 0 {
		close(ms.failed)
	}
	ms.errs = append(ms.errs, err)
}

// failure returns what has ended members, if anything.
func (ms *members) failure() error {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	return errors.Join(ms.errs...)
}

// leave takes the member on a node out of the group, for good.
func (ms *members) leave(ctx context.Context, id string) error {
	ms.mu.Lock()
	g := ms.groups[id]
	delete(ms.groups, id)
	ms.mu.Unlock()
	ms.say("the member on node %s leaves the group", id)
	return g.Close(ctx)
}

// stop ends the handling and checks that all of it up to end is committed.
func (ms *members) stop(ctx context.Context, end map[int32]quorumlog.Offset) error {
	ms.stopIt()
	ms.runs.Wait() // Run commits what was handled before it returns
	committed, err := ms.committed(ctx)
	if err != nil {
		return err
	}
	for p, offset := range end {
		if committed[p] != offset {
			return fmt.Errorf("partition %d: %d records are committed as read, it holds %d", p, committed[p], offset)
		}
	}
	return nil
}

// committed returns where the group resumes in each partition.
func (ms *members) committed(ctx context.Context) (map[int32]quorumlog.Offset, error) {
	ms.mu.Lock()
	var g *quorumlog.Group
	for _, g = range ms.groups {
		break // any member knows
	}
	ms.mu.Unlock()
	var tps []quorumlog.TopicPartition
	for p := range int32(partitions) {
		tps = append(tps, quorumlog.TopicPartition{Topic: topic, Partition: p})
	}
	offsets, err := g.Committed(ctx, tps)
	if err != nil {
		return nil, err
	}
	committed := make(map[int32]quorumlog.Offset)
	for tp, offset := range offsets {
		committed[tp.Partition] = offset
	}
	return committed, nil
}

// close takes all members out of the group.
func (ms *members) close(ctx context.Context) error {
	ms.stopIt()
	ms.mu.Lock()
	groups := ms.groups
	ms.groups = nil
	ms.mu.Unlock()
	errs := make(chan error, len(groups))
	for _, g := range groups {
		go func() { errs <- g.Close(ctx) }()
	}
	var all []error
	for range groups {
		all = append(all, <-errs)
	}
	ms.runs.Wait()
	return errors.Join(slices.DeleteFunc(all, func(err error) bool { return err == nil })...)
}
