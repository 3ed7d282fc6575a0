package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/quorumlog/quorumlog/record"
)

// NodeState is what the cluster knows of a node.
type NodeState string

// States of a node.
const (
	NodeUnknown  NodeState = ""
	NodeActive   NodeState = "active"   // new partitions may be placed on it
	NodeDraining NodeState = "draining" // none are, and those it has move away
	NodeRemoved  NodeState = "removed"  // it may not come back unless it is added again
)

// NodeInfo is one node of the cluster.
type NodeInfo struct {
	ID    string
	State NodeState
	// Replicas is how many replicas lie on it, Leaders of how many of them it
	// should lead.
	Replicas, Leaders int
}

// node returns the state of a node. Before anything is decided, the nodes are
// those that the cluster was founded with.
func (m *metadata) node(id string) NodeState {
	if len(m.nodes) == 0 && slices.Contains(m.founders, id) {
		return NodeActive
	}
	return m.nodes[id]
}

// members returns the nodes that are part of the cluster, or of one state only.
func (m *metadata) members(states ...NodeState) []string {
	if len(m.nodes) == 0 {
		return m.founders
	}
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(m.nodes)) {
		if state := m.nodes[id]; state != NodeRemoved && (len(states) == 0 || slices.Contains(states, state)) {
			ids = append(ids, id)
		}
	}
	return ids
}

// found returns the records that make the founders nodes, none if they are.
func (m *metadata) found() ([]record.Record, error) {
	var records []record.Record
	if len(m.nodes) > 0 {
		return nil, nil
	}
	for _, id := range m.founders {
		r, err := nodeRecord(id, NodeActive)
		if err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	return records, nil
}

func nodeRecord(id string, state NodeState) (record.Record, error) {
	return metadataRecord(keyNode+id, nodeValue{V: metadataVersion, State: state})
}

// addNode decides on a node that joins. By itself it does not come back after it
// was removed.
func (m *metadata) addNode(id string, itself bool) ([]record.Record, error) {
	what := fmt.Sprintf("adding node %q", id)
	switch state := m.node(id); {
	case id == "":
		return nil, fmt.Errorf("%w: the node's id is empty", record.ErrInvalid)
	case state == NodeActive, itself && state == NodeDraining:
		return nil, nil
	case itself && state == NodeRemoved:
		return nil, refused(what, "it was removed from the cluster; add it on a node that is part of it")
	}
	r, err := nodeRecord(id, NodeActive)
	return []record.Record{r}, err
}

// drainNode decides that everything moves away from a node, to another one each
// if instead is "". The moves are returned too.
func (m *metadata) drainNode(id, instead string) ([]Move, []record.Record, error) {
	what := fmt.Sprintf("draining node %q", id)
	switch m.node(id) {
	case NodeUnknown:
		return nil, nil, refused(what, "it is not part of the cluster; the nodes are %q", m.members())
	case NodeRemoved:
		return nil, nil, nil
	}
	if instead != "" && m.node(instead) != NodeActive {
		return nil, nil, refused(what, "node %q, which should take its place, is not active; open it with Join, and add it", instead)
	}
	others := slices.DeleteFunc(m.members(NodeActive), func(node string) bool { return node == id })
	if len(others) == 0 {
		return nil, nil, refused(what, "no other node is active; add one first")
	}
	holds := map[string]int{}
	for _, a := range m.placed {
		for _, node := range a.goal() {
			holds[node]++
		}
	}
	var moves []Move
	for _, t := range m.allTopics() {
		for i := range t.Placement {
			a := m.placed[t.key(int32(i))]
			if !slices.Contains(a.goal(), id) {
				if slices.Contains(a.Replicas, id) { // on its way already
					moves = append(moves, Move{Partition: t.part(i), To: a.goal()})
				}
				continue
			}
			to, err := without(a.goal(), id, instead, others, holds)
			if err != nil {
				return nil, nil, refused(what, "%v has %d replicas, and every other active node (%q) holds one; add a node first", t.part(i), len(a.goal()), others)
			}
			moves = append(moves, Move{Partition: t.part(i), To: to})
		}
	}
	records, err := m.reassign(moves)
	if err != nil {
		return nil, nil, err
	}
	if m.node(id) != NodeDraining {
		r, err := nodeRecord(id, NodeDraining)
		if err != nil {
			return nil, nil, err
		}
		records = append([]record.Record{r}, records...)
	}
	return moves, records, nil
}

var errNoNode = errors.New("no node is free")

// without puts another node in id's place: instead if it holds none yet, else
// the one of others that holds least.
func without(goal []string, id, instead string, others []string, holds map[string]int) ([]string, error) {
	best := ""
	for _, node := range others {
		if !slices.Contains(goal, node) && (best == "" || holds[node] < holds[best] || node == instead) && (best == "" || best != instead) {
			best = node
		}
	}
	if best == "" {
		return nil, errNoNode
	}
	to := slices.Clone(goal)
	if i := slices.Index(to, id); i > 0 || instead != "" {
		to[i] = best
	} else { // one that holds everything already should lead
		to = append(to[1:], best)
	}
	holds[id]--
	holds[best]++
	return to, nil
}

// removeNode decides that a node is not part of the cluster any more.
func (m *metadata) removeNode(id string) ([]record.Record, error) {
	what := fmt.Sprintf("removing node %q", id)
	switch m.node(id) {
	case NodeUnknown:
		return nil, refused(what, "it is not part of the cluster; the nodes are %q", m.members())
	case NodeRemoved:
		return nil, nil
	}
	if left := slices.DeleteFunc(m.members(), func(node string) bool { return node == id }); len(left) == 0 {
		return nil, refused(what, "it is the last node, with the last copy of everything")
	}
	var held []record.TopicPartition
	for _, t := range m.allTopics() {
		for i := range t.Placement {
			a := m.placed[t.key(int32(i))]
			if slices.Contains(a.Replicas, id) || slices.Contains(a.Target, id) {
				held = append(held, t.part(i))
			}
		}
	}
	if len(held) > 0 {
		return nil, refused(what, "it holds replicas of %d partitions, %v among them; drain it first, or replace it by another if it is dead", len(held), held[0])
	}
	r, err := nodeRecord(id, NodeRemoved)
	return []record.Record{r}, err
}

// infos returns all nodes with what lies on them.
func (m *metadata) infos() []NodeInfo {
	var infos []NodeInfo
	ids := slices.Sorted(maps.Keys(m.nodes))
	if len(ids) == 0 {
		ids = m.founders
	}
	for _, id := range ids {
		info := NodeInfo{ID: id, State: m.node(id)}
		for _, a := range m.placed {
			if slices.Contains(a.Replicas, id) {
				info.Replicas++
			}
			if a.goal()[0] == id {
				info.Leaders++
			}
		}
		infos = append(infos, info)
	}
	return infos
}

// Nodes returns the nodes of the cluster as this node knows them, by id, also
// those that were removed. It asks nobody.
func (n *Node) Nodes() (infos []NodeInfo) {
	n.fold.View(func() { infos = n.metadata.infos() })
	return infos
}

// AddNode makes a node part of the cluster, and waits, bounded by ctx, until
// it has the metadata. The node must be open, with Config.Join. A node that joins
// is added by itself, unless it was removed before. Nothing is moved to it:
// PlanBalance says what could be.
func (n *Node) AddNode(ctx context.Context, id string) error {
	ctx, leave, err := n.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	what := fmt.Sprintf("add node %q", id)
	a, err := n.ask(ctx, n.meta, what, request{Op: opAddNode, Node: id})
	if err != nil {
		return err
	}
	return n.repeat(ctx, what, func(ctx context.Context) error {
		_, err := n.control(ctx, id, request{Op: opKnows, Upto: a.Upto})
		return err
	})
}

// RemoveNode takes a node that holds nothing out of the cluster. It returns when
// the node is no member of the metadata partition any more. *RefusedError for a
// node that still holds replicas: drain it, or if it is dead, replace it.
func (n *Node) RemoveNode(ctx context.Context, id string) error {
	ctx, leave, err := n.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	what := fmt.Sprintf("remove node %q", id)
	if id == n.cfg.ID {
		return refused(what, "a node does not remove itself; ask another one")
	}
	a, err := n.ask(ctx, n.meta, what, request{Op: opRemoveNode, Node: id})
	if err != nil {
		return err
	}
	if err := n.learned(ctx, what, a.Upto); err != nil {
		return err
	}
	return n.repeat(ctx, what, func(ctx context.Context) error {
		a, err := n.ask(ctx, n.meta, what, request{Op: opMembers})
		if err == nil && a.Members.Has(id) {
			err = fmt.Errorf("it is still a member of the metadata partition: %w", record.ErrOverloaded)
		}
		return err
	})
}

// repeat tries until it succeeds, fails for good, or ctx ends.
func (n *Node) repeat(ctx context.Context, what string, try func(context.Context) error) error {
	for backoff := firstBackoff; ; backoff = min(2*backoff, lastBackoff) {
		err := try(ctx)
		if err == nil || !retriable(err) && ctx.Err() == nil {
			return err
		}
		if ctx.Err() == nil {
			wait(ctx, backoff)
		}
		if ctx.Err() != nil {
			return gaveUp(ctx, what, err)
		}
	}
}

// join makes a node part of the cluster that its Peers are of. It is a goroutine
// of a node with Config.Join.
func (n *Node) join(life context.Context) {
	_, err := n.ask(life, n.meta, "join the cluster", request{Op: opAddNode, Node: n.cfg.ID, Itself: true})
	if err != nil && life.Err() == nil {
		n.cfg.Logger.Error("this node did not join the cluster", "node", n.cfg.ID, "error", err)
	}
}
