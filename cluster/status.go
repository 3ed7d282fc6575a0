package cluster

import (
	"context"
	"fmt"
	"iter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/replica"
)

// TopicStatus is the state of a topic.
type TopicStatus struct {
	Config     TopicConfig // with its defaults filled in
	ID         record.TopicID
	Partitions []PartitionStatus
}

// PartitionStatus is the state of one partition, as its leader gave it.
type PartitionStatus struct {
	Partition int32
	Leader    string             // "" when it is not known
	Epoch     record.LeaderEpoch // of that leader
	Replicas  []string           // the nodes that hold it; the first one should lead
	// ISR are the replicas in sync, the leader among them, and Ends the log end of
	// each replica as far as the leader knows. Nil when no leader answered.
	ISR  []string
	Ends map[string]record.Offset
	// StartOffset <= LastStableOffset <= HighWatermark <= EndOffset; all are
	// record.NoOffset when no leader answered.
	StartOffset, LastStableOffset, HighWatermark, EndOffset record.Offset
	// StableAge is how long the oldest open transaction has held LastStableOffset
	// back, by the time of its first record; 0 when none does.
	StableAge time.Duration
	Err       error // why no leader answered
}

// Status returns the state of each partition of a topic. A partition whose
// leader does not answer to one try is shown as such.
func (n *Node) Status(ctx context.Context, topic string) (TopicStatus, error) {
	ctx, leave, err := n.enter(ctx)
	if err != nil {
		return TopicStatus{}, err
	}
	defer leave()
	t, err := n.topic(ctx, topic)
	if err != nil {
		return TopicStatus{}, err
	}
	s := TopicStatus{Config: t.Config, ID: t.ID, Partitions: make([]PartitionStatus, t.Partitions())}
	var g errgroup.Group
	g.SetLimit(64)
	for i := range s.Partitions {
		g.Go(func() error {
			s.Partitions[i] = n.partitionStatus(ctx, record.TopicPartition{Topic: topic, Partition: int32(i)})
			return nil
		})
	}
	_ = g.Wait() // each status holds its own error
	return s, nil
}

func (n *Node) partitionStatus(ctx context.Context, tp record.TopicPartition) PartitionStatus {
	s := PartitionStatus{
		Partition:   tp.Partition,
		StartOffset: record.NoOffset, LastStableOffset: record.NoOffset, HighWatermark: record.NoOffset, EndOffset: record.NoOffset,
	}
	p, err := n.known(tp)
	if err != nil {
		s.Err = err
		return s
	}
	s.Replicas = p.assigned().Replicas
	ctx, cancel := context.WithTimeout(ctx, n.tryTimeout)
	defer cancel()
	a, err := n.ask(ctx, p, fmt.Sprintf("status of %v", tp), request{Op: opStatus})
	if err != nil {
		s.Err = err
		return s
	}
	s.Leader, s.Epoch, s.StableAge = a.Leader, a.Epoch, a.StableAge
	s.Ends = make(map[string]record.Offset, len(a.Replicas))
	for _, r := range a.Replicas {
		s.Ends[r.Node] = r.EndOffset
		if r.InSync {
			s.ISR = append(s.ISR, r.Node)
		}
	}
	s.StartOffset, s.LastStableOffset, s.HighWatermark, s.EndOffset = a.Start, a.Stable, a.High, a.End
	return s
}

// Watch yields the state of the partitions on this node as its own replicas see it,
// and again whenever leader, epoch, log start, in-sync replicas (where this node
// leads) or health change. The cluster's own partitions are among them. Who takes
// long gets the newest of each next, and holds up nobody. It ends with ctx's error,
// or with record.ErrClosed when the node is closed.
func (n *Node) Watch(ctx context.Context) iter.Seq2[replica.Status, error] {
	return n.mux.Watch(ctx)
}

// TransferLeader has the partition's leader hand over to the replica on a node, or
// to the one that is most up to date if node is "". *replica.UnsafeChangeError if
// that one holds none or lags.
func (n *Node) TransferLeader(ctx context.Context, tp record.TopicPartition, node string) error {
	ctx, leave, err := n.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	p, err := n.find(ctx, tp)
	if err != nil {
		return err
	}
	_, err = n.ask(ctx, p, fmt.Sprintf("transfer leadership of %v", tp), request{Op: opTransfer, Node: node})
	return err
}
