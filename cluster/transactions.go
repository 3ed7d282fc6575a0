package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/replica"
	txn "github.com/quorumlog/quorumlog/txn/coordinator"
)

// TransactionsTopic holds what is known of each transactional id. It is made when
// the first one is used.
const TransactionsTopic = "__transaction_state"

const transactionsPartitions = 8 // ids are spread over so many coordinators

// Transaction passes a request to the coordinator of a transactional id, wherever
// that is. It waits for the next coordinator after a change, until ctx ends.
func (n *Node) Transaction(ctx context.Context, id string, req txn.Request) (txn.Response, error) {
	ctx, leave, err := n.enter(ctx)
	if err != nil {
		return txn.Response{}, err
	}
	defer leave()
	p, err := n.coordinatorOf(ctx, TransactionsTopic, transactionsPartitions, id)
	if err != nil {
		return txn.Response{}, err
	}
	a, err := n.ask(ctx, p, fmt.Sprintf("transaction %q", id), request{Op: opTransaction, Name: id, Transaction: &req})
	if err != nil {
		return txn.Response{}, err
	}
	return *a.Transaction, nil
}

// startTransactions starts the coordinator beside a replica of the topic.
func (n *Node) startTransactions(tp record.TopicPartition, rep *replica.Replica) *txn.Coordinator {
	t, _ := n.folded(tp.Topic)
	return txn.Start(txn.Config{
		Partition:       local{rep, tp, n.cfg.ID},
		Participants:    participants{n},
		NewProducerID:   n.freshProducerID,
		Changed:         rep.Changed,
		Forgetful:       t.Config.Flush != log.FlushEach,
		Logger:          n.cfg.Logger.With("partition", tp.String()),
		CompactionFloor: n.cfg.CompactionFloor,
	})
}

// answerTransaction has this node's coordinator answer.
func (p *partition) answerTransaction(ctx context.Context, req request) (answer, error) {
	_, beside, _ := p.state()
	coord, _ := beside.(*txn.Coordinator)
	switch {
	case p.tp.Topic != TransactionsTopic || req.Transaction == nil:
		return answer{}, fmt.Errorf("%w: %v has no transactions", record.ErrInvalid, p.tp)
	case coord == nil: // closing
		return answer{}, &record.NotLeaderError{TopicPartition: p.tp}
	}
	resp, err := coord.Do(ctx, req.Name, *req.Transaction)
	return answer{Transaction: &resp}, err
}

// answerTransactions lists what is open in a partition, and what its coordinator
// keeps if it has one.
func (p *partition) answerTransactions(ctx context.Context, rep *replica.Replica) (a answer, err error) {
	if _, _, err := rep.ReadIndex(ctx); err != nil {
		return a, err
	}
	a.Open = rep.OpenTransactions()
	_, beside, _ := p.state()
	if coord, ok := beside.(*txn.Coordinator); ok {
		err = coord.Read(ctx, func(s *txn.State) { a.Kept = s.Open() })
	}
	return a, err
}

// answerParticipant does what a transaction's coordinator asks of a partition.
func answerParticipant(ctx context.Context, rep *replica.Replica, req request) error {
	switch {
	case req.Op == opTransactionOpen && req.Producer != nil:
		return rep.OpenTransaction(ctx, req.Producer.ID, req.Producer.Epoch)
	case req.Op == opTransactionMark && req.Marker != nil:
		return rep.Mark(ctx, *req.Marker)
	}
	return errFrame
}

// participants are the partitions and groups that transactions touch.
type participants struct{ n *Node }

// Open lets a transaction write to tp.
func (p participants) Open(ctx context.Context, tp record.TopicPartition, producer record.ProducerID, epoch record.ProducerEpoch) error {
	return p.tell(ctx, tp, "open", request{Op: opTransactionOpen, Producer: &identity{ID: producer, Epoch: epoch}})
}

// Mark ends a transaction in tp.
func (p participants) Mark(ctx context.Context, tp record.TopicPartition, m record.Marker) error {
	return p.tell(ctx, tp, "end", request{Op: opTransactionMark, Marker: &m})
}

// tell has the leader of tp do what a coordinator asks of it. The replica here is
// asked without more ado if it leads: when it does not any more it says so itself.
func (p participants) tell(ctx context.Context, tp record.TopicPartition, what string, req request) error {
	part, err := p.n.existing(ctx, tp)
	if err != nil {
		return err
	}
	if hint, rep := part.leader(); rep != nil && hint.node == p.n.cfg.ID {
		if err := part.elsewhere(rep, answerParticipant(ctx, rep, req)); err == nil || !retriable(err) {
			return err
		}
	}
	_, err = p.n.ask(ctx, part, fmt.Sprintf("%s a transaction in %v", what, tp), req)
	return err
}

// Settle ends a transaction in a group.
func (p participants) Settle(ctx context.Context, name string, m record.Marker) error {
	_, err := p.n.Group(ctx, name, group.Request{
		Op: group.OpSettle, Producer: m.Producer, Epoch: m.Epoch, Settle: m.Commit, Coordinator: m.Coordinator,
	})
	return err
}

// existing is find that makes no topic.
func (n *Node) existing(ctx context.Context, tp record.TopicPartition) (*partition, error) {
	if p, err := n.known(tp); !errors.Is(err, record.ErrUnknownTopic) {
		return p, err
	}
	what := fmt.Sprintf("look up %v", tp)
	if err := n.follow(ctx, what); err != nil {
		return nil, err
	}
	return n.known(tp)
}

// OpenTransaction is a transaction that holds the last stable offset of a partition
// back, or will when those before it have ended.
type OpenTransaction struct {
	ID        string // transactional id; "" when no coordinator knows of it
	Producer  record.ProducerID
	Epoch     record.ProducerEpoch
	Partition int32
	First     record.Offset // of its records in the partition
	Age       time.Duration // since it began, by the coordinator's clock, else by its first record's time
	State     txn.Status    // txn.Dead when no coordinator knows of it
}

// OpenTransactions returns the transactions that are open in a topic: by partition,
// the oldest first.
func (n *Node) OpenTransactions(ctx context.Context, topic string) ([]OpenTransaction, error) {
	ctx, leave, err := n.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	t, err := n.topic(ctx, topic)
	if err != nil {
		return nil, err
	}
	answers, err := n.transactionsIn(ctx, topic, t.Partitions())
	if err != nil {
		return nil, err
	}
	var open []OpenTransaction
	now := time.Now()
	for i, a := range answers {
		for _, o := range a.Open {
			open = append(open, OpenTransaction{
				Producer: o.Producer, Epoch: o.Epoch, Partition: int32(i), First: o.First,
				Age: now.Sub(time.UnixMilli(o.Time)), State: txn.Dead,
			})
		}
	}
	if len(open) == 0 {
		return nil, nil
	}
	coordinators, err := n.topic(ctx, TransactionsTopic)
	if err != nil {
		return open, err
	}
	kept, err := n.transactionsIn(ctx, TransactionsTopic, coordinators.Partitions())
	for i := range open {
		open[i].nameFrom(kept, now)
	}
	return open, err
}

// nameFrom fills in what the transaction's coordinator knows.
func (o *OpenTransaction) nameFrom(kept []answer, now time.Time) {
	for _, a := range kept {
		for _, k := range a.Kept {
			epoch := k.Epoch
			if k.Status != txn.Ongoing { // it is the one of the markers
				epoch--
			}
			if k.Producer == o.Producer && epoch == o.Epoch {
				o.ID, o.State, o.Age = k.ID, k.Status, now.Sub(k.Start)
			}
		}
	}
}

// transactionsIn asks every partition of a topic.
func (n *Node) transactionsIn(ctx context.Context, topic string, partitions int) ([]answer, error) {
	answers := make([]answer, partitions)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(64)
	for i := range answers {
		g.Go(func() error {
			p, err := n.known(record.TopicPartition{Topic: topic, Partition: int32(i)})
			if err == nil {
				answers[i], err = n.ask(ctx, p, fmt.Sprintf("open transactions of %v", p.tp), request{Op: opTransactions})
			}
			return err
		})
	}
	return answers, g.Wait()
}

// AbortTransaction aborts a transaction that OpenTransactions has named, in all its
// partitions, and returns when its marker is in all of them. Its owner is told that
// it has ended. One that no coordinator knows of, which nobody else would end, is
// aborted in its partition. *txn/coordinator.EndedError: it has ended otherwise.
func (n *Node) AbortTransaction(ctx context.Context, topic string, o OpenTransaction) error {
	if o.ID != "" {
		_, err := n.Transaction(ctx, o.ID, txn.Request{Op: txn.OpAbort, Producer: o.Producer, Epoch: o.Epoch})
		return err
	}
	ctx, leave, err := n.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	p, err := n.find(ctx, record.TopicPartition{Topic: topic, Partition: o.Partition})
	if err != nil {
		return err
	}
	a, err := n.ask(ctx, p, fmt.Sprintf("open transactions of %v", p.tp), request{Op: opTransactions})
	if err != nil {
		return err
	}
	i := slices.IndexFunc(a.Open, func(is replica.OpenTransaction) bool {
		return is.Producer == o.Producer && is.Epoch == o.Epoch
	})
	if i < 0 {
		return &txn.EndedError{Producer: o.Producer, Epoch: o.Epoch}
	}
	m := record.Marker{Producer: o.Producer, Epoch: o.Epoch + 1, Coordinator: a.Open[i].Coordinator}
	_, err = n.ask(ctx, p, fmt.Sprintf("abort a transaction in %v", p.tp), request{Op: opTransactionMark, Marker: &m})
	return err
}

// oldest returns how long the oldest open transaction holds readers back.
func oldest(open []replica.OpenTransaction, now time.Time) time.Duration {
	if len(open) == 0 {
		return 0
	}
	first := slices.MinFunc(open, func(a, b replica.OpenTransaction) int { return cmp.Compare(a.First, b.First) })
	return max(0, now.Sub(time.UnixMilli(first.Time)))
}
