package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/replica"
	"github.com/quorumlog/quorumlog/transport"
)

const (
	// fetchSlice is how long one try waits for records. After it the caller
	// looks for the leader anew, so a cut link or a deposed leader cannot hold
	// it for ever.
	fetchSlice        = 500 * time.Millisecond
	defaultFetchBytes = 1 << 20
)

// Fetch returns whole batches from the one that holds offset from, read at the
// partition's leader: about maxBytes (default 1 MiB), but at least one, unless
// all that is there was left out for iso: then Next has moved on. It
// waits until there is something and looks for the new leader after a change, until
// ctx ends. *record.OffsetRangeError if from lies outside the log.
func (n *Node) Fetch(ctx context.Context, tp record.TopicPartition, from record.Offset, maxBytes int, iso record.Isolation) (record.Fetched, error) {
	if m, _ := ctx.Value(meansKey{}).(*means); m == nil { // else the client has tried it
		if f, ok := n.fetchNow(ctx, nil, tp, from, maxBytes, iso); ok {
			return f, nil
		}
	}
	ctx, leave, err := n.enter(ctx)
	if err != nil {
		return record.Fetched{}, err
	}
	defer leave()
	if from < 0 {
		return record.Fetched{}, fmt.Errorf("%v: %w: offset %d is negative; begin at 0 or at the log start offset", tp, record.ErrInvalid, from)
	}
	p, err := n.find(ctx, tp)
	if err != nil {
		return record.Fetched{}, err
	}
	req := p.fetchRequest(from, maxBytes, iso)
	what := fmt.Sprintf("wait for records of %v at offset %d", tp, from)
	var f record.Fetched
	for {
		err = n.atLeader(ctx, p, what, func(ctx context.Context, node string) (err error) {
			f, err = n.fetchAt(ctx, p, node, req)
			return err
		})
		switch {
		case err != nil:
			return record.Fetched{}, err
		case f.Next > from:
			return f, nil
		case ctx.Err() != nil:
			return record.Fetched{}, gaveUp(ctx, what, nil)
		}
	}
}

func (p *partition) fetchRequest(from record.Offset, maxBytes int, iso record.Isolation) fetchRequest {
	return fetchRequest{key: p.key, from: from, maxBytes: cmp.Or(min(max(maxBytes, 0), math.MaxInt32), defaultFetchBytes), wait: fetchSlice, iso: iso}
}

// fetchNow is Fetch if this node leads and has something; it needs no context of its
// own then, and no words for an error. m, which may be nil, is what is meant by names.
func (n *Node) fetchNow(ctx context.Context, m *means, tp record.TopicPartition, from record.Offset, maxBytes int, iso record.Isolation) (record.Fetched, bool) {
	if n.life.Err() != nil || ctx.Err() != nil || from < 0 {
		return record.Fetched{}, false
	}
	p, err := n.known(tp)
	if err != nil || p.gone() != nil || m != nil && m.another(p) {
		return record.Fetched{}, false
	}
	hint, rep := p.leader()
	if rep == nil || hint.node != n.cfg.ID {
		return record.Fetched{}, false
	}
	f, err := p.read(rep, p.fetchRequest(from, maxBytes, iso))
	return f, err == nil && f.Next > from
}

// fetchAt asks one node, which may be this one, for one slice of time.
func (n *Node) fetchAt(ctx context.Context, p *partition, node string, req fetchRequest) (record.Fetched, error) {
	if node == n.cfg.ID {
		rep, _, _ := p.state()
		if rep == nil {
			return record.Fetched{}, p.notLeader()
		}
		if f, err := p.read(rep, req); answers(f, err, req) {
			return f, err
		}
		return p.await(ctx, rep, req)
	}
	ctx, cancel := context.WithTimeout(ctx, req.wait+n.tryTimeout)
	defer cancel()
	resp, err := transport.Call(ctx, n.cfg.Endpoint, node, serviceFetch, req.put())
	if err != nil {
		return record.Fetched{}, fmt.Errorf("node %q: %w", node, err)
	}
	return getFetchAnswer(resp)
}

// read reads this node's replica, without waiting. A leader that is not up to
// its predecessors yet is none: the high watermark must not go back for a reader.
func (p *partition) read(rep *replica.Replica, req fetchRequest) (record.Fetched, error) {
	if !rep.CaughtUp() {
		return record.Fetched{}, p.notLeader()
	}
	f, err := rep.Read(req.from, req.maxBytes, req.iso)
	return f, p.elsewhere(rep, err)
}

// answers reports whether what read returned is an answer, and not to be waited for.
func answers(f record.Fetched, err error, req fetchRequest) bool {
	return !beyond(err, req) && (err != nil || f.Next > req.from)
}

// beyond reports whether err says that the log ends below the position. A leader
// says so too that was replaced and does not know it.
func beyond(err error, req fetchRequest) bool {
	if err == nil {
		return false
	}
	var outside *record.OffsetRangeError
	return errors.As(err, &outside) && req.from > outside.End
}

// await waits for records at this node's replica for one slice of time. Without
// any it fails when the replica does not lead (any more).
func (p *partition) await(ctx context.Context, rep *replica.Replica, req fetchRequest) (record.Fetched, error) {
	ctx, cancel := context.WithTimeout(ctx, req.wait)
	defer cancel()
	if _, err := p.read(rep, req); beyond(err, req) {
		if _, _, err := rep.Barrier(ctx); err != nil {
			return record.Fetched{}, p.notLeader()
		}
	} else {
		_ = rep.WaitReadable(ctx, req.from, req.iso) // the slice is over, or read says why
	}
	f, err := p.read(rep, req)
	if hint, _ := p.leader(); err == nil && f.Next == req.from && hint.node != p.self {
		err = p.notLeader()
	}
	return f, err
}

// handleFetch is the other side of fetchAt. What can be read is answered at
// once, else a goroutine waits.
func (n *Node) handleFetch(ctx context.Context, _ string, body []byte, reply func([][]byte, error)) {
	respond := func(f record.Fetched, err error) {
		if err != nil {
			reply([][]byte{errorAnswer(n.forPeer(err))}, nil)
			return
		}
		reply(putFetchAnswer(f), nil)
	}
	req, err := getFetchRequest(body)
	if err != nil {
		respond(record.Fetched{}, err)
		return
	}
	p, rep, err := n.leading(req.key)
	if err != nil {
		respond(record.Fetched{}, err)
		return
	}
	f, err := p.read(rep, req)
	if answers(f, err, req) {
		respond(f, err)
		return
	}
	started := n.spawn(func(life context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(life, cancel)()
		f, err := p.await(ctx, rep, req)
		if life.Err() != nil {
			err = n.closedError()
		}
		respond(f, err)
	})
	if !started {
		respond(record.Fetched{}, n.closedError())
	}
}

// Offsets returns the log start offset, and the last stable offset or, with
// record.ReadUncommitted, the high watermark. What was acknowledged before the call
// lies below the high watermark, and below the last stable offset if all
// transactions that began before it have ended.
func (n *Node) Offsets(ctx context.Context, tp record.TopicPartition, iso record.Isolation) (start, end record.Offset, err error) {
	ctx, leave, err := n.enter(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer leave()
	p, err := n.find(ctx, tp)
	if err != nil {
		return 0, 0, err
	}
	a, err := n.ask(ctx, p, fmt.Sprintf("offsets of %v", tp), request{Op: opOffsets})
	if iso == record.ReadCommitted {
		a.High = a.Stable
	}
	return a.Start, a.High, err
}

// ask sends a control request about p to its leader.
func (n *Node) ask(ctx context.Context, p *partition, what string, req request) (a answer, err error) {
	req.ID, req.Partition = p.key.topic, p.key.partition
	err = n.atLeader(ctx, p, what, func(ctx context.Context, node string) (err error) {
		a, err = n.control(ctx, node, req)
		return err
	})
	return a, err
}
