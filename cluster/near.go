package cluster

import (
	"context"
	"errors"

	"github.com/quorumlog/quorumlog/record"
)

// FetchNear is Fetch from this node's own replica of the partition, leader or
// not, and from the leader where there is none. A follower shows what it knows to
// be committed, up to its own high watermark: the same records, a little later.
func (n *Node) FetchNear(ctx context.Context, tp record.TopicPartition, from record.Offset, maxBytes int, iso record.Isolation) (record.Fetched, error) {
	for {
		f, err := n.fetchOwn(ctx, tp, from, maxBytes, iso)
		switch {
		case errors.Is(err, record.ErrNotLeader): // no replica here, or it is closing
			return n.Fetch(ctx, tp, from, maxBytes, iso)
		case err != nil || f.Next > from:
			return f, err
		case ctx.Err() != nil:
			return record.Fetched{}, ctx.Err()
		}
	}
}

// fetchOwn reads this node's replica, and waits for one slice of time.
func (n *Node) fetchOwn(ctx context.Context, tp record.TopicPartition, from record.Offset, maxBytes int, iso record.Isolation) (record.Fetched, error) {
	ctx, leave, err := n.enter(ctx)
	if err != nil {
		return record.Fetched{}, err
	}
	defer leave()
	p, err := n.find(ctx, tp)
	if err != nil {
		return record.Fetched{}, err
	}
	rep, _, _ := p.state()
	if rep == nil {
		return record.Fetched{}, p.notLeader()
	}
	if maxBytes <= 0 {
		maxBytes = defaultFetchBytes
	}
	f, err := rep.Read(from, maxBytes, iso)
	if err == nil && f.Next == from {
		ctx, cancel := context.WithTimeout(ctx, fetchSlice)
		defer cancel()
		_ = rep.WaitReadable(ctx, from, iso) // the slice is over, or Read says why
		f, err = rep.Read(from, maxBytes, iso)
	}
	return f, p.elsewhere(rep, err)
}
