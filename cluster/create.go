package cluster

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlog/quorumlog/record"
)

// CreateTopic makes a topic and waits, bounded by ctx, until each of its
// partitions has a leader that can be reached from here. When only that wait
// fails, the topic is there, and is returned beside the error.
// *InvalidTopicError if cfg makes no sense; record.ErrTopicExists.
func (n *Node) CreateTopic(ctx context.Context, cfg TopicConfig) (Topic, error) {
	ctx, leave, err := n.enter(ctx)
	if err != nil {
		return Topic{}, err
	}
	defer leave()
	if isInternal(cfg.Name) {
		return Topic{}, &InvalidTopicError{Topic: cfg.Name, Reason: `names that begin with "__" are the cluster's own; use another`}
	}
	t, err := n.createTopic(ctx, cfg)
	if err != nil {
		return Topic{}, err
	}
	return t, n.awaitLeaders(ctx, t)
}

// createTopic returns when this node knows of the new topic.
func (n *Node) createTopic(ctx context.Context, cfg TopicConfig) (Topic, error) {
	var nodes int
	n.fold.View(func() { nodes = len(n.metadata.members(NodeActive)) })
	if err := cfg.withDefaults(nodes).check(nodes); err != nil {
		return Topic{}, err
	}
	what := fmt.Sprintf("create topic %q", cfg.Name)
	// The id makes every try the same request.
	a, err := n.ask(ctx, n.meta, what, request{Op: opCreateTopic, Topic: &cfg, NewID: record.NewTopicID()})
	if err != nil {
		return Topic{}, err
	}
	if err := n.learned(ctx, what, a.Upto); err != nil {
		return Topic{}, err
	}
	return *a.Topic, nil
}

// WaitReady returns when every partition of a topic has a leader that can be
// reached from here. The topic is looked up as by Topic.
func (n *Node) WaitReady(ctx context.Context, topic string) error {
	ctx, leave, err := n.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	t, err := n.topic(ctx, topic)
	if err != nil {
		return err
	}
	return n.awaitLeaders(ctx, t)
}

// awaitLeaders returns when every partition's leader has answered.
func (n *Node) awaitLeaders(ctx context.Context, t Topic) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(64)
	for i := range t.Placement {
		g.Go(func() error {
			p, err := n.known(record.TopicPartition{Topic: t.Name(), Partition: int32(i)})
			if err == nil {
				_, err = n.ask(ctx, p, fmt.Sprintf("wait for a leader of %v", p.tp), request{Op: opReady})
			}
			return err
		})
	}
	return g.Wait()
}

// learned waits until this node has folded the metadata below offset upto.
func (n *Node) learned(ctx context.Context, what string, upto record.Offset) error {
	if err := n.fold.Wait(ctx, upto); err != nil {
		if ctx.Err() != nil {
			return gaveUp(ctx, what, errors.New("this node waits for the metadata"))
		}
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// follow folds all that was decided before the call.
func (n *Node) follow(ctx context.Context, what string) error {
	a, err := n.ask(ctx, n.meta, what, request{Op: opSync})
	if err != nil {
		return err
	}
	return n.learned(ctx, what, a.Upto)
}

// Topic returns a topic; *record.UnknownTopicError if there is none. It is made
// first if Config.AutoCreate says so.
func (n *Node) Topic(ctx context.Context, name string) (Topic, error) {
	ctx, leave, err := n.enter(ctx)
	if err != nil {
		return Topic{}, err
	}
	defer leave()
	return n.topic(ctx, name)
}

func (n *Node) topic(ctx context.Context, name string) (Topic, error) {
	t, err := n.lookUp(ctx, name)
	if !errors.Is(err, record.ErrUnknownTopic) || !n.cfg.AutoCreate || isInternal(name) {
		return t, err
	}
	cfg := n.cfg.Defaults
	cfg.Name = name
	t, err = n.createTopic(ctx, cfg)
	if errors.Is(err, record.ErrTopicExists) { // somebody was faster
		return n.topic(ctx, name)
	}
	if err != nil {
		return Topic{}, err
	}
	return t, n.awaitLeaders(ctx, t)
}

// lookUp is topic without making it.
func (n *Node) lookUp(ctx context.Context, name string) (Topic, error) {
	if t, ok := n.folded(name); ok {
		return t, nil
	}
	if err := checkName(name); err != nil {
		return Topic{}, err
	}
	// It may be new. Catch up with all that was decided before this call.
	what := fmt.Sprintf("look up topic %q", name)
	if err := n.follow(ctx, what); err != nil {
		return Topic{}, err
	}
	if t, ok := n.folded(name); ok {
		return t, nil
	}
	return Topic{}, &record.UnknownTopicError{Topic: name, Partition: -1}
}

// folded looks a topic up in what this node knows.
func (n *Node) folded(name string) (t Topic, ok bool) {
	n.fold.View(func() { t, ok = n.metadata.topics[name] })
	return t, ok
}

// Topics returns the topics this node knows of, sorted by name, without the
// cluster's own. It asks nobody, so it may lag a little.
func (n *Node) Topics() (topics []Topic) {
	n.fold.View(func() { topics = n.metadata.sortedTopics() })
	return topics
}

// Partitions returns how many partitions a topic has, as Topic does.
func (n *Node) Partitions(ctx context.Context, topic string) (int, error) {
	t, err := n.Topic(ctx, topic)
	return t.Partitions(), err
}

// Layout returns a topic's id and how many partitions it has, as Topic does. It is
// quick when this node knows the topic.
func (n *Node) Layout(ctx context.Context, topic string) (record.TopicID, int, error) {
	if t, ok := n.folded(topic); ok && n.life.Err() == nil {
		return t.ID, t.Partitions(), nil
	}
	t, err := n.Topic(ctx, topic)
	return t.ID, t.Partitions(), err
}

// decide answers what only the leader of the metadata partition can.
func (n *Node) decide(ctx context.Context, req request) (a answer, err error) {
	if req.Op == opSync {
		rep := n.metaReplica.Load()
		_, a.Upto, err = rep.ReadIndex(ctx)
		return a, n.meta.elsewhere(rep, err)
	}
	if req.Op == opMoves {
		if node, _ := n.metaReplica.Load().Leader(); node != n.cfg.ID {
			return a, n.meta.notLeader()
		}
		return answer{Moves: n.answerMoves()}, nil
	}
	if req.Op == opCreateTopic && req.Topic == nil {
		return a, errFrame
	}
	err = n.propose(ctx, func() (records []record.Record, err error) {
		switch req.Op {
		case opCreateTopic:
			var t Topic
			t, records, err = n.metadata.createTopic(*req.Topic, req.NewID, n.metadata.members(NodeActive))
			a.Topic = &t
		case opDeleteTopic:
			records, err = n.metadata.deleteTopic(req.Name, req.NewID)
		case opAddPartitions:
			var t Topic
			t, records, err = n.metadata.addPartitions(req.Name, req.NewID, req.Total, n.metadata.members(NodeActive))
			a.Topic = &t
		case opReassign:
			records, err = n.metadata.reassign(req.Moves)
		case opAddNode:
			records, err = n.metadata.addNode(req.Node, req.Itself)
		case opDrain:
			a.Moves, records, err = n.metadata.drainNode(req.Node, req.Instead)
		case opRemoveNode:
			records, err = n.metadata.removeNode(req.Node)
		case opProducerIDs:
			a.Producer.ID, records, err = n.metadata.takeProducerIDs(producerBlock)
		case opProducerName:
			if req.Held != nil {
				a.Producer, records, err = n.metadata.renewProducerName(req.Name, *req.Held)
			} else {
				a.Producer, records, err = n.metadata.takeProducerName(req.Name)
			}
		}
		return records, err
	})
	if err != nil {
		return answer{}, err
	}
	n.fold.View(func() { a.Upto = n.metadata.next })
	return a, nil
}

// propose has the leader of the metadata partition decide. The first decision
// says who the founders are.
func (n *Node) propose(ctx context.Context, decide func() ([]record.Record, error)) error {
	return n.fold.Propose(ctx, func(record.LeaderEpoch) ([]record.Record, error) {
		records, err := decide()
		if err != nil || len(records) == 0 {
			return nil, err
		}
		founding, err := n.metadata.found()
		return append(founding, records...), err
	})
}
