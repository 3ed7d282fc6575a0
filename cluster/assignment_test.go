package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/replica"
)

// apply does what a step does to the group.
func (s step) apply(m replica.Members, node string) replica.Members {
	without := func(nodes []string) []string {
		return slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { return n == node })
	}
	switch s.action {
	case actionJoin:
		m.Learners = append(without(m.Learners), node)
	case actionPromote:
		m.Learners, m.Voters = without(m.Learners), append(without(m.Voters), node)
	case actionRemove:
		m.Learners, m.Voters = without(m.Learners), without(m.Voters)
	}
	return m
}

func TestTheStepsOfAMoveAreTheseInThisOrder(t *testing.T) {
	m := newMetadata()
	m.founders = []string{"a", "b", "c", "d", "e"}
	top, records, err := m.createTopic(TopicConfig{Name: "orders", Partitions: 1, Replicas: 3}, record.NewTopicID(), []string{"a", "b", "c"})
	require.NoError(t, err)
	foldAll(t, m, records)
	records, err = m.reassign([]Move{{Partition: top.part(0), To: []string{"d", "b", "e"}}})
	require.NoError(t, err)
	foldAll(t, m, records)
	k, members, leader := top.key(0), replica.Members{Voters: []string{"a", "b", "c"}}, "a"
	var story []string
	for {
		a := m.placed[k]
		s := a.next(members, leader)
		story = append(story, strings.TrimSpace(fmt.Sprint(s.action, " ", strings.Join(s.nodes, "|"))))
		switch s.action {
		case actionNone, actionAnnounce, actionForget:
			records, err := m.advance(k, a.Version, s)
			require.NoError(t, err)
			foldAll(t, m, records)
			_, err = m.advance(k, a.Version, s)
			require.ErrorIs(t, err, errStale, "no step twice")
		default:
			members = s.apply(members, s.nodes[0])
		}
		if s.action == actionNone {
			break
		}
	}
	require.Equal(t, []string{
		"announce d", "join d", "promote d", "remove c|a", "forget c",
		"announce e", "join e", "promote e", "remove a", "forget a", "",
	}, story)
	require.Equal(t, assignment{Replicas: []string{"d", "b", "e"}, Version: 6}, m.placed[k])
	require.Equal(t, []string{"d", "b", "e"}, m.topics["orders"].Placement[0])
}

// TestEveryMoveArrives turns moves around at random, loses leaders, and looks at
// what must hold at every step.
func TestEveryMoveArrives(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	nodes := []string{"a", "b", "c", "d", "e", "f", "g"}
	some := func(from []string) []string {
		rng.Shuffle(len(nodes), func(i, k int) { nodes[i], nodes[k] = nodes[k], nodes[i] })
		return slices.Clone(nodes[:1+rng.IntN(5)])
	}
	for range 300 {
		m := newMetadata()
		m.founders = slices.Sorted(slices.Values(nodes))
		first := some(nodes)
		top := Topic{Config: TopicConfig{Name: "t", Partitions: 1}, ID: record.NewTopicID(), Placement: [][]string{first}}
		r, err := metadataRecord(keyTopic+"t", topicValue{V: metadataVersion, Topic: top})
		require.NoError(t, err)
		foldAll(t, m, []record.Record{r})
		k, members := top.key(0), replica.Members{Voters: slices.Clone(first)}
		var target []string
		turns := 1 + rng.IntN(3)
		for steps := 0; ; steps++ {
			require.Less(t, steps, 200, "%v never arrives", m.placed[k])
			if a := m.placed[k]; turns > 0 && (steps == 0 || !a.moving() || rng.IntN(8) == 0) {
				turns--
				target = some(nodes)
				records, err := m.reassign([]Move{{Partition: top.part(0), To: target}})
				require.NoError(t, err)
				foldAll(t, m, records)
			}
			a := m.placed[k]
			if !a.moving() {
				if turns == 0 {
					break
				}
				continue
			}
			leader := members.Voters[rng.IntN(len(members.Voters))]
			s := a.next(members, leader)
			switch s.action {
			case actionNone, actionAnnounce, actionForget:
				records, err := m.advance(k, a.Version, s)
				require.NoError(t, err)
				foldAll(t, m, records)
			default:
				members = s.apply(members, s.nodes[rng.IntN(len(s.nodes))])
			}
			require.NotEmpty(t, members.Voters)
			require.LessOrEqual(t, len(members.Voters), max(len(a.From), len(a.Target), len(first), 5)+1)
			for _, node := range slices.Concat(members.Voters, members.Learners) {
				require.Contains(t, m.placed[k].Replicas, node, "a member may delete nothing")
			}
		}
		require.ElementsMatch(t, target, members.Voters)
		require.Empty(t, members.Learners)
		require.Equal(t, target, m.placed[k].Replicas)
	}
}

func TestThePlanSpreadsReplicasAndLeaders(t *testing.T) {
	part := func(i int, replicas ...string) lies {
		return lies{tp: part("t", int32(i)), replicas: replicas, leader: replicas[0]}
	}
	plan := balance([]string{"a", "b", "c"}, []lies{part(0, "a", "b", "c"), part(1, "b", "c", "a"), part(2, "c", "a", "b")})
	require.Empty(t, plan, "nothing to do")

	plan = balance([]string{"a", "b", "c"}, []lies{part(0, "a", "b"), part(1, "a", "b"), part(2, "b", "c"), part(3, "c", "a")})
	require.Empty(t, plan.Moves)
	require.Empty(t, plan.Leaders, "one more is even enough: 2, 1, 1")

	plan = balance([]string{"a", "b", "c"}, []lies{part(0, "a"), part(1, "a"), part(2, "b")})
	require.Len(t, plan.Moves, 1)
	require.Equal(t, `t/0: [a] → [c] (node "a" holds 2 replicas, node "c" holds 0)`, plan.Moves[0].String())

	plan = balance([]string{"a", "b"}, []lies{part(0, "a", "b"), part(1, "a", "b")})
	require.Empty(t, plan.Moves)
	require.Equal(t, `t/0: leader "a" → "b" (node "a" leads more partitions than node "b")`, plan.Leaders[0].String())
	require.Len(t, plan.Leaders, 1)

	// a leads three and c one, but they share only what c leads: b takes and gives.
	leads := spreadLeaders([]string{"a", "b", "c"}, []lies{part(0, "a", "b"), part(1, "a", "b"), part(2, "a", "b"), part(3, "b", "c"), part(4, "b", "c"), part(5, "c", "a")})
	require.Equal(t, []string{"b", "a", "a", "c", "b", "c"}, leads)
}

func TestAPlanIsEvenAndMovesLittle(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		all := []string{"a", "b", "c", "d", "e", "f"}[:2+rng.IntN(5)]
		used := all[:1+rng.IntN(len(all))] // the others are new
		var parts []lies
		for i := range rng.IntN(40) {
			replicas := slices.Clone(used)
			rng.Shuffle(len(replicas), func(i, k int) { replicas[i], replicas[k] = replicas[k], replicas[i] })
			replicas = replicas[:1+rng.IntN(min(3, len(used)))]
			p := lies{tp: part("t", int32(i)), replicas: replicas, leader: replicas[rng.IntN(len(replicas))]}
			if rng.IntN(10) == 0 {
				p.leader = ""
			}
			parts = append(parts, p)
		}
		before := slices.Clone(parts)
		plan := balance(all, slices.Clone(parts))
		require.Equal(t, plan, balance(all, slices.Clone(before)), "the same input, the same plan")
		holds, leads := map[string]int{}, map[string]int{}
		for _, p := range parts {
			replicas, leader := p.replicas, p.leader
			for _, mv := range plan.Moves {
				if mv.Partition == p.tp {
					require.Equal(t, p.replicas, mv.From)
					require.Len(t, mv.To, len(mv.From))
					require.NotEmpty(t, mv.Reason)
					replicas, leader = mv.To, mv.To[0]
				}
			}
			for _, mv := range plan.Leaders {
				if mv.Partition == p.tp {
					require.Equal(t, p.leader, mv.From)
					require.NotEmpty(t, mv.Reason)
					leader = mv.To
				}
			}
			require.Contains(t, replicas, leader)
			seen := map[string]bool{}
			for _, node := range replicas {
				require.False(t, seen[node], "two replicas on one node")
				seen[node] = true
				holds[node]++
			}
			leads[leader]++
		}
		spread := func(count map[string]int) int {
			low, high := count[all[0]], count[all[0]]
			for _, node := range all {
				low, high = min(low, count[node]), max(high, count[node])
			}
			return high - low
		}
		require.LessOrEqual(t, spread(holds), 1, "replicas %v", holds)
		if spread(leads) > 1 { // only if no chain of partitions would help
			for i := range parts {
				for _, mv := range plan.Moves {
					if mv.Partition == parts[i].tp {
						parts[i].replicas, parts[i].leader = mv.To, mv.To[0]
					}
				}
				for _, mv := range plan.Leaders {
					if mv.Partition == parts[i].tp {
						parts[i].leader = mv.To
					}
				}
			}
			require.Empty(t, balance(all, parts), "a plan leaves nothing to plan")
		}
	}
}
