package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/quorumlog/quorumlog"
)

// place is where a record lies.
type place struct {
	partition int32
	offset    quorumlog.Offset
}

// stored says where the log holds the events that it has; by line.
type stored map[int]place

// findStored reads the whole log, so that nothing is written twice.
func findStored(ctx context.Context, n *quorumlog.Node, events []event) (stored, error) {
	if err := n.WaitReady(ctx, topic); err != nil {
		return nil, err
	}
	found := make(stored)
	for r, err := range n.Read(ctx, topic, quorumlog.FromStart(), quorumlog.UntilEnd()) {
		if err != nil {
			return nil, err
		}
		e, err := eventOf(r, events)
		if err != nil {
			return nil, err
		}
		at := place{r.Partition, r.Offset}
		if first, ok := found[e.line]; ok {
			return nil, fmt.Errorf("the log holds line %d twice, at %v and at %v", e.line, first, at)
		}
		found[e.line] = at
	}
	return found, nil
}

// missing returns the events that the log has not.
func (s stored) missing(events []event) []event {
	var missing []event
	for _, e := range events {
		if _, ok := s[e.line]; !ok {
			missing = append(missing, e)
		}
	}
	return missing
}

// ledger is what the members of the group have read, all of them together.
type ledger struct {
	events []event
	want   []bool // by line: not read by an earlier run
	wanted int

	mu            sync.Mutex
	times         []int             // by line: how often it was read
	status        map[string]string // of each package: the last one
	next          map[int32]quorumlog.Offset
	epoch         map[int32]int64 // of the last record: which leadership wrote it
	leaderChanges int
	moved         chan struct{} // capacity 1: next has changed
}

// newLedger returns the ledger of a group that resumes at from.
func newLedger(events []event, stored stored, from map[int32]quorumlog.Offset) *ledger {
	l := &ledger{
		events: events,
		want:   make([]bool, len(events)+1),
		times:  make([]int, len(events)+1),
		status: make(map[string]string),
		next:   make(map[int32]quorumlog.Offset),
		epoch:  make(map[int32]int64),
		moved:  make(chan struct{}, 1),
	}
	for p, offset := range from {
		l.next[p] = offset
	}
	for _, e := range events {
		at, ok := stored[e.line]
		if !ok || at.offset >= from[at.partition] {
			l.want[e.line] = true
			l.wanted++
		}
	}
	return l
}

// handle enters one record. Records of a package come in their order, since
// they share a partition, and a partition has one reader at a time.
func (l *ledger) handle(r quorumlog.Record) error {
	e, err := eventOf(r, l.events)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.times[e.line]++
	if e.status != "" {
		l.status[e.pkg] = e.status
	}
	epoch := int64(r.LeaderEpoch)
	if last, ok := l.epoch[r.Partition]; ok && epoch > last {
		l.leaderChanges++
	}
	l.epoch[r.Partition] = epoch
	l.next[r.Partition] = max(l.next[r.Partition], r.Offset+1)
	select {
	case l.moved <- struct{}{}:
	default:
	}
	return nil
}

// wait returns when everything below end has been handled, or with an error
// when ctx ends or failed is closed.
func (l *ledger) wait(ctx context.Context, end map[int32]quorumlog.Offset, failed <-chan struct{}) error {
	for !l.reached(end) {
		select {
		case <-l.moved:
		case <-failed:
			return fmt.Errorf("a member of the group has stopped")
		case <-ctx.Done():
			return fmt.Errorf("the group has not read everything in time: %w", ctx.Err())
		}
	}
	return nil
}

func (l *ledger) reached(end map[int32]quorumlog.Offset) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, offset := range end {
		if l.next[p] < offset {
			return false
		}
	}
	return true
}

// result is what this run's reading adds up to.
type result struct {
	events, packages, installed int
	lost, duplicated            int
	leaderChanges               int
}

func (r result) String() string {
	return fmt.Sprintf("events %d packages %d installed %d lost %d duplicated %d leader-changes %d",
		r.events, r.packages, r.installed, r.lost, r.duplicated, r.leaderChanges)
}

// result counts: lost is what should have been read and was not, duplicated is
// what was read once more than it should have been.
func (l *ledger) result() result {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := result{leaderChanges: l.leaderChanges}
	for line, want := range l.want {
		switch times := l.times[line]; {
		case want && times == 0:
			r.lost++
		case want:
			r.events++
			r.duplicated += times - 1
		default:
			r.duplicated += times
		}
	}
	r.packages, r.installed = tally(l.status)
	return r
}

// check compares with a direct count of the file.
func (r result) check(l *ledger) error {
	var expected []event
	for _, e := range l.events {
		if l.want[e.line] {
			expected = append(expected, e)
		}
	}
	want := result{events: len(expected), leaderChanges: r.leaderChanges}
	want.packages, want.installed = count(expected)
	if r != want {
		return fmt.Errorf("a direct count of the file gives: %v", want)
	}
	return nil
}
