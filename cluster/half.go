package cluster

import (
	"context"
	"fmt"

	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/replica"
	"github.com/quorumlog/quorumlog/txn/half"
)

// HalfTopic holds half messages. It is made when the first one is stored.
const HalfTopic = "__half_messages"

const halfPartitions = 4 // producer groups are spread over so many coordinators

// Half passes a request to the coordinator of a producer group's half messages,
// wherever that is. It waits for the next coordinator after a change, until ctx ends.
func (n *Node) Half(ctx context.Context, group string, req half.Request) (half.Response, error) {
	ctx, leave, err := n.enter(ctx)
	if err != nil {
		return half.Response{}, err
	}
	defer leave()
	p, err := n.coordinatorOf(ctx, HalfTopic, halfPartitions, group)
	if err != nil {
		return half.Response{}, err
	}
	a, err := n.ask(ctx, p, fmt.Sprintf("half messages of %q", group), request{Op: opHalf, Name: group, Half: &req})
	if err != nil {
		return half.Response{}, err
	}
	return *a.Half, nil
}

func (n *Node) startHalf(tp record.TopicPartition, rep *replica.Replica) *half.Coordinator {
	return half.Start(half.Config{
		Partition:       local{rep, tp, n.cfg.ID},
		Append:          n.appendOnce,
		NewProducerID:   n.freshProducerID,
		Changed:         rep.Changed,
		Logger:          n.cfg.Logger.With("partition", tp.String()),
		CompactionFloor: n.cfg.CompactionFloor,
	})
}

// appendOnce is Append that waits.
func (n *Node) appendOnce(ctx context.Context, tp record.TopicPartition, b record.Batch) error {
	if _, err := n.existing(ctx, tp); err != nil {
		return err
	}
	done := make(chan error, 1)
	n.Append(ctx, record.TopicID{}, tp, b, record.AckQuorum, func(_ record.Appended, err error) { done <- err })
	return <-done // it ends with ctx
}

// answerHalf has this node's coordinator answer.
func (p *partition) answerHalf(ctx context.Context, req request) (answer, error) {
	_, beside, _ := p.state()
	coord, _ := beside.(*half.Coordinator)
	switch {
	case p.tp.Topic != HalfTopic || req.Half == nil:
		return answer{}, fmt.Errorf("%w: %v has no half messages", record.ErrInvalid, p.tp)
	case coord == nil: // closing
		return answer{}, &record.NotLeaderError{TopicPartition: p.tp}
	}
	resp, err := coord.Do(ctx, req.Name, *req.Half)
	return answer{Half: &resp}, err
}
