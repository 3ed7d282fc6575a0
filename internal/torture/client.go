package torture

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlog/quorumlog/consumer"
	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/txn"
	"github.com/quorumlog/quorumlog/txn/coordinator"
)

var (
	_ producer.Cluster     = (*client)(nil)
	_ txn.Cluster          = (*client)(nil)
	_ consumer.Source      = (*client)(nil)
	_ consumer.Coordinator = (*client)(nil)
)

// elsewhere is an error of a node as its client sees it: that the node has
// closed is no end, there are others.
func elsewhere(err error) error {
	if err != nil && errors.Is(err, record.ErrClosed) && !errors.Is(err, record.ErrOutcomeUnknown) {
		return fmt.Errorf("%w: %v", record.ErrUnreachable, err)
	}
	return err
}

func (c *client) Partitions(ctx context.Context, topic string) (int, error) {
	n, err := c.node()
	if err != nil {
		return 0, err
	}
	count, err := n.Partitions(ctx, topic)
	return count, elsewhere(err)
}

func (c *client) Layout(ctx context.Context, topic string) (record.TopicID, int, error) {
	n, err := c.node()
	if err != nil {
		return record.TopicID{}, 0, err
	}
	id, count, err := n.Layout(ctx, topic)
	return id, count, elsewhere(err)
}

func (c *client) Append(ctx context.Context, id record.TopicID, tp record.TopicPartition, b record.Batch, acks record.Acks, done func(record.Appended, error)) {
	n, err := c.node()
	if err != nil {
		done(record.Appended{}, err)
		return
	}
	n.Append(ctx, id, tp, b, acks, func(a record.Appended, err error) { done(a, elsewhere(err)) })
}

func (c *client) NewProducer(ctx context.Context, name string) (record.ProducerID, record.ProducerEpoch, error) {
	n, err := c.node()
	if err != nil {
		return 0, 0, err
	}
	id, epoch, err := n.NewProducer(ctx, name)
	return id, epoch, elsewhere(err)
}

func (c *client) RenewProducer(ctx context.Context, name string, id record.ProducerID, epoch record.ProducerEpoch) (record.ProducerID, record.ProducerEpoch, error) {
	n, err := c.node()
	if err != nil {
		return 0, 0, err
	}
	id, epoch, err = n.RenewProducer(ctx, name, id, epoch)
	return id, epoch, elsewhere(err)
}

func (c *client) Fetch(ctx context.Context, tp record.TopicPartition, from record.Offset, maxBytes int, iso record.Isolation) (record.Fetched, error) {
	n, err := c.node()
	if err != nil {
		return record.Fetched{}, err
	}
	f, err := n.Fetch(ctx, tp, from, maxBytes, iso)
	return f, elsewhere(err)
}

func (c *client) Offsets(ctx context.Context, tp record.TopicPartition, iso record.Isolation) (start, high record.Offset, err error) {
	n, err := c.node()
	if err != nil {
		return 0, 0, err
	}
	start, high, err = n.Offsets(ctx, tp, iso)
	return start, high, elsewhere(err)
}

func (c *client) OffsetForTime(ctx context.Context, tp record.TopicPartition, t time.Time) (record.Offset, bool, error) {
	n, err := c.node()
	if err != nil {
		return record.NoOffset, false, err
	}
	offset, ok, err := n.OffsetForTime(ctx, tp, t)
	return offset, ok, elsewhere(err)
}

func (c *client) Group(ctx context.Context, name string, req group.Request) (group.Response, error) {
	n, err := c.node()
	if err != nil {
		return group.Response{}, err
	}
	resp, err := n.Group(ctx, name, req)
	return resp, elsewhere(err)
}

func (c *client) Transaction(ctx context.Context, id string, req coordinator.Request) (coordinator.Response, error) {
	n, err := c.node()
	if err != nil {
		return coordinator.Response{}, err
	}
	resp, err := n.Transaction(ctx, id, req)
	return resp, elsewhere(err)
}

// watched is a Source whose answers the history checks.
type watched struct {
	consumer.Source
	who     string
	history *history
}

func (w watched) Fetch(ctx context.Context, tp record.TopicPartition, from record.Offset, maxBytes int, iso record.Isolation) (record.Fetched, error) {
	f, err := w.Source.Fetch(ctx, tp, from, maxBytes, iso)
	var outside *record.OffsetRangeError
	switch {
	case err == nil:
		w.history.fetched(w.who, tp, iso, f)
	case errors.As(err, &outside) && from < outside.End:
		w.history.overtaken(w.who, tp, from, outside.Start)
	}
	return f, err
}

func (w watched) Offsets(ctx context.Context, tp record.TopicPartition, iso record.Isolation) (start, high record.Offset, err error) {
	floor := w.history.floor(tp)
	start, high, err = w.Source.Offsets(ctx, tp, iso)
	if err == nil && iso == record.ReadUncommitted {
		w.history.reached(w.who, tp, floor, high)
	}
	return start, high, err
}

// watchedGroup is a Coordinator whose answers the history checks. One member uses it.
type watchedGroup struct {
	consumer.Coordinator
	history *history
	told    func(tp record.TopicPartition, o record.Offset) // a committed offset
}

func (w watchedGroup) Group(ctx context.Context, name string, req group.Request) (group.Response, error) {
	floors := make([]record.Offset, len(req.Partitions))
	switch req.Op {
	case group.OpCommit:
		for _, o := range req.Offsets {
			w.history.commits(groupPart{name, o.TopicPartition}, o.Offset)
		}
	case group.OpCommitted:
		for i, tp := range req.Partitions {
			floors[i] = w.history.stored(groupPart{name, tp})
		}
	}
	resp, err := w.Coordinator.Group(ctx, name, req)
	if err != nil {
		return resp, err
	}
	switch req.Op {
	case group.OpCommit:
		for _, o := range req.Offsets {
			w.history.committed(groupPart{name, o.TopicPartition}, o.Offset)
		}
	case group.OpCommitted:
		for i, o := range resp.Offsets {
			w.history.answered(groupPart{name, o.TopicPartition}, floors[i], o.Offset)
			w.told(o.TopicPartition, max(o.Offset, 0))
		}
	}
	return resp, err
}
