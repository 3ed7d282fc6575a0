package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlog/quorumlog/record"
)

// Plan is what would spread replicas and leaderships evenly. It may be looked at,
// changed, and given to Apply.
type Plan struct {
	Moves   []Move // of replicas
	Leaders []LeaderMove
}

// LeaderMove hands the leadership of a partition to another of its replicas.
type LeaderMove struct {
	Partition record.TopicPartition
	From, To  string // From is "" when nobody leads
	Reason    string
}

func (m LeaderMove) String() string {
	return fmt.Sprintf("%v: leader %q → %q (%s)", m.Partition, m.From, m.To, m.Reason)
}

// lies is a partition as a plan sees it.
type lies struct {
	tp       record.TopicPartition
	replicas []string
	leader   string // now; "" when nobody does
}

// balance plans so that no two nodes differ by more than one replica, or by more
// than one leadership, as far as the replicas allow. It moves as little as it
// can. parts is changed. The same input gives the same plan.
func balance(nodes []string, parts []lies) Plan {
	plan := Plan{}
	if len(nodes) == 0 {
		return plan
	}
	from := make([][]string, len(parts))
	reasons := make([]string, len(parts))
	holds := map[string]int{}
	for i, p := range parts {
		from[i] = p.replicas
		for _, node := range p.replicas {
			holds[node]++
		}
	}
	for {
		i, most, least := heaviest(nodes, parts, holds)
		if i < 0 {
			break
		}
		reasons[i] = fmt.Sprintf("node %q holds %d replicas, node %q holds %d", most, holds[most], least, holds[least])
		parts[i].replicas = slices.Clone(parts[i].replicas)
		parts[i].replicas[slices.Index(parts[i].replicas, most)] = least
		holds[most]--
		holds[least]++
	}
	leads := spreadLeaders(nodes, parts)
	for i, p := range parts {
		if !slices.Equal(from[i], p.replicas) {
			slices.SortStableFunc(p.replicas, func(a, b string) int { return cmp.Compare(btoi(b == leads[i]), btoi(a == leads[i])) })
			plan.Moves = append(plan.Moves, Move{Partition: p.tp, From: from[i], To: p.replicas, Reason: reasons[i]})
		} else if leads[i] != p.leader {
			reason := fmt.Sprintf("node %q leads more partitions than node %q", p.leader, leads[i])
			if p.leader == "" {
				reason = "nobody leads it"
			}
			plan.Leaders = append(plan.Leaders, LeaderMove{Partition: p.tp, From: p.leader, To: leads[i], Reason: reason})
		}
	}
	return plan
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// heaviest returns a partition that should go from the node that holds most to
// one that holds at least two less and not this partition; -1 without one. One
// that most does not lead is cheaper to move.
func heaviest(nodes []string, parts []lies, holds map[string]int) (part int, most, least string) {
	byHeld := slices.Clone(nodes)
	slices.SortStableFunc(byHeld, func(a, b string) int { return cmp.Compare(holds[a], holds[b]) })
	for _, most := range slices.Backward(byHeld) {
		for _, least := range byHeld {
			if holds[most]-holds[least] < 2 {
				break
			}
			best := -1
			for i, p := range parts {
				if !slices.Contains(p.replicas, most) || slices.Contains(p.replicas, least) {
					continue
				}
				if best < 0 || parts[best].leader == most && p.leader != most {
					best = i
				}
			}
			if best >= 0 {
				return best, most, least
			}
		}
	}
	return -1, "", ""
}

// spreadLeaders chooses who should lead each partition. It begins with who leads
// now, and hands on along the shortest chain of partitions from a node that leads
// too many to one that leads too few.
func spreadLeaders(nodes []string, parts []lies) []string {
	leads := make([]string, len(parts))
	count := map[string]int{}
	for i, p := range parts {
		leads[i] = p.leader
		if !slices.Contains(p.replicas, p.leader) {
			leads[i] = slices.MinFunc(p.replicas, func(a, b string) int { return cmp.Compare(count[a], count[b]) })
		}
		count[leads[i]]++
	}
	for {
		byLeads := slices.Clone(nodes)
		slices.SortStableFunc(byLeads, func(a, b string) int { return cmp.Compare(count[b], count[a]) })
		if !slices.ContainsFunc(byLeads, func(from string) bool { return handOn(from, parts, leads, count) }) {
			return leads
		}
	}
}

// handOn makes from lead one partition less and a node that leads at least two
// less one more; false if no chain of partitions goes from one to the other.
func handOn(from string, parts []lies, leads []string, count map[string]int) bool {
	type hop struct {
		part int
		from string
	}
	reached := map[string]hop{from: {part: -1}}
	queue := []string{from}
	for len(queue) > 0 {
		node := queue[0]
		queue = queue[1:]
		if count[from]-count[node] >= 2 {
			count[from]--
			count[node]++
			for node != from {
				h := reached[node]
				leads[h.part] = node
				node = h.from
			}
			return true
		}
		for i, p := range parts {
			if leads[i] != node {
				continue
			}
			for _, other := range p.replicas {
				if _, ok := reached[other]; !ok {
					reached[other] = hop{i, node}
					queue = append(queue, other)
				}
			}
		}
	}
	return false
}

// PlanBalance returns what would spread replicas and leaderships evenly over the
// active nodes, the cluster's own topics included, and changes nothing. Nodes
// that are drained or removed are left alone, and so are partitions that move.
func (n *Node) PlanBalance(ctx context.Context) (Plan, error) {
	ctx, leave, err := n.enter(ctx)
	if err != nil {
		return Plan{}, err
	}
	defer leave()
	const what = "plan the balance"
	if err := n.follow(ctx, what); err != nil {
		return Plan{}, err
	}
	var nodes []string
	var parts []lies
	n.fold.View(func() {
		nodes = n.metadata.members(NodeActive)
		for _, t := range n.metadata.allTopics() {
			for i := range t.Placement {
				if a := n.metadata.placed[t.key(int32(i))]; !a.moving() {
					parts = append(parts, lies{tp: t.part(i), replicas: a.Replicas})
				}
			}
		}
	})
	var g errgroup.Group
	g.SetLimit(64)
	for i := range parts {
		g.Go(func() error {
			parts[i].leader = n.partitionStatus(ctx, parts[i].tp).Leader
			return nil
		})
	}
	_ = g.Wait() // a partition that nobody leads is planned for as such
	if ctx.Err() != nil {
		return Plan{}, gaveUp(ctx, what, nil)
	}
	return balance(nodes, parts), nil
}

// Apply carries a plan out and returns when all of it is done: replicas first,
// then leaderships. progress as for Reassign. *RefusedError, and nothing done, if
// partitions do not lie any more where the plan has them.
func (n *Node) Apply(ctx context.Context, plan Plan, progress func(Progress)) error {
	if err := n.Reassign(ctx, plan.Moves, progress); err != nil {
		return err
	}
	for _, m := range plan.Leaders {
		if err := n.TransferLeader(ctx, m.Partition, m.To); err != nil {
			return err
		}
	}
	return nil
}
