package group

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// State is all groups that the records of a partition of __consumer_offsets
// add up to. It is pure: it knows no clock and no node, and changes only by
// Apply.
type State struct {
	groups map[string]*groupState
}

// NewState returns the state of an empty partition.
func NewState() *State { return &State{groups: map[string]*groupState{}} }

// groupState is one group. Its zero value is a group nobody has heard of.
type groupState struct {
	generation record.Generation
	partitions map[string]int           // of each topic that is read, as the target knows it, or was and has offsets
	made       map[string]record.Offset // the numbers of those topics, as far as they have one
	target     Target
	members    map[string]member
	owners     map[record.TopicPartition]owner
	owned      map[string]int // how many partitions each member has in owners
	offsets    map[record.TopicPartition]offset
	pending    map[record.ProducerID]pending
	empty      time.Time // when the last member went; zero if there never was one
}

// member is one member of a group. It must not be changed.
type member struct {
	client   string
	instance string   // "" unless it is a static member
	topics   []string // sorted
	session  time.Duration
	assignor string
}

// owner is who holds a partition, since which generation.
type owner struct {
	member string
	since  record.Generation
}

// offset is a committed offset.
type offset struct {
	topic    record.TopicID
	next     record.Offset
	metadata string
	at       time.Time // when it was committed
}

func newGroupState() *groupState {
	return &groupState{
		partitions: map[string]int{},
		target:     Target{},
		members:    map[string]member{},
		owners:     map[record.TopicPartition]owner{},
		owned:      map[string]int{},
		offsets:    map[record.TopicPartition]offset{},
		pending:    map[record.ProducerID]pending{},
	}
}

// blank tells that no record is left of the group.
func (g *groupState) blank() bool {
	return g.generation == 0 && len(g.members)+len(g.owners)+len(g.offsets)+len(g.pending) == 0
}

// draft returns a copy to try membership changes on. Offsets and what is pending are shared.
func (g *groupState) draft() *groupState {
	d := *g
	d.members = maps.Clone(g.members)
	d.owners = maps.Clone(g.owners)
	d.owned = maps.Clone(g.owned)
	return &d // partitions and target are replaced as a whole
}

// Apply folds one record. An error means that this build does not understand
// it; the state is as before then.
func (s *State) Apply(r record.Record) error {
	var k key
	if err := json.Unmarshal(r.Key, &k); err != nil {
		return fmt.Errorf("key %q: %w", r.Key, err)
	}
	g := s.groups[k.Group]
	if g == nil {
		g = newGroupState()
	}
	if err := g.apply(k, r.Value, r.Time); err != nil {
		return fmt.Errorf("record %s: %w", r.Key, err)
	}
	s.groups[k.Group] = g
	if g.blank() {
		delete(s.groups, k.Group)
	}
	return nil
}

// apply folds one record of the group, written at that time; value is nil when
// k is deleted.
func (g *groupState) apply(k key, value []byte, at time.Time) error {
	switch k.Kind {
	case kindGroup:
		return g.applyGroup(value)
	case kindMember:
		return g.applyMember(k.Member, value, at)
	case kindOwner:
		return g.applyOwner(k.topicPartition(), value)
	case kindOffset:
		return g.applyOffset(k.topicPartition(), value, at)
	case kindPending:
		if k.Producer == nil {
			return fmt.Errorf("it names no producer")
		}
		return g.applyPending(*k.Producer, value)
	}
	return fmt.Errorf("this build does not know the kind")
}

func (g *groupState) applyGroup(value []byte) error {
	if value == nil {
		g.generation, g.partitions, g.made, g.target, g.empty = 0, map[string]int{}, nil, Target{}, time.Time{}
		return nil
	}
	v, err := decode[groupValue](value)
	if err != nil {
		return err
	}
	g.generation, g.partitions, g.made = v.Generation, v.Partitions, v.Made
	g.target = make(Target, len(v.Target))
	for m, tps := range v.Target {
		g.target[m] = tps.sorted()
	}
	if v.Empty > 0 {
		g.empty = time.UnixMilli(v.Empty)
	}
	return nil
}

func (g *groupState) applyMember(id string, value []byte, at time.Time) error {
	if value == nil {
		delete(g.members, id)
		g.empty = at
		return nil
	}
	v, err := decode[memberValue](value)
	if err != nil {
		return err
	}
	g.members[id] = member{
		client: v.Client, instance: v.Instance, topics: v.Topics, assignor: v.Assignor,
		session: time.Duration(v.Session) * time.Millisecond,
	}
	return nil
}

func (g *groupState) applyOwner(tp record.TopicPartition, value []byte) error {
	var next ownerValue
	if value != nil {
		var err error
		if next, err = decode[ownerValue](value); err != nil {
			return err
		}
	}
	if last, ok := g.owners[tp]; ok {
		delete(g.owners, tp)
		if g.owned[last.member]--; g.owned[last.member] == 0 {
			delete(g.owned, last.member)
		}
	}
	if value != nil {
		g.owners[tp] = owner{member: next.Member, since: next.Since}
		g.owned[next.Member]++
	}
	return nil
}

func (g *groupState) applyOffset(tp record.TopicPartition, value []byte, at time.Time) error {
	if value == nil {
		delete(g.offsets, tp)
		return nil
	}
	v, err := decode[offsetValue](value)
	if err != nil {
		return err
	}
	g.offsets[tp] = offset{topic: v.TopicID, next: v.Offset, metadata: v.Metadata, at: at}
	return nil
}

// assigned returns what the member holds and should hold.
func (g *groupState) assigned(id string) []record.TopicPartition {
	var tps []record.TopicPartition
	for _, tp := range g.target[id] {
		if g.owners[tp].member == id {
			tps = append(tps, tp)
		}
	}
	return tps
}

// Groups returns the names of all groups, sorted.
func (s *State) Groups() []string { return slices.Sorted(maps.Keys(s.groups)) }

// Generation returns the generation of a group, 0 for one nobody joined yet.
func (s *State) Generation(group string) record.Generation {
	if g := s.groups[group]; g != nil {
		return g.generation
	}
	return 0
}

// Member is what people want to know of a member.
type Member struct {
	ID, Client string
	Instance   string                  `json:",omitempty"` // of a static member
	Topics     []string                `json:",omitempty"`
	Assigned   []record.TopicPartition `json:",omitempty"` // what it holds and should hold
}

// Members returns the members of a group, sorted by id.
func (s *State) Members(group string) []Member {
	g := s.groups[group]
	if g == nil {
		return nil
	}
	var members []Member
	for _, id := range slices.Sorted(maps.Keys(g.members)) {
		m := g.members[id]
		members = append(members, Member{ID: id, Client: m.client, Instance: m.instance, Topics: slices.Clone(m.topics), Assigned: g.assigned(id)})
	}
	return members
}

// Committed returns the committed offset of a partition, with
// [record.NoOffset] if there is none.
func (s *State) Committed(group string, tp record.TopicPartition) Offset {
	if g := s.groups[group]; g != nil {
		if o, ok := g.offsets[tp]; ok {
			return Offset{TopicPartition: tp, TopicID: o.topic, Offset: o.next, Metadata: o.metadata}
		}
	}
	return Offset{TopicPartition: tp, Offset: record.NoOffset}
}

// offsetsOf returns all committed offsets of a group, sorted by partition.
func (s *State) offsetsOf(group string) (all []Offset) {
	g := s.groups[group]
	if g == nil {
		return nil
	}
	for _, tp := range slices.SortedFunc(maps.Keys(g.offsets), record.TopicPartition.Compare) {
		o := g.offsets[tp]
		all = append(all, Offset{TopicPartition: tp, TopicID: o.topic, Offset: o.next, Metadata: o.metadata, Time: o.at})
	}
	return all
}
