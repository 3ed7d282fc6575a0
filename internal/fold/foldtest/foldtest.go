// Package foldtest is a replicated partition in memory, for the tests of what is
// folded: one log, which every node sees in its own way, and faults on demand.
package foldtest

import (
	"context"
	"sort"
	"sync"

	"github.com/quorumlog/quorumlog/record"
)

// Quorum is the partition. Its fields, and those of its nodes, are guarded by its
// lock.
type Quorum struct {
	sync.Mutex
	Batches []record.Batch // all that were ever written
	Start   record.Offset  // those below are trimmed
	End     record.Offset
	Leader  *Node
	Epoch   record.LeaderEpoch
	changed chan struct{} // closed and replaced at each change
	elected chan struct{} // closed and replaced at each election
}

// NewQuorum returns an empty partition without a leader.
func NewQuorum() *Quorum {
	return &Quorum{changed: make(chan struct{}), elected: make(chan struct{})}
}

// Node is the partition as one node sees it: a fold.Partition.
type Node struct {
	Q        *Quorum
	Believes record.LeaderEpoch // leads in this epoch, as far as it knows; 0 if it does not
	Held     bool               // fetches wait, and the answers to appends, as on a node that lags
	Gate     chan struct{}      // appends wait for it, if there is one, before they are written
	Upto     record.Offset      // fetches return batches that begin below; 0 for all
	Refetch  bool               // answers begin one batch below what was asked for
	Fetches  int
	Barriers int
	// What goes wrong with the next calls, with the quorum locked; nil when nothing does.
	FailFetch   func() error
	FailBarrier func() error
	FailAppend  func(write func()) error
	FailTrim    func() error
	// Round returns how far a trim to offset gets; nil for all of it.
	Round func(offset record.Offset) record.Offset
}

// Node adds a node.
func (q *Quorum) Node() *Node { return &Node{Q: q} }

// Elect makes n the leader in a new epoch. The one before learns of it, unless
// it is to stay unaware.
func (q *Quorum) Elect(n *Node, unaware bool) {
	q.Do(func() { q.Hand(n, unaware) })
}

// Hand is Elect with q locked.
func (q *Quorum) Hand(n *Node, unaware bool) {
	if q.Leader != nil && !unaware {
		q.Leader.Believes = 0
	}
	q.Epoch++
	q.Leader, n.Believes = n, q.Epoch
	close(q.elected)
	q.elected = make(chan struct{})
}

// Do runs fn with q locked and wakes who waits.
func (q *Quorum) Do(fn func()) {
	q.Lock()
	defer q.Unlock()
	fn()
	q.wake()
}

func (q *Quorum) wake() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// Tail returns the offset behind the newest record. Where a leader may just write the
// log again, End cannot be read.
func (q *Quorum) Tail() record.Offset {
	q.Lock()
	defer q.Unlock()
	return q.End
}

// Write appends a batch. q is locked.
func (q *Quorum) Write(b record.Batch) record.Offset {
	base := q.End
	b.Stamp(base, q.Epoch)
	q.Batches = append(q.Batches, b)
	q.End = b.NextOffset()
	q.wake()
	return base
}

// Fetch implements fold.Partition.
func (n *Node) Fetch(ctx context.Context, from record.Offset, _ int) (record.Fetched, error) {
	q := n.Q
	q.Do(func() { n.Fetches++ })
	for {
		q.Lock()
		changed := q.changed
		f, err := n.fetch(from)
		q.Unlock()
		if err != nil || len(f.Batches) > 0 {
			return f, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return record.Fetched{}, ctx.Err()
		}
	}
}

// fetch returns what there is. The quorum is locked.
func (n *Node) fetch(from record.Offset) (record.Fetched, error) {
	q := n.Q
	f := record.Fetched{HighWatermark: q.End, StartOffset: q.Start}
	switch {
	case n.FailFetch != nil:
		if err := n.FailFetch(); err != nil {
			return f, err
		}
	case n.Held:
		return f, nil
	}
	if from < q.Start {
		return f, &record.OffsetRangeError{Offset: from, Start: q.Start, End: q.End}
	}
	i := sort.Search(len(q.Batches), func(i int) bool { return q.Batches[i].NextOffset() > from })
	if n.Refetch && i > 0 && i < len(q.Batches) {
		i--
	}
	for _, b := range q.Batches[i:] {
		if n.Upto == 0 || b.BaseOffset() < n.Upto {
			f.Batches = append(f.Batches, b)
		}
	}
	return f, nil
}

// Append implements fold.Partition.
func (n *Node) Append(ctx context.Context, b record.Batch, epoch record.LeaderEpoch) (record.Appended, error) {
	n.Q.Lock()
	gate := n.Gate
	n.Q.Unlock()
	if gate != nil {
		<-gate
	}
	a, held, err := n.append(b, epoch)
	if held && err == nil {
		<-ctx.Done()
		return record.Appended{}, &record.OutcomeUnknownError{Err: ctx.Err()}
	}
	return a, err
}

func (n *Node) append(b record.Batch, epoch record.LeaderEpoch) (a record.Appended, held bool, err error) {
	q := n.Q
	q.Lock()
	defer q.Unlock()
	if n.FailAppend != nil {
		if err := n.FailAppend(func() { q.Write(b) }); err != nil {
			return a, false, err
		}
	}
	if q.Leader != n || epoch != q.Epoch {
		return a, false, &record.NotLeaderError{}
	}
	return record.Appended{BaseOffset: q.Write(b), LeaderEpoch: epoch}, n.Held, nil
}

// Barrier implements fold.Partition.
func (n *Node) Barrier(context.Context) (record.LeaderEpoch, record.Offset, error) {
	n.Q.Lock()
	defer n.Q.Unlock()
	n.Barriers++
	if n.FailBarrier != nil {
		if err := n.FailBarrier(); err != nil {
			return 0, 0, err
		}
	}
	if n.Q.Leader != n {
		return 0, 0, &record.NotLeaderError{}
	}
	return n.Q.Epoch, n.Q.End, nil
}

// Leading implements fold.Partition.
func (n *Node) Leading() (record.LeaderEpoch, error) {
	n.Q.Lock()
	defer n.Q.Unlock()
	if n.Believes == 0 {
		return 0, &record.NotLeaderError{}
	}
	return n.Believes, nil
}

// Trim implements fold.Partition.
func (n *Node) Trim(_ context.Context, offset record.Offset) error {
	q := n.Q
	q.Lock()
	defer q.Unlock()
	if n.FailTrim != nil {
		if err := n.FailTrim(); err != nil {
			return err
		}
	}
	if q.Leader != n {
		return &record.NotLeaderError{}
	}
	if offset = min(offset, q.End); offset <= q.Start {
		return nil
	}
	if n.Round != nil {
		offset = n.Round(offset)
	}
	q.Start = max(q.Start, offset)
	return nil
}

// Bytes returns the size of the batches that are not trimmed. q is locked.
func (q *Quorum) Bytes() (n int) {
	for _, b := range q.Batches {
		if b.NextOffset() > q.Start {
			n += len(b)
		}
	}
	return n
}

// Replay folds all records below an offset that were ever written, trimmed or not, but
// for the marks of the fold itself. It returns how many of those there are. q is locked.
func (q *Quorum) Replay(below record.Offset, apply func(r record.Record) error) (marks int, err error) {
	for _, b := range q.Batches {
		var it record.Iterator
		if err := it.Reset(b); err != nil {
			return marks, err
		}
		for r := (record.Record{}); it.Next(&r) && r.Offset < below; {
			if string(r.Key) == `{"k":"rewritten"}` {
				marks++
			} else if err := apply(r); err != nil {
				return marks, err
			}
		}
	}
	return marks, nil
}

// Elections returns a channel that is closed at the next election.
func (n *Node) Elections() <-chan struct{} {
	n.Q.Lock()
	defer n.Q.Unlock()
	return n.Q.elected
}
