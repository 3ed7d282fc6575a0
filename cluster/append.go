package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/replica"
)

// Append hands a batch to the partition's leader, wherever it is. It does not
// block and never tries twice. Batches that one goroutine hands over for one
// partition reach a leader in that order. The batch is given away: whoever gets
// it stamps its offset in place; record.Batch.Reissue makes a copy to try again
// with. done is called exactly once, perhaps before Append returns, and must
// not block.
//
// id is the topic that is meant: another one of the name is
// *record.UnknownTopicError. The zero id means whichever has the name.
//
// It does not wait for metadata: a topic this node has not heard of is
// *record.UnknownTopicError, even if another node has just made it. Partitions
// waits, and should be called first.
//
// *record.NotLeaderError, record.ErrUnreachable, record.ErrOverloaded and
// record.ErrClosed say that nothing was written and another try makes sense
// (not on a closed node); *record.OutcomeUnknownError that nobody knows. All
// others are as for replica.Replica.Append.
func (n *Node) Append(ctx context.Context, id record.TopicID, tp record.TopicPartition, b record.Batch, acks record.Acks, done func(record.Appended, error)) {
	p, err := n.writable(tp)
	if err == nil && id != (record.TopicID{}) && id != p.key.topic {
		err = &record.UnknownTopicError{Topic: tp.Topic, Partition: -1}
	}
	if err != nil {
		done(record.Appended{}, err)
		return
	}
	hint, rep := p.leader()
	switch {
	case ctx.Err() != nil:
		done(record.Appended{}, fmt.Errorf("append to %v: %w", tp, ctx.Err()))
	case hint.node == "":
		n.seek(p)
		done(record.Appended{}, p.notLeader())
	case hint.node != n.cfg.ID:
		n.appendAt(ctx, p, hint.node, b, acks, done)
	case rep == nil: // our own, but not open yet
		done(record.Appended{}, p.notLeader())
	default:
		n.appendHere(ctx, p, rep, b, acks, done)
	}
}

// writable returns the partition if users may append to it.
func (n *Node) writable(tp record.TopicPartition) (*partition, error) {
	if n.life.Err() != nil {
		return nil, n.closedError()
	}
	if isInternal(tp.Topic) {
		return nil, fmt.Errorf("%w: topic %q is the cluster's own; write to another", record.ErrInvalid, tp.Topic)
	}
	return n.known(tp)
}

func (n *Node) appendHere(ctx context.Context, p *partition, rep *replica.Replica, b record.Batch, acks record.Acks, done func(record.Appended, error)) {
	rep.Append(ctx, b, replica.AppendOptions{Acks: acks}, func(a record.Appended, err error) {
		if n.life.Err() == nil {
			err = p.elsewhere(rep, err)
		}
		done(a, err)
	})
}

func (n *Node) appendAt(ctx context.Context, p *partition, node string, b record.Batch, acks record.Acks, done func(record.Appended, error)) {
	ctx, cancel := n.whileLeading(ctx, p, node)
	n.cfg.Endpoint.Send(ctx, node, serviceProduce, [][]byte{putProduceRequest(p.key, acks), b}, func(resp []byte, err error) {
		cancel()
		var a record.Appended
		if err == nil {
			a, err = getProduceAnswer(resp)
		} else if !errors.Is(err, record.ErrUnreachable) && !errors.Is(err, record.ErrClosed) {
			err = &record.OutcomeUnknownError{TopicPartition: p.tp, Err: fmt.Errorf("node %q: %w", node, err)}
		}
		if err != nil && retriable(err) {
			n.misrouted(p, node, err)
		}
		done(a, err)
	})
}

// whileLeading is a context that ends when another than node is known to lead, as
// a batch on its way to node is waited for in vain then, and in any case after
// appendTimeout: a link that swallows everything must not keep the batch for ever.
func (n *Node) whileLeading(ctx context.Context, p *partition, node string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	end, look := time.Now().Add(n.appendTimeout), n.cfg.ElectionTimeout/2
	var timer *time.Timer
	timer = time.AfterFunc(math.MaxInt64, func() {
		hint, _ := p.leader()
		if moved := hint.node != "" && hint.node != node; moved || time.Now().After(end) || ctx.Err() != nil {
			cancel()
			return
		}
		timer.Reset(look)
	})
	timer.Reset(look) // only now, as it resets itself
	return ctx, func() { cancel(); timer.Stop() }
}

// handleProduce is the other side of appendAt.
func (n *Node) handleProduce(ctx context.Context, _ string, req []byte, reply func([][]byte, error)) {
	refuse := func(err error) { reply([][]byte{errorAnswer(n.forPeer(err))}, nil) }
	key, acks, b, err := getProduceRequest(req)
	if err != nil {
		refuse(err)
		return
	}
	p, rep, err := n.leading(key)
	if err != nil {
		refuse(err)
		return
	}
	n.appendHere(ctx, p, rep, b, acks, func(a record.Appended, err error) {
		if err != nil {
			refuse(err)
			return
		}
		reply([][]byte{putProduceAnswer(a)}, nil)
	})
}

// leading returns the replica of a partition that this node leads.
func (n *Node) leading(key partitionKey) (*partition, *replica.Replica, error) {
	p := n.byKey(key)
	if p == nil {
		if err := n.gone(key.topic); err != nil {
			return nil, nil, err
		}
		return nil, nil, fmt.Errorf("node %q has not heard of the partition yet: %w", n.cfg.ID, record.ErrUnreachable)
	}
	if hint, rep := p.leader(); rep != nil && hint.node == n.cfg.ID {
		return p, rep, nil
	}
	return nil, nil, p.notLeader()
}

// forPeer is an error as another node should see it: that this one has closed
// must not look as if the asking one had.
func (n *Node) forPeer(err error) error {
	if errors.Is(err, record.ErrClosed) && !errors.Is(err, record.ErrOutcomeUnknown) {
		return fmt.Errorf("node %q has closed: %w", n.cfg.ID, record.ErrUnreachable)
	}
	return err
}
