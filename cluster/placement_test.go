package cluster

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPlacementSpreadsLeadersOverNodes(t *testing.T) {
	abc := []string{"a", "b", "c"}
	require.Equal(t, [][]string{{"a", "b", "c"}, {"b", "c", "a"}, {"c", "a", "b"}}, place(abc, nil, 3, 3))
	require.Equal(t, [][]string{{"a", "b"}, {"c", "a"}, {"b", "c"}}, place(abc, nil, 3, 2))
	require.Equal(t, [][]string{{"a"}, {"a"}}, place([]string{"a"}, nil, 2, 1))
}

func TestPlacementLooksAtWhatIsThere(t *testing.T) {
	abc := []string{"a", "b", "c"}
	require.Equal(t, [][]string{{"c", "b"}}, place(abc, [][]string{{"a", "c"}, {"b", "a"}}, 1, 2))
}

// TestPlacementOfRandomTopicsStaysEven adds topics one after the other, and
// looks at the spread after each.
func TestPlacementOfRandomTopicsStaysEven(t *testing.T) {
	rng := rand.New(rand.NewPCG(testSeed(t), 0))
	for range 200 {
		nodes := make([]string, 1+rng.IntN(7))
		for i := range nodes {
			nodes[i] = fmt.Sprintf("n%d", i)
		}
		var all [][]string
		for range 1 + rng.IntN(5) {
			partitions, replicas := 1+rng.IntN(12), 1+rng.IntN(len(nodes))
			placed := place(nodes, all, partitions, replicas)
			require.Equal(t, placed, place(nodes, all, partitions, replicas), "the same state gives the same answer")
			require.Len(t, placed, partitions)
			for _, p := range placed {
				require.Len(t, p, replicas)
				require.Len(t, slices.Compact(slices.Sorted(slices.Values(p))), replicas, "no node twice in %v", p)
			}
			all = append(all, placed...)
			leads, holds := make([]int, len(nodes)), make([]int, len(nodes))
			for _, p := range all {
				leads[slices.Index(nodes, p[0])]++
				for _, node := range p {
					holds[slices.Index(nodes, node)]++
				}
			}
			require.LessOrEqual(t, slices.Max(leads)-slices.Min(leads), 1, "leaders of %v", all)
			// Even leaders come first, so topics of unlike replica counts leave a little.
			require.LessOrEqual(t, slices.Max(holds)-slices.Min(holds), 4, "replicas of %v", all)
		}
	}
}

// testSeed is printed, and can be given again as QUORUMLOG_SEED.
func testSeed(t *testing.T) uint64 {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("QUORUMLOG_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("QUORUMLOG_SEED=%d", seed)
	return seed
}
