package group

import (
	"maps"
	"slices"

	"github.com/quorumlog/quorumlog/record"
)

// Names of the rules that spread partitions over members.
const (
	// Sticky spreads all partitions evenly, to within one if all members read
	// the same topics, and moves as few as that allows. Default.
	Sticky = "sticky"
	// Range gives each member a run of neighbours of each topic, the same run
	// of topics with equally many partitions. Even within each topic.
	Range = "range"
	// RoundRobin deals all partitions out one by one.
	RoundRobin = "roundrobin"
)

// Target says which partitions each member should have, sorted. Every member
// is in it, also with none.
type Target map[string][]record.TopicPartition

// Assign spreads the partitions of topics over members. subscriptions are the
// topics of each member; partitions says how many partitions each topic has;
// last is what was the target before and counts for [Sticky] only. Every
// partition of a topic that somebody reads goes to exactly one member who reads
// it. The same input gives the same answer. An unknown rule is Sticky.
func Assign(rule string, subscriptions map[string][]string, partitions map[string]int, last Target) Target {
	r := newReaders(subscriptions)
	switch rule {
	case Range:
		return assignRange(r, partitions)
	case RoundRobin:
		return assignRoundRobin(r, partitions)
	}
	return assignSticky(r, partitions, last)
}

// readers are the members of a group, and those of each topic, sorted.
type readers struct {
	members []string
	byTopic map[string][]string
	topics  []string // the keys of byTopic
}

func newReaders(subscriptions map[string][]string) readers {
	r := readers{byTopic: map[string][]string{}, members: slices.Sorted(maps.Keys(subscriptions))}
	for _, m := range r.members {
		for _, topic := range subscriptions[m] {
			r.byTopic[topic] = append(r.byTopic[topic], m)
		}
	}
	r.topics = slices.Sorted(maps.Keys(r.byTopic))
	return r
}

// empty returns a target that has every member and no partition.
func (r readers) empty() Target {
	t := make(Target, len(r.members))
	for _, m := range r.members {
		t[m] = nil
	}
	return t
}

func assignRange(r readers, partitions map[string]int) Target {
	target := r.empty()
	for _, topic := range r.topics {
		who := r.byTopic[topic]
		each, more := partitions[topic]/len(who), partitions[topic]%len(who)
		var p int32
		for i, m := range who {
			n := each
			if i < more {
				n++
			}
			for range n {
				target[m] = append(target[m], record.TopicPartition{Topic: topic, Partition: p})
				p++
			}
		}
	}
	return target
}

func assignRoundRobin(r readers, partitions map[string]int) Target {
	target := r.empty()
	next := 0
	for _, topic := range r.topics {
		who := r.byTopic[topic]
		for p := range int32(partitions[topic]) {
			for !contains(who, r.members[next%len(r.members)]) {
				next++
			}
			m := r.members[next%len(r.members)]
			next++
			target[m] = append(target[m], record.TopicPartition{Topic: topic, Partition: p})
		}
	}
	return target
}

// contains reports whether s, which is sorted, holds m.
func contains(s []string, m string) bool {
	_, ok := slices.BinarySearch(s, m)
	return ok
}
