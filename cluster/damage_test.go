package cluster

import (
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/segment"
)

// TestANodeWithDamageInEveryPartitionIsMended flips a byte in the middle of each
// segment file of a stopped node, the metadata's too, and starts it.
func TestANodeWithDamageInEveryPartitionIsMended(t *testing.T) {
	c := startCluster(t, quickElections, "a", "b", "c")
	c.create("orders", 3)
	var want [3]int
	for p := range want {
		w := c.writer(c.node("a"), part("orders", int32(p)))
		for want[p] < 20 {
			w.send(c.node("a"), strings.Repeat("x", 50))
			want[p]++
		}
	}
	c.stop("b")
	spoiled := 0
	disk := c.machines["b"].disk
	var spoil func(dir string)
	spoil = func(dir string) {
		names, err := disk.List(dir)
		if err != nil {
			return // a file
		}
		for _, name := range names {
			at := path.Join(dir, name)
			if strings.HasSuffix(name, segment.IndexSuffix) {
				require.NoError(t, disk.Remove(at))
			}
			if !strings.HasSuffix(name, segment.LogSuffix) {
				spoil(at)
				continue
			}
			b, err := disk.ReadFile(at)
			require.NoError(t, err)
			f, err := disk.Open(at)
			require.NoError(t, err)
			_, err = f.WriteAt([]byte{b[len(b)/2] ^ 1}, int64(len(b)/2))
			require.NoError(t, err)
			require.NoError(t, f.Sync())
			require.NoError(t, f.Close())
			spoiled++
		}
	}
	spoil("data")
	require.GreaterOrEqual(t, spoiled, 4)
	c.start("b")
	c.stop("a") // so that b counts
	for p := range want {
		c.writer(c.node("b"), part("orders", int32(p))).send(c.node("b"), "more")
		require.Len(t, c.read(c.node("b"), part("orders", int32(p)), 0, want[p]+1), want[p]+1)
	}
	for _, p := range c.node("b").all() {
		rep, _, _ := p.state()
		require.NoError(t, rep.Status().Err, p.tp)
	}
}
