package quorumlog

import "context"

// DeleteTopic removes a topic and its records for good. *UnknownTopicError if there
// is none. A topic that is made under the same name later is another one: writes,
// reads and commits that mean the first are refused. Beware of clients that go on to
// use the name: they make the topic anew unless Config.NoAutoCreate is set.
func (n *Node) DeleteTopic(ctx context.Context, topic string) error {
	return n.cluster.DeleteTopic(ctx, topic)
}

// Nodes returns the nodes of the cluster as this node knows them, by id, also those
// that were removed. It asks nobody.
func (n *Node) Nodes() []NodeInfo { return n.cluster.Nodes() }

// AddNode waits until a node that was opened with Config.Join is part of the
// cluster. A node that joins is added by itself; one that was removed or drained
// before needs this call. Nothing moves to it yet: see PlanBalance.
func (n *Node) AddNode(ctx context.Context, id string) error { return n.cluster.AddNode(ctx, id) }

// DrainNode moves everything away from a node that should go, to the nodes that hold
// least. It serves on meanwhile; RemoveNode takes it out of the cluster afterwards.
// progress, which may be nil, is called on this goroutine after each change. When ctx
// ends the moves go on. *RefusedError, and nothing done, if there is no room.
func (n *Node) DrainNode(ctx context.Context, id string, progress func(MoveProgress)) error {
	return n.cluster.DrainNode(ctx, id, progress)
}

// RemoveNode takes a node that holds nothing any more out of the cluster. Close it
// afterwards. *RefusedError while it holds replicas.
func (n *Node) RemoveNode(ctx context.Context, id string) error { return n.cluster.RemoveNode(ctx, id) }

// ReplaceNode moves everything from a node, which may be dead, to another that has
// joined, and removes the old one. progress as for DrainNode.
func (n *Node) ReplaceNode(ctx context.Context, old, new string, progress func(MoveProgress)) error {
	return n.cluster.ReplaceNode(ctx, old, new, progress)
}

// MoveReplica moves one replica of a partition to another node. Writes and reads go
// on meanwhile: the new one catches up before it counts and before the old one goes.
func (n *Node) MoveReplica(ctx context.Context, p TopicPartition, from, to string) error {
	return n.cluster.MoveReplica(ctx, p, from, to)
}

// TransferLeader has another replica lead a partition: the one on node, or the most
// up to date if node is "".
func (n *Node) TransferLeader(ctx context.Context, p TopicPartition, node string) error {
	return n.cluster.TransferLeader(ctx, p, node)
}

// PlanBalance returns what would spread replicas and leaderships evenly, with the
// reason for each move, and changes nothing.
func (n *Node) PlanBalance(ctx context.Context) (Plan, error) { return n.cluster.PlanBalance(ctx) }

// Apply carries a plan out, from PlanBalance or one's own, and returns when it is
// done. progress as for DrainNode. *RefusedError, and nothing done, if the plan is
// out of date or makes no sense.
func (n *Node) Apply(ctx context.Context, plan Plan, progress func(MoveProgress)) error {
	return n.cluster.Apply(ctx, plan, progress)
}

// Moves returns what is on its way between nodes, and what it waits for.
func (n *Node) Moves(ctx context.Context) ([]Move, error) { return n.cluster.Moves(ctx) }
