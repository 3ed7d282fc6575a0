package consumer

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/record"
)

// Transact is for package txn: it returns the request that puts the offset behind
// b into a transaction, but for the transaction itself, and what to call when its
// outcome is known. If it was aborted, the next Poll of the partition returns b
// again, unless the partition was lost.
//
// *[record.FencedError]: the partition was lost. [record.ErrInvalid]: b is not from
// Poll, or an earlier batch was given back meanwhile, which comes first.
func (g *Group) Transact(b Batch) (req group.Request, ended func(committed bool), err error) {
	if b.claim == nil {
		return req, nil, fmt.Errorf("offsets in a transaction: %w: the batch is not from Poll", record.ErrInvalid)
	}
	req = group.Request{
		Op: group.OpPend, Member: g.Member(), Offsets: []group.Offset{{TopicPartition: b.claim.tp, Offset: b.next}},
	}
	mine := func(tp record.TopicPartition) bool { return g.claims[tp] == b.claim }
	if err := g.mayCommit(&req, mine); err != nil {
		return req, nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if q := b.claim.queue; len(q) > 0 && q[0].next <= b.next {
		return req, nil, fmt.Errorf("offsets in a transaction: %w: an earlier batch of %v was given back; poll it first", record.ErrInvalid, b.claim.tp)
	}
	return req, func(committed bool) { g.transacted(b, committed) }, nil
}

// transacted takes the end of a transaction that b was in.
func (g *Group) transacted(b Batch, committed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := b.claim
	if g.claims[c.tp] != c {
		return // lost: its next owner goes on where the group is
	}
	if !committed && c.seek == record.NoOffset {
		at, _ := slices.BinarySearchFunc(c.queue, b, func(q, b Batch) int { return cmp.Compare(q.next, b.next) })
		c.queue = slices.Insert(c.queue, at, b)
		signal(g.wake)
	}
	if g.out == c && g.outNext == b.next {
		g.out = nil
		signal(g.tidy) // its partition may be waiting to move
	}
}
