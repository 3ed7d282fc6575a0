package cluster

import (
	"cmp"
	"slices"
)

// place chooses the nodes of new partitions, given those of all that exist. No
// two replicas of a partition share a node, the first ones (who should lead)
// are spread evenly, and so are all. The same input gives the same answer.
// replicas must not be above the number of nodes.
func place(nodes []string, existing [][]string, partitions, replicas int) [][]string {
	leads, holds := map[string]int{}, map[string]int{}
	count := func(replicas []string) {
		leads[replicas[0]]++
		for _, node := range replicas {
			holds[node]++
		}
	}
	for _, replicas := range existing {
		count(replicas)
	}
	placed := make([][]string, partitions)
	for i := range placed {
		first := 0
		for k, node := range nodes {
			best := nodes[first]
			if cmp.Or(cmp.Compare(leads[node], leads[best]), cmp.Compare(holds[node], holds[best])) < 0 {
				first = k
			}
		}
		// The others, beginning behind the first, so that nodes do not pair up.
		others := append(slices.Clone(nodes[first+1:]), nodes[:first]...)
		slices.SortStableFunc(others, func(a, b string) int { return cmp.Compare(holds[a], holds[b]) })
		placed[i] = append([]string{nodes[first]}, others[:replicas-1]...)
		count(placed[i])
	}
	return placed
}
