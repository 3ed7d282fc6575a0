package group

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

// tps returns partitions ps of topic "t".
func tps(ps ...int32) (list []record.TopicPartition) {
	for _, p := range ps {
		list = append(list, record.TopicPartition{Topic: "t", Partition: p})
	}
	return list
}

func tp(topic string, p int32) record.TopicPartition {
	return record.TopicPartition{Topic: topic, Partition: p}
}

// random returns a source whose seed is printed when the test fails and can be
// set with QUORUMLOG_SEED.
func random(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("QUORUMLOG_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("QUORUMLOG_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

func TestAssignmentsByEachRule(t *testing.T) {
	one := []string{"t"}
	both := []string{"t", "u"}
	for name, c := range map[string]struct {
		rule          string
		subscriptions map[string][]string
		partitions    map[string]int
		last, want    Target
	}{
		"nobody": {Sticky, nil, map[string]int{"t": 3}, nil, Target{}},
		"range gives the first members one more": {
			Range, map[string][]string{"b": one, "a": one, "c": one}, map[string]int{"t": 8}, nil,
			Target{"a": tps(0, 1, 2), "b": tps(3, 4, 5), "c": tps(6, 7)},
		},
		"range keeps the same partitions of two topics together": {
			Range, map[string][]string{"a": both, "b": both}, map[string]int{"t": 2, "u": 2}, nil,
			Target{"a": {tp("t", 0), tp("u", 0)}, "b": {tp("t", 1), tp("u", 1)}},
		},
		"round robin goes on from topic to topic": {
			RoundRobin, map[string][]string{"a": both, "b": both}, map[string]int{"t": 3, "u": 3}, nil,
			Target{"a": {tp("t", 0), tp("t", 2), tp("u", 1)}, "b": {tp("t", 1), tp("u", 0), tp("u", 2)}},
		},
		"round robin passes over who does not read the topic": {
			RoundRobin, map[string][]string{"a": one, "b": both}, map[string]int{"t": 2, "u": 2}, nil,
			Target{"a": {tp("t", 0)}, "b": {tp("t", 1), tp("u", 0), tp("u", 1)}},
		},
		"members without a partition are in it": {
			Range, map[string][]string{"a": one, "b": one}, map[string]int{"t": 1}, nil,
			Target{"a": tps(0), "b": nil},
		},
		"a topic nobody knows has no partitions": {
			Sticky, map[string][]string{"a": {"gone"}}, nil, nil, Target{"a": nil},
		},
		"sticky moves one to the new member": {
			Sticky, map[string][]string{"a": one, "b": one, "c": one}, map[string]int{"t": 5},
			Target{"a": tps(0, 1, 2), "b": tps(3, 4)},
			Target{"a": tps(0, 1), "b": tps(3, 4), "c": tps(2)},
		},
		"sticky leaves the others alone when one goes": {
			Sticky, map[string][]string{"a": one, "c": one}, map[string]int{"t": 6},
			Target{"a": tps(0, 3), "b": tps(1, 4), "c": tps(2, 5)},
			Target{"a": tps(0, 1, 3), "c": tps(2, 4, 5)},
		},
		"sticky takes back what is not read any more": {
			Sticky, map[string][]string{"a": {"u"}, "b": both}, map[string]int{"t": 2, "u": 1},
			Target{"a": tps(0, 1), "b": {tp("u", 0)}},
			Target{"a": {tp("u", 0)}, "b": tps(0, 1)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, Assign(c.rule, c.subscriptions, c.partitions, c.last))
		})
	}
}

// TestEveryRuleGivesEachPartitionToOneReader also looks at how even it is.
func TestEveryRuleGivesEachPartitionToOneReader(t *testing.T) {
	rng := random(t)
	for range 500 {
		partitions := map[string]int{}
		var topics []string
		for i := range 1 + rng.IntN(4) {
			topics = append(topics, fmt.Sprint("topic", i))
			partitions[topics[i]] = rng.IntN(12)
		}
		same := rng.IntN(2) == 0
		subscriptions := map[string][]string{}
		read := map[string]bool{}
		for i := range 1 + rng.IntN(7) {
			mine := topics
			if !same {
				mine = topics[rng.IntN(len(topics)):]
			}
			subscriptions[fmt.Sprint("m", i)] = mine
			for _, topic := range mine {
				read[topic] = true
			}
		}
		for _, rule := range []string{Range, RoundRobin, Sticky} {
			target := Assign(rule, subscriptions, partitions, nil)
			require.Len(t, target, len(subscriptions))
			given := map[record.TopicPartition]string{}
			least, most := 1<<30, 0
			for m, list := range target {
				require.True(t, slices.IsSortedFunc(list, record.TopicPartition.Compare))
				for _, p := range list {
					require.Empty(t, given[p], "%v is given twice", p)
					require.Contains(t, subscriptions[m], p.Topic)
					given[p] = m
				}
				least, most = min(least, len(list)), max(most, len(list))
			}
			total := 0
			for topic := range read {
				total += partitions[topic]
			}
			require.Len(t, given, total)
			if same && rule != Range {
				require.LessOrEqual(t, most-least, 1, "%s is uneven: %v", rule, target)
			}
			if same && rule == Range {
				require.LessOrEqual(t, most-least, len(topics), "at most one per topic: %v", target)
			}
		}
	}
}

// TestStickyMovesNoMoreThanItMust lets members and partitions come and go, and
// compares the number of moves with the smallest there can be.
func TestStickyMovesNoMoreThanItMust(t *testing.T) {
	rng := random(t)
	for range 100 {
		topics := []string{"t", "u"}
		partitions := map[string]int{"t": 1 + rng.IntN(20), "u": rng.IntN(5)}
		subscriptions := map[string][]string{"m0": topics}
		last := Target{}
		for step := range 20 {
			switch rng.IntN(3) {
			case 0:
				delete(subscriptions, fmt.Sprint("m", rng.IntN(8)))
			case 1:
				subscriptions[fmt.Sprint("m", rng.IntN(8))] = topics
			case 2:
				partitions[topics[rng.IntN(2)]]++
			}
			target := Assign(Sticky, subscriptions, partitions, last)
			require.Equal(t, target, Assign(Sticky, subscriptions, partitions, target), "it is not stable")
			least, most := 1<<30, 0
			for _, list := range target {
				least, most = min(least, len(list)), max(most, len(list))
			}
			require.LessOrEqual(t, most-least, 1, "step %d: %v to %v is uneven", step, last, target)
			moved := 0
			for m, list := range last {
				if _, ok := subscriptions[m]; ok {
					for _, p := range list {
						if !slices.Contains(target[m], p) {
							moved++
						}
					}
				}
			}
			require.Equal(t, fewestMoves(subscriptions, partitions, last), moved, "step %d: %v to %v", step, last, target)
			last = target
		}
	}
}

// fewestMoves counts what members have above an even share, when the larger
// shares go to those who have most.
func fewestMoves(subscriptions map[string][]string, partitions map[string]int, last Target) int {
	if len(subscriptions) == 0 {
		return 0
	}
	total := 0
	for _, n := range partitions {
		total += n
	}
	var have []int
	for m := range subscriptions {
		have = append(have, len(last[m]))
	}
	slices.SortFunc(have, func(a, b int) int { return b - a })
	moves := 0
	for i, n := range have {
		share := total / len(have)
		if i < total%len(have) {
			share++
		}
		moves += max(0, n-share)
	}
	return moves
}

func TestStickyIsAsEvenAsSubscriptionsAllow(t *testing.T) {
	subscriptions := map[string][]string{"a": {"t"}, "b": {"t", "u"}}
	target := Assign(Sticky, subscriptions, map[string]int{"t": 4, "u": 2}, nil)
	require.Len(t, target["a"], 3)
	require.Len(t, target["b"], 3)
	require.Subset(t, target["b"], []record.TopicPartition{tp("u", 0), tp("u", 1)})
}

func BenchmarkStickyWithThousandPartitionsAndHundredMembers(b *testing.B) {
	subscriptions := map[string][]string{}
	for i := range 100 {
		subscriptions[fmt.Sprint("m", i)] = []string{"t"}
	}
	last := Assign(Sticky, subscriptions, map[string]int{"t": 1000}, nil)
	delete(subscriptions, "m7")
	for b.Loop() {
		Assign(Sticky, subscriptions, map[string]int{"t": 1000}, last)
	}
}
