package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/quorumlog/quorumlog/record"
)

// table finds partitions by the name users give, and by the key nodes give.
type table struct {
	self   string                  // this node
	byName map[string][]*partition // by topic, then by number
	byKey  map[partitionKey]*partition
	// dropped are partitions of deleted topics that may still have a replica here.
	dropped []*partition
}

// add must be called for a topic's partitions in order.
func (t *table) add(tp record.TopicPartition, id record.TopicID, nodes []string) *partition {
	p := newPartition(t.self, tp, id, nodes)
	t.byName[tp.Topic] = append(t.byName[tp.Topic], p)
	t.byKey[p.key] = p
	return p
}

// dropTopic takes a deleted topic's partitions from the table. Their replicas are
// closed later, by who opened them.
func (n *Node) dropTopic(t Topic) {
	n.tabling.Lock()
	defer n.tabling.Unlock()
	for _, p := range n.table.byName[t.Name()] {
		p.delete()
		delete(n.table.byKey, p.key)
		n.table.dropped = append(n.table.dropped, p)
	}
	delete(n.table.byName, t.Name())
}

// addTopic adds the partitions of a topic that were decided on at an offset of the
// metadata: all of a new one, or those that one has got.
func (n *Node) addTopic(t Topic, at record.Offset) {
	n.tabling.Lock()
	defer n.tabling.Unlock()
	for i := len(n.table.byName[t.Name()]); i < t.Partitions(); i++ {
		n.table.add(t.part(i), t.ID, t.Placement[i]).made = at
	}
}

// known returns a partition this node knows of; *record.UnknownTopicError
// otherwise, record.ErrInvalid for a number that no partition has.
func (n *Node) known(tp record.TopicPartition) (*partition, error) {
	n.tabling.RLock()
	parts := n.table.byName[tp.Topic]
	n.tabling.RUnlock()
	switch {
	case tp.Partition < 0:
		return nil, fmt.Errorf("%v: %w: partitions are numbered from 0", tp, record.ErrInvalid)
	case parts == nil:
		return nil, &record.UnknownTopicError{Topic: tp.Topic, Partition: -1}
	case int(tp.Partition) >= len(parts):
		return nil, &record.UnknownTopicError{Topic: tp.Topic, Partition: tp.Partition}
	}
	return parts[tp.Partition], nil
}

// find is known, after a look at the newest metadata if need be.
func (n *Node) find(ctx context.Context, tp record.TopicPartition) (*partition, error) {
	look := n.topic
	if m, ok := ctx.Value(meansKey{}).(*means); ok {
		if _, ok := m.get(tp.Topic); ok { // it was there, so it is not made
			look = n.lookUp
		}
	}
	p, err := n.known(tp)
	if errors.Is(err, record.ErrUnknownTopic) {
		if _, err = look(ctx, tp.Topic); err == nil {
			p, err = n.existing(ctx, tp)
		}
	}
	if err != nil {
		return nil, err
	}
	return meansToo(ctx, p)
}

func (n *Node) byKey(k partitionKey) *partition {
	n.tabling.RLock()
	defer n.tabling.RUnlock()
	return n.table.byKey[k]
}

// takeDropped returns the partitions that were dropped since it was last called.
func (n *Node) takeDropped() []*partition {
	n.tabling.Lock()
	defer n.tabling.Unlock()
	dropped := n.table.dropped
	n.table.dropped = nil
	return dropped
}

func (n *Node) all() []*partition {
	n.tabling.RLock()
	defer n.tabling.RUnlock()
	return slices.Collect(maps.Values(n.table.byKey))
}
