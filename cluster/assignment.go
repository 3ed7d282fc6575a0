package cluster

import (
	"fmt"
	"slices"

	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/replica"
)

// assignment says on which nodes a partition lies, and where it should. Replicas
// is never too short: a node is in it before it can become a member of the
// partition's group, and until it has left. So a node that is not may delete what
// it has.
type assignment struct {
	Replicas []string `json:"replicas"`         // the first should lead
	From     []string `json:"from,omitempty"`   // Replicas when the move began
	Target   []string `json:"target,omitempty"` // nil when nothing moves
	Version  int64    `json:"version"`          // how many decisions there were since the topic was made
}

// moving reports whether the partition is on its way.
func (a assignment) moving() bool { return a.Target != nil }

// goal is where the partition lies when nothing more is decided.
func (a assignment) goal() []string {
	if a.moving() {
		return a.Target
	}
	return a.Replicas
}

// action is what the next step of a move does.
type action string

const (
	actionNone     action = ""         // the group is where it should be
	actionAnnounce action = "announce" // note in the metadata that a node joins
	actionJoin     action = "join"     // the node becomes a learner
	actionPromote  action = "promote"  // the learner becomes a voter
	actionRemove   action = "remove"   // the node leaves the group
	actionForget   action = "forget"   // note in the metadata that it has left
)

// step is the next step of a move. Any of its nodes will do, the first best.
type step struct {
	action action
	nodes  []string
}

// next decides on the next step from what is decided and what the group is. It
// needs no memory: whoever leads the metadata partition next goes on.
//
// Copies come before they go, so that there are never fewer than before or
// after: a voter leaves when all have arrived, or when there is one more than
// there were. Nodes come one after the other. The leader leaves last.
func (a assignment) next(m replica.Members, leader string) step {
	var arriving, missing, leaving []string
	for _, node := range a.Target {
		switch {
		case slices.Contains(m.Voters, node):
		case slices.Contains(m.Learners, node):
			arriving = append(arriving, node)
		default:
			missing = append(missing, node)
		}
	}
	for _, node := range m.Learners {
		if !slices.Contains(a.Target, node) {
			return step{actionRemove, []string{node}}
		}
	}
	for _, node := range a.Replicas {
		if !m.Has(node) && !slices.Contains(a.Target, node) {
			return step{actionForget, []string{node}}
		}
	}
	for _, node := range m.Voters {
		if !slices.Contains(a.Target, node) && node != leader {
			leaving = append(leaving, node)
		}
	}
	if slices.Contains(m.Voters, leader) && !slices.Contains(a.Target, leader) {
		leaving = append(leaving, leader)
	}
	arrived := len(arriving)+len(missing) == 0
	switch {
	case len(leaving) > 0 && (arrived || len(m.Voters) > max(len(a.From), len(a.Target))):
		return step{actionRemove, leaving}
	case len(arriving) > 0:
		return step{actionPromote, arriving}
	case len(missing) > 0 && !slices.Contains(a.Replicas, missing[0]):
		return step{actionAnnounce, missing[:1]}
	case len(missing) > 0:
		return step{actionJoin, missing[:1]}
	}
	return step{}
}

// Move is one partition's way from the nodes it lies on to those it should. The
// first of each is the one that should lead.
type Move struct {
	Partition record.TopicPartition
	From, To  []string
	Reason    string `json:",omitempty"` // of a plan: why
	// Waiting says what a move that is under way waits for, or "".
	Waiting string `json:",omitempty"`
}

func (m Move) String() string {
	s := fmt.Sprintf("%v: %v → %v", m.Partition, m.From, m.To)
	if m.Reason != "" {
		s += " (" + m.Reason + ")"
	}
	if m.Waiting != "" {
		s += ", waits: " + m.Waiting
	}
	return s
}

// RefusedError says why the cluster does not do what was asked for, and what to
// do instead. Nothing was changed. It matches replica.ErrUnsafeChange.
type RefusedError struct {
	What   string // was asked for
	Reason string
}

// Is reports whether target is replica.ErrUnsafeChange.
func (e *RefusedError) Is(target error) bool { return target == replica.ErrUnsafeChange }

func (e *RefusedError) Error() string { return e.What + " refused: " + e.Reason }

func refused(what, format string, args ...any) error {
	return &RefusedError{What: what, Reason: fmt.Sprintf(format, args...)}
}

// reassign decides on moves, all or none. A partition that is on its way
// already turns to the new target.
func (m *metadata) reassign(moves []Move) ([]record.Record, error) {
	var records []record.Record
	for _, mv := range moves {
		a, err := m.retarget(mv)
		if err != nil {
			return nil, err
		}
		if a == nil {
			continue
		}
		r, err := m.assigned(m.topics[mv.Partition.Topic].key(mv.Partition.Partition), *a)
		if err != nil {
			return nil, err
		}
		records = append(records, r)
	}
	return records, nil
}

// retarget checks one move and returns the assignment that begins it, nil if
// there is nothing to do.
func (m *metadata) retarget(mv Move) (*assignment, error) {
	what := fmt.Sprintf("move of %v to %q", mv.Partition, mv.To)
	t, ok := m.topics[mv.Partition.Topic]
	if !ok {
		return nil, &record.UnknownTopicError{Topic: mv.Partition.Topic, Partition: -1}
	}
	if mv.Partition.Partition < 0 || int(mv.Partition.Partition) >= t.Partitions() {
		return nil, &record.UnknownTopicError{Topic: mv.Partition.Topic, Partition: mv.Partition.Partition}
	}
	a := m.placed[t.key(mv.Partition.Partition)]
	if mv.From != nil && !slices.Equal(mv.From, a.Replicas) {
		return nil, refused(what, "it lies on %q by now, not on %q; make a new plan", a.Replicas, mv.From)
	}
	if len(mv.To) == 0 {
		return nil, refused(what, "that would lose the last copy; name at least one node")
	}
	if len(mv.To) < t.Config.MinInSync {
		return nil, refused(what, "MinInSync of the topic is %d, so nothing could be written with AckAll; name as many nodes", t.Config.MinInSync)
	}
	for i, node := range mv.To {
		switch state := m.node(node); {
		case slices.Contains(mv.To[:i], node):
			return nil, refused(what, "node %q is named twice", node)
		case state == NodeUnknown:
			return nil, refused(what, "node %q is not part of the cluster; add it first", node)
		case state == NodeRemoved:
			return nil, refused(what, "node %q was removed from the cluster; add it again first", node)
		case state == NodeDraining && !slices.Contains(a.Replicas, node):
			return nil, refused(what, "node %q is being drained; choose another, or add it again", node)
		}
	}
	next := assignment{Replicas: a.Replicas, From: a.From, Target: slices.Clone(mv.To), Version: a.Version + 1}
	switch {
	case slices.Equal(a.Target, mv.To), !a.moving() && slices.Equal(a.Replicas, mv.To):
		return nil, nil
	case !a.moving():
		next.From = a.Replicas
	}
	return &next, nil
}

// advance decides on what a step has changed, if nothing else was decided since
// version: errStale otherwise. It returns a partition that arrived to rest.
func (m *metadata) advance(k partitionKey, version int64, s step) ([]record.Record, error) {
	a, ok := m.placed[k]
	if !ok || a.Version != version || !a.moving() {
		return nil, errStale
	}
	a.Version++
	switch s.action {
	case actionAnnounce:
		a.Replicas = append(slices.Clone(a.Replicas), s.nodes[0])
	case actionForget:
		a.Replicas = slices.DeleteFunc(slices.Clone(a.Replicas), func(node string) bool { return node == s.nodes[0] })
	case actionNone:
		a = assignment{Replicas: a.Target, Version: a.Version}
	}
	r, err := m.assigned(k, a)
	return []record.Record{r}, err
}

// assigned is the record that says a.
func (m *metadata) assigned(k partitionKey, a assignment) (record.Record, error) {
	return metadataRecord(fmt.Sprintf("%s%v/%d", keyPartition, k.topic, k.partition), assignmentValue{V: metadataVersion, assignment: a})
}
