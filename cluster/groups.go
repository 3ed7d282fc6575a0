package cluster

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/replica"
)

// OffsetsTopic holds what groups have committed, and who is in them. It is
// made when the first group is used.
const OffsetsTopic = "__consumer_offsets"

const offsetsPartitions = 4 // groups are spread over so many coordinators

// Group passes a request to the group's coordinator, wherever that is. It waits
// for the next coordinator after a change, until ctx ends. Offsets are of the topics
// that have those names now; *record.UnknownTopicError for one that was deleted.
func (n *Node) Group(ctx context.Context, name string, req group.Request) (group.Response, error) {
	return n.group(ctx, name, req, func(topic string) record.TopicID {
		t, _ := n.folded(topic)
		return t.ID
	})
}

// group is Group where names stand for the topics that mean says; the zero id for
// one that is not known.
func (n *Node) group(ctx context.Context, name string, req group.Request, mean func(topic string) record.TopicID) (group.Response, error) {
	ctx, leave, err := n.enter(ctx)
	if err != nil {
		return group.Response{}, err
	}
	defer leave()
	if name == "" {
		return group.Response{}, fmt.Errorf("%w: the group's name is empty; give it a name", record.ErrInvalid)
	}
	p, err := n.groupPartition(ctx, name)
	if err != nil {
		return group.Response{}, err
	}
	req.Offsets = slices.Clone(req.Offsets)
	for i, o := range req.Offsets {
		if o.TopicID == (record.TopicID{}) {
			req.Offsets[i].TopicID = mean(o.Topic)
		}
	}
	a, err := n.ask(ctx, p, fmt.Sprintf("group %q", name), request{Op: opGroup, Name: name, Group: &req})
	if err != nil {
		return group.Response{}, err
	}
	for i, o := range a.Group.Offsets {
		if id := mean(o.Topic); o.TopicID != (record.TopicID{}) && id != (record.TopicID{}) && o.TopicID != id {
			a.Group.Offsets[i] = group.Offset{TopicPartition: o.TopicPartition, Offset: record.NoOffset}
		}
		a.Group.Offsets[i].TopicID = record.TopicID{} // the caller knows what it means
	}
	return *a.Group, nil
}

// meant refuses offsets of topics that are not what they were: somebody still reads
// the topic that had the name before.
func (n *Node) meant(ctx context.Context, offsets []group.Offset) error {
	caughtUp := false
	for i := 0; i < len(offsets); i++ {
		o := offsets[i]
		if t, _ := n.folded(o.Topic); o.TopicID == (record.TopicID{}) || t.ID == o.TopicID {
			continue
		}
		if caughtUp || n.gone(o.TopicID) != nil {
			return fmt.Errorf("offset of %v, which is another topic now, or gone: %w", o.TopicPartition, &record.UnknownTopicError{Topic: o.Topic, Partition: -1})
		}
		if err := n.follow(ctx, "look up a topic"); err != nil { // it may be this node that lags
			return err
		}
		caughtUp = true
		i--
	}
	return nil
}

// groupPartition returns the partition a group's records are in.
func (n *Node) groupPartition(ctx context.Context, name string) (*partition, error) {
	return n.coordinatorOf(ctx, OffsetsTopic, offsetsPartitions, name)
}

// coordinatorOf returns the partition of a topic of the cluster's own that name's
// records are in. The topic is made when it is first used.
func (n *Node) coordinatorOf(ctx context.Context, topic string, partitions int, name string) (*partition, error) {
	t, err := n.topic(ctx, topic)
	if errors.Is(err, record.ErrUnknownTopic) {
		t, err = n.createTopic(ctx, n.own(topic, partitions))
	}
	if errors.Is(err, record.ErrTopicExists) { // somebody was faster
		t, err = n.topic(ctx, topic)
	}
	if err != nil {
		return nil, err
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // never fails
	return n.known(record.TopicPartition{Topic: topic, Partition: int32(h.Sum32() % uint32(t.Partitions()))})
}

// own is the configuration of a topic of the cluster's own. It is flushed as the
// topics that this node makes for others, since it says what holds of those. Its
// coordinators keep its log short.
func (n *Node) own(topic string, partitions int) TopicConfig {
	cfg := TopicConfig{
		Name: topic, Partitions: partitions, Flush: n.cfg.Defaults.Flush,
		SegmentBytes: max(n.cfg.CompactionFloor/2, 1<<10), // whole segments go
	}
	if topic == HalfTopic {
		// A lane's sequence that went back would have the next message taken for one
		// that is there already.
		cfg.Flush = log.FlushEach
	}
	return cfg
}

// startCoordinator starts the coordinator beside a replica, if the topic has one.
func (n *Node) startCoordinator(tp record.TopicPartition, rep *replica.Replica) coordinator {
	switch tp.Topic {
	case OffsetsTopic:
		return n.startGroups(tp, rep)
	case TransactionsTopic:
		return n.startTransactions(tp, rep)
	case HalfTopic:
		return n.startHalf(tp, rep)
	}
	return nil
}

func (n *Node) startGroups(tp record.TopicPartition, rep *replica.Replica) *group.Coordinator {
	return group.Start(group.Config{
		Partition: local{rep, tp, n.cfg.ID},
		Partitions: func(topic string) int {
			n.tabling.RLock()
			defer n.tabling.RUnlock()
			return len(n.table.byName[topic])
		},
		Made: func(topic string) (made record.Offset) {
			n.fold.View(func() { made = n.metadata.made[topic] })
			return made
		},
		TopicID: func(topic string) record.TopicID {
			t, _ := n.folded(topic)
			return t.ID
		},
		OffsetsRetention: n.cfg.OffsetsRetention,
		Forgetful: func() bool {
			t, _ := n.folded(TransactionsTopic)
			return t.Config.Flush != log.FlushEach
		},
		Logger:          n.cfg.Logger.With("partition", tp.String()),
		CompactionFloor: n.cfg.CompactionFloor,
	})
}

// answerGroup has this node's coordinator answer.
func (n *Node) answerGroup(ctx context.Context, p *partition, req request) (answer, error) {
	_, beside, _ := p.state()
	coord, _ := beside.(*group.Coordinator)
	switch {
	case p.tp.Topic != OffsetsTopic || req.Group == nil:
		return answer{}, fmt.Errorf("%w: %v has no groups", record.ErrInvalid, p.tp)
	case coord == nil: // closing
		return answer{}, &record.NotLeaderError{TopicPartition: p.tp}
	}
	if err := n.meant(ctx, req.Group.Offsets); err != nil {
		return answer{}, err
	}
	resp, err := coord.Do(ctx, req.Name, *req.Group)
	return answer{Group: &resp}, err
}
