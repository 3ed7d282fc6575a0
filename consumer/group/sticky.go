package group

import (
	"slices"

	"github.com/quorumlog/quorumlog/record"
)

// assignSticky keeps what can be kept, gives the rest to those who have least,
// and then moves partitions from the one who has most to the one who has least
// while they are two apart. If all read the same topics, no even spread moves
// fewer: one that is moved comes from above the average or, once nobody is, from
// its upper half, and goes below it.
func assignSticky(r readers, partitions map[string]int, last Target) Target {
	s := spread{readers: r, held: map[string]map[string][]int32{}, load: map[string]int{}}
	for _, m := range r.members {
		s.held[m] = map[string][]int32{}
	}
	taken := map[record.TopicPartition]bool{}
	for _, m := range r.members {
		for _, tp := range last[m] {
			if contains(r.byTopic[tp.Topic], m) && int(tp.Partition) < partitions[tp.Topic] && !taken[tp] {
				taken[tp] = true
				s.give(m, tp)
			}
		}
	}
	// Topics with few readers first: the others can make up for it.
	topics := slices.Clone(r.topics)
	slices.SortStableFunc(topics, func(a, b string) int { return len(r.byTopic[a]) - len(r.byTopic[b]) })
	for _, topic := range topics {
		for p := range int32(partitions[topic]) {
			if tp := (record.TopicPartition{Topic: topic, Partition: p}); !taken[tp] {
				s.give(s.least(topic), tp)
			}
		}
	}
	for s.level() {
	}
	return s.target()
}

// spread is a target in the making.
type spread struct {
	readers
	held map[string]map[string][]int32 // member, topic: partitions
	load map[string]int                // member: number of partitions
}

func (s *spread) give(m string, tp record.TopicPartition) {
	s.held[m][tp.Topic] = append(s.held[m][tp.Topic], tp.Partition)
	s.load[m]++
}

// least returns the reader of topic with the fewest partitions.
func (s *spread) least(topic string) string {
	who := s.byTopic[topic]
	return slices.MinFunc(who, func(a, b string) int { return s.load[a] - s.load[b] })
}

// most returns the member with the most partitions among those with one of
// topic, "" if nobody has.
func (s *spread) most(topic string) string {
	best := ""
	for _, m := range s.byTopic[topic] {
		if len(s.held[m][topic]) > 0 && (best == "" || s.load[m] > s.load[best]) {
			best = m
		}
	}
	return best
}

// level makes the one move that evens out most; false if there is none.
func (s *spread) level() bool {
	var topic, from, to string
	gap := 1
	for _, t := range s.topics {
		a := s.most(t)
		if a == "" {
			continue
		}
		if b := s.least(t); s.load[a]-s.load[b] > gap {
			topic, from, to, gap = t, a, b, s.load[a]-s.load[b]
		}
	}
	if gap == 1 {
		return false
	}
	ps := s.held[from][topic]
	p := ps[len(ps)-1]
	s.held[from][topic] = ps[:len(ps)-1]
	s.load[from]--
	s.give(to, record.TopicPartition{Topic: topic, Partition: p})
	return true
}

func (s *spread) target() Target {
	target := s.empty()
	for m, topics := range s.held {
		for topic, ps := range topics {
			for _, p := range ps {
				target[m] = append(target[m], record.TopicPartition{Topic: topic, Partition: p})
			}
		}
		slices.SortFunc(target[m], record.TopicPartition.Compare)
	}
	return target
}
