package cluster

import (
	"context"
	"fmt"

	"github.com/quorumlog/quorumlog/record"
)

// producerIDs are the ids this node may still hand out, from a block that is
// its own. Taking the turn guards the fields.
type producerIDs struct {
	turn      chan struct{} // capacity 1
	next, end record.ProducerID
}

// NewProducer returns the identity of an idempotent producer. Without a name
// it is a fresh id, unique in the cluster for ever. With a name the id stays
// and the epoch rises, so that an older holder of the name is fenced.
func (n *Node) NewProducer(ctx context.Context, name string) (record.ProducerID, record.ProducerEpoch, error) {
	ctx, leave, err := n.enter(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer leave()
	if name == "" {
		id, err := n.freshProducerID(ctx)
		return id, 0, err
	}
	// A try whose outcome is unknown may have taken an epoch; the next takes one above it.
	return n.producerName(ctx, request{Op: opProducerName, Name: name})
}

// RenewProducer returns the next identity of the producer that holds name as
// (id, epoch). When another has taken the name since, it changes nothing and
// returns *record.FencedError: a holder that lags behind must not fence the one
// that counts. Asked again with the same arguments it gives the same answer.
func (n *Node) RenewProducer(ctx context.Context, name string, id record.ProducerID, epoch record.ProducerEpoch) (record.ProducerID, record.ProducerEpoch, error) {
	ctx, leave, err := n.enter(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer leave()
	return n.producerName(ctx, request{Op: opProducerName, Name: name, Held: &identity{ID: id, Epoch: epoch}})
}

func (n *Node) producerName(ctx context.Context, req request) (record.ProducerID, record.ProducerEpoch, error) {
	a, err := n.ask(ctx, n.meta, fmt.Sprintf("identity of producer %q", req.Name), req)
	return a.Producer.ID, a.Producer.Epoch, err
}

func (n *Node) freshProducerID(ctx context.Context) (record.ProducerID, error) {
	const what = "take a producer id"
	select {
	case n.ids.turn <- struct{}{}:
		defer func() { <-n.ids.turn }()
	case <-ctx.Done():
		return 0, gaveUp(ctx, what, nil)
	}
	if n.ids.next == n.ids.end {
		a, err := n.ask(ctx, n.meta, what, request{Op: opProducerIDs})
		if err != nil {
			return 0, err
		}
		n.ids.next, n.ids.end = a.Producer.ID, a.Producer.ID+producerBlock
	}
	id := n.ids.next
	n.ids.next++
	return id, nil
}
