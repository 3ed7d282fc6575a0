package replica

import (
	"cmp"
	"slices"

	"github.com/quorumlog/quorumlog/record"
)

// Status is what one replica knows of its partition.
type Status struct {
	record.TopicPartition
	Node   string             // this replica's
	Leader string             // "" when it knows of none
	Epoch  record.LeaderEpoch // the newest it knows of
	// StartOffset <= LastStableOffset <= HighWatermark <= EndOffset, of this replica's log.
	StartOffset, LastStableOffset, HighWatermark, EndOffset record.Offset
	SizeBytes                                               int64
	// Unsure says that this replica may have forgotten something that it has
	// acknowledged, and does not vote until it has caught up.
	Unsure   bool
	Replicas []ReplicaStatus // as the leader knows them; nil on others
	Asleep   bool            // see Config.SleepAfter
	Err      error           // why it has stopped by itself; nil while it runs
}

// Status returns the state of this moment.
func (r *Replica) Status() Status {
	node, epoch := r.Leader()
	start := r.startOffset()
	stable := r.bound(record.ReadCommitted)
	high := record.Offset(r.high.Load()) // before the bounds: the end never lies below it
	b := r.store.log.Bounds()
	s := Status{
		TopicPartition: r.cfg.TopicPartition, Node: r.cfg.Node, Leader: node, Epoch: epoch,
		StartOffset: start, LastStableOffset: stable, HighWatermark: high, EndOffset: b.End,
		SizeBytes: r.store.log.Size(), Asleep: r.asleep(), Unsure: unsure(r.unsure.Load()) != sure,
	}
	if r.leads() {
		s.Replicas = r.replicaStatus()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Err = r.failed
	return s
}

// ReplicaStatus is what the leader knows of one replica.
type ReplicaStatus struct {
	Node      string
	InSync    bool
	EndOffset record.Offset // of what the leader knows it has
}

// replicaStatus returns the leader itself and its followers, by node.
func (r *Replica) replicaStatus() []ReplicaStatus {
	b := r.store.log.Bounds()
	all := []ReplicaStatus{{Node: r.cfg.Node, InSync: true, EndOffset: b.End}}
	in := r.insync()
	for _, node := range r.followers() {
		_, ok := in[node]
		all = append(all, ReplicaStatus{Node: node, InSync: ok, EndOffset: r.store.offsetBehind(r.progress.match(node))})
	}
	slices.SortFunc(all, func(a, b ReplicaStatus) int { return cmp.Compare(a.Node, b.Node) })
	return all
}
