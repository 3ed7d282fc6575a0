package group

import (
	"maps"
	"slices"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// Keys returns the keys of the records that all groups are made of.
func (s *State) Keys() (keys []any) {
	for name, g := range s.groups {
		if g.generation > 0 {
			keys = append(keys, key{Kind: kindGroup, Group: name})
		}
		for id := range g.members {
			keys = append(keys, key{Kind: kindMember, Group: name, Member: id})
		}
		for tp := range g.owners {
			keys = append(keys, key{Kind: kindOwner, Group: name, Topic: tp.Topic, Partition: tp.Partition})
		}
		for tp := range g.offsets {
			keys = append(keys, key{Kind: kindOffset, Group: name, Topic: tp.Topic, Partition: tp.Partition})
		}
		for id := range g.pending {
			keys = append(keys, key{Kind: kindPending, Group: name, Producer: &id})
		}
	}
	return keys
}

// Current returns the record that makes a key what it is, false if it is not there.
// An offset's has the time at which it was committed.
func (s *State) Current(of any, now time.Time) (r record.Record, ok bool, err error) {
	k := of.(key)
	g := s.groups[k.Group]
	if g == nil {
		return r, false, nil
	}
	var value any
	switch k.Kind {
	case kindGroup:
		ok, value = g.generation > 0, g.value()
	case kindMember:
		var m member
		m, ok = g.members[k.Member]
		value = m.value()
	case kindOwner:
		var o owner
		o, ok = g.owners[k.topicPartition()]
		value = ownerValue{V: formatVersion, Member: o.member, Since: o.since}
	case kindOffset:
		var o offset
		o, ok = g.offsets[k.topicPartition()]
		value, now = o.value(), o.at
	case kindPending:
		var p pending
		p, ok = g.pending[*k.Producer]
		value = p.value()
	}
	if !ok {
		return r, false, nil
	}
	r, err = encode(now, k, value)
	return r, err == nil, err
}

// value is the group's record, with what else only those of members gone would tell.
func (g *groupState) value() groupValue {
	v := groupValue{V: formatVersion, Generation: g.generation, Partitions: g.partitions, Made: g.made, Target: map[string]byTopic{}}
	for id, tps := range g.target {
		v.Target[id] = newByTopic(tps)
	}
	if !g.empty.IsZero() {
		v.Empty = g.empty.UnixMilli()
	}
	return v
}

func (m member) value() memberValue {
	return memberValue{
		V: formatVersion, Client: m.client, Instance: m.instance, Topics: m.topics,
		Session: m.session.Milliseconds(), Assignor: m.assignor,
	}
}

func (o offset) value() offsetValue {
	return offsetValue{V: formatVersion, TopicID: o.topic, Offset: o.next, Metadata: o.metadata}
}

func (p pending) value() pendingOffsets {
	v := pendingOffsets{pendingValue: pendingValue{V: formatVersion, Open: p.open, Epoch: p.epoch, Coordinator: p.coordinator, Time: p.time}}
	v.Offsets = listed(p.offsets)
	return v
}

// listed returns offsets in the order of their partitions.
func listed(offsets map[record.TopicPartition]offset) (all []Offset) {
	for _, tp := range slices.SortedFunc(maps.Keys(offsets), record.TopicPartition.Compare) {
		o := offsets[tp]
		all = append(all, Offset{TopicPartition: tp, TopicID: o.topic, Offset: o.next, Metadata: o.metadata})
	}
	return all
}
