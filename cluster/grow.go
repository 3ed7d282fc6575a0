package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlog/quorumlog/record"
)

// GrowOption says how a topic may grow.
type GrowOption func(*growth)

type growth struct{ moveKeys bool }

// MoveKeys lets a topic grow whose records have keys.
func MoveKeys() GrowOption { return func(g *growth) { g.moveKeys = true } }

// AddPartitions makes a topic have total partitions, and waits, bounded by ctx, until
// each has a leader that can be reached from here. When only that wait fails, the
// partitions are there, and the topic is returned beside the error. It may be called
// again: a topic that has total is left as it is. What is in the topic stays where it is.
//
// With another number of partitions most keys have another partition, which ends the
// order between the records of a key from before and from after. So a topic whose
// newest records have keys is refused, with *RefusedError, unless MoveKeys is given.
//
// *InvalidTopicError when the topic has more, since records would be lost;
// *record.UnknownTopicError when there is none.
func (n *Node) AddPartitions(ctx context.Context, name string, total int, opts ...GrowOption) (Topic, error) {
	ctx, leave, err := n.enter(ctx)
	if err != nil {
		return Topic{}, err
	}
	defer leave()
	var g growth
	for _, opt := range opts {
		opt(&g)
	}
	if isInternal(name) {
		return Topic{}, &InvalidTopicError{Topic: name, Reason: "it is the cluster's own, and what is in which partition follows from how many there are"}
	}
	what := fmt.Sprintf("add partitions to topic %q", name)
	if err := n.follow(ctx, what); err != nil {
		return Topic{}, err
	}
	t, err := n.lookUp(ctx, name)
	if err != nil {
		return Topic{}, err
	}
	if total > t.Partitions() && !g.moveKeys {
		if err := n.refuseKeys(ctx, t, total); err != nil {
			return Topic{}, err
		}
	}
	a, err := n.ask(ctx, n.meta, what, request{Op: opAddPartitions, Name: name, NewID: t.ID, Total: total})
	if err != nil {
		return Topic{}, err
	}
	if err := n.learned(ctx, what, a.Upto); err != nil {
		return Topic{}, err
	}
	return *a.Topic, n.awaitLeaders(ctx, *a.Topic)
}

// refuseKeys returns *RefusedError if the newest batch of a partition has a key.
func (n *Node) refuseKeys(ctx context.Context, t Topic, total int) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(64)
	for i := range t.Placement {
		g.Go(func() error {
			keys, err := n.newestHasKeys(ctx, t.part(i))
			if err == nil && keys {
				err = refused(fmt.Sprintf("growth of topic %q from %d to %d partitions", t.Name(), t.Partitions(), total),
					"its records have keys, most of which would have another partition, so that records of one key would be out of order: say MoveKeys if that does not matter")
			}
			return err
		})
	}
	return g.Wait()
}

// newestHasKeys looks for the newest batch of records in a partition; markers are none.
func (n *Node) newestHasKeys(ctx context.Context, tp record.TopicPartition) (bool, error) {
	start, high, err := n.Offsets(ctx, tp, record.ReadUncommitted)
	if err != nil {
		return false, err
	}
	for at := high - 1; at >= start; {
		f, err := n.Fetch(ctx, tp, at, 1, record.ReadUncommitted)
		if errors.Is(err, record.ErrOffsetOutOfRange) { // trimmed since
			return false, nil
		}
		if err != nil || len(f.Batches) == 0 {
			return false, err
		}
		b := f.Batches[0]
		if b.IsControl() {
			at = b.BaseOffset() - 1
			continue
		}
		var it record.Iterator
		if err := it.Reset(b); err != nil {
			return false, err
		}
		for r := (record.Record{}); it.Next(&r); {
			if r.Key != nil {
				return true, nil
			}
		}
		return false, it.Err()
	}
	return false, nil
}

// addPartitions decides that a topic gets partitions until it has total. The id makes
// every try the same request: another topic of the name is not meant.
func (m *metadata) addPartitions(name string, id record.TopicID, total int, nodes []string) (Topic, []record.Record, error) {
	t, ok := m.topics[name]
	have := t.Partitions()
	switch {
	case !ok || t.ID != id:
		return Topic{}, nil, &record.UnknownTopicError{Topic: name, Partition: -1}
	case total < have:
		return Topic{}, nil, &InvalidTopicError{Topic: name, Reason: fmt.Sprintf("it has %d partitions, and %d would lose records; ask for at least as many", have, total)}
	case total == have:
		return t, nil, nil
	case t.Config.Replicas > len(nodes):
		return Topic{}, nil, refused(fmt.Sprintf("growth of topic %q", name), "its partitions have %d replicas, but %d nodes are active; add a node first", t.Config.Replicas, len(nodes))
	}
	t.Placement = append(slices.Clone(t.Placement), place(nodes, m.goals(), total-have, t.Config.Replicas)...)
	t.Config.Partitions = total
	r, err := metadataRecord(keyTopic+name, topicValue{V: metadataVersion, Topic: t})
	return t, []record.Record{r}, err
}

// goals returns the nodes of every partition there is, as they will be.
func (m *metadata) goals() (goals [][]string) {
	for _, a := range m.placed {
		goals = append(goals, a.goal())
	}
	return goals
}

// foldGrown takes in the partitions that a topic has got. Those that it had are where
// their own records say.
func (m *metadata) foldGrown(had, t Topic) *news {
	t.Placement = append(slices.Clone(had.Placement), t.Placement[had.Partitions():]...)
	m.topics[t.Name()] = t
	for i, replicas := range t.Placement[had.Partitions():] {
		m.placed[t.key(int32(had.Partitions()+i))] = assignment{Replicas: replicas}
	}
	return &news{grown: &t}
}
