package half

import (
	"context"
	"sort"
	"sync"

	"github.com/quorumlog/quorumlog/record"
)

// quorum is a replicated partition in memory: one log, which every node sees in
// its own way.
type quorum struct {
	mu      sync.Mutex
	batches []record.Batch
	end     record.Offset
	leader  *node
	epoch   record.LeaderEpoch
	changed chan struct{} // closed and replaced at each change
	elected chan struct{} // closed and replaced at each election
}

func newQuorum() *quorum {
	return &quorum{changed: make(chan struct{}), elected: make(chan struct{})}
}

// node is a Partition. Its fields are guarded by quorum.mu.
type node struct {
	q        *quorum
	believes record.LeaderEpoch // leads in this epoch, as far as it knows; 0 if it does not
	held     bool               // fetches wait, as on a node that lags
	// failAppend is what becomes of the next appends; nil when nothing is wrong.
	failAppend func(write func()) error
}

func (q *quorum) node() *node { return &node{q: q} }

// elect makes n the leader in a new epoch. The one before learns of it, unless
// it is to stay unaware.
func (q *quorum) elect(n *node, unaware bool) {
	q.do(func() {
		if q.leader != nil && !unaware {
			q.leader.believes = 0
		}
		q.epoch++
		q.leader, n.believes = n, q.epoch
		close(q.elected)
		q.elected = make(chan struct{})
	})
}

// do runs fn under the lock and wakes who waits.
func (q *quorum) do(fn func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	fn()
	close(q.changed)
	q.changed = make(chan struct{})
}

// write appends a batch. q.mu is held.
func (q *quorum) write(b record.Batch) record.Offset {
	base := q.end
	b.Stamp(base, q.epoch)
	q.batches = append(q.batches, b)
	q.end = b.NextOffset()
	close(q.changed)
	q.changed = make(chan struct{})
	return base
}

func (n *node) Fetch(ctx context.Context, from record.Offset, _ int) (record.Fetched, error) {
	for {
		n.q.mu.Lock()
		changed := n.q.changed
		var f record.Fetched
		if !n.held {
			i := sort.Search(len(n.q.batches), func(i int) bool { return n.q.batches[i].NextOffset() > from })
			f.Batches = append(f.Batches, n.q.batches[i:]...)
		}
		f.HighWatermark = n.q.end
		n.q.mu.Unlock()
		if len(f.Batches) > 0 {
			return f, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return record.Fetched{}, ctx.Err()
		}
	}
}

func (n *node) Append(ctx context.Context, b record.Batch, epoch record.LeaderEpoch) (record.Appended, error) {
	n.q.mu.Lock()
	defer n.q.mu.Unlock()
	if n.failAppend != nil {
		if err := n.failAppend(func() { n.q.write(b) }); err != nil {
			return record.Appended{}, err
		}
	}
	if n.q.leader != n || epoch != n.q.epoch {
		return record.Appended{}, &record.NotLeaderError{}
	}
	return record.Appended{BaseOffset: n.q.write(b), LeaderEpoch: epoch}, nil
}

func (n *node) Barrier(ctx context.Context) (record.LeaderEpoch, record.Offset, error) {
	n.q.mu.Lock()
	defer n.q.mu.Unlock()
	if n.q.leader != n {
		return 0, 0, &record.NotLeaderError{}
	}
	return n.q.epoch, n.q.end, nil
}

func (n *node) Leading() (record.LeaderEpoch, error) {
	n.q.mu.Lock()
	defer n.q.mu.Unlock()
	if n.believes == 0 {
		return 0, &record.NotLeaderError{}
	}
	return n.believes, nil
}

// elections is closed at the next election.
func (n *node) elections() <-chan struct{} {
	n.q.mu.Lock()
	defer n.q.mu.Unlock()
	return n.q.elected
}
