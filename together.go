package quorumlog

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/txn"
)

// ProduceAll writes records to their topics (Record.Topic), all of them or none.
// Those of one partition that fit into a batch are one batch; else it is a
// transaction. nil: all are written.
//
// *AbortedError, or another error: none is. *OutcomeUnknownError: nobody knows yet
// whether all are, or none is.
func (n *Node) ProduceAll(ctx context.Context, records ...Record) error {
	if len(records) == 0 {
		return nil
	}
	one, err := n.inOnePartition(ctx, records)
	if err != nil {
		return err
	}
	if one {
		_, err := n.producer.SendTogether(ctx, records)
		return err
	}
	return n.atomic.do(ctx, func(tx *Tx) error { return sendAll(tx, records) })
}

func sendAll(tx *Tx, records []Record) error {
	for _, r := range records {
		if err := tx.Send(r); err != nil {
			return err
		}
	}
	return nil
}

// batchBytes is what a batch of Node.producer takes.
const batchBytes = 1 << 20

// inOnePartition reports whether records can be one batch.
func (n *Node) inOnePartition(ctx context.Context, records []Record) (bool, error) {
	size := record.HeaderSize
	home := -1
	for i := range records {
		r := &records[i]
		if r.Topic == "" {
			return false, fmt.Errorf("%w: a record has no topic", ErrInvalid)
		}
		if size += record.SizeOf(r); size > batchBytes || r.Topic != records[0].Topic {
			return false, nil
		}
		if r.Key == nil {
			continue
		}
		_, count, err := n.cluster.Layout(ctx, r.Topic)
		if err != nil {
			return false, err
		}
		p := producer.KeyPartition(r.Key, count)
		if home >= 0 && p != home {
			return false, nil
		}
		home = p
	}
	return true, nil
}

// clients are the transactional clients behind ProduceAll, and behind the moves of
// groups: as many as calls are under way at once. Their ids are those of the node, so that what a node has left
// open when it died ends when it is back.
type clients struct {
	open func(id string) (*txn.Client, error)
	node string

	mu     sync.Mutex
	closed bool
	all    []*txn.Client
	idle   []*txn.Client
}

// do runs a transaction. A client whose id was taken away is not used again, and is
// no reason to give up: with another one it may go well.
func (c *clients) do(ctx context.Context, fn func(tx *Tx) error) error {
	client, err := c.take()
	if err != nil {
		return err
	}
	err = client.Do(ctx, fn)
	switch taken := client.Fenced(); {
	case taken == nil:
		c.giveBack(client)
	case err != nil && !errors.Is(err, ErrOutcomeUnknown):
		err = fmt.Errorf("%w: %v", record.ErrUnreachable, taken)
	}
	return err
}

func (c *clients) take() (*txn.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	if n := len(c.idle); n > 0 {
		client := c.idle[n-1]
		c.idle = c.idle[:n-1]
		return client, nil
	}
	client, err := c.open(fmt.Sprintf("__produce.%s.%d", c.node, len(c.all)))
	if err == nil {
		c.all = append(c.all, client)
	}
	return client, err
}

func (c *clients) giveBack(client *txn.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = append(c.idle, client)
}

func (c *clients) close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	all := c.all
	c.mu.Unlock()
	var errs []error
	for _, client := range all {
		errs = append(errs, client.Close(ctx))
	}
	return errors.Join(errs...)
}
