package cluster

import (
	"bytes"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/replica"
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
			c.machines["b"].flip(t, at, func(b []byte) int { return len(b) / 2 })
			spoiled++
		}
	}
	spoil("data")
	require.GreaterOrEqual(t, spoiled, 4)
	c.start("b")
	require.NoError(t, c.node("b").follow(c.ctx(), "know all partitions"))
	for _, p := range c.node("b").all() { // where damage looked like a torn write, it was cut off
		c.until("it has caught up", func() bool {
			rep, _, _ := p.state()
			return rep != nil && !rep.Status().Unsure
		})
	}
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

// TestDamageOfTheMetadataIsMendedWhileTheNodeRuns has each node in turn, the leader too,
// meet damage in what it has folded already.
func TestDamageOfTheMetadataIsMendedWhileTheNodeRuns(t *testing.T) {
	c := startCluster(t, quickElections, "a", "b", "c")
	c.create("orders", 3)
	for _, id := range c.peers {
		n := c.node(id)
		require.NoError(t, n.follow(c.ctx(), "have what there is"))
		damaged := n.metaReplica.Load()
		dir := path.Join("data", "partitions", partitionDir(n.meta))
		names, err := c.machines[id].disk.List(dir)
		require.NoError(t, err)
		for _, name := range names {
			if strings.HasSuffix(name, segment.LogSuffix) {
				c.machines[id].flip(t, path.Join(dir, name), func(b []byte) int { return bytes.Index(b, []byte("orders")) })
			}
		}
		require.ErrorIs(t, readThrough(damaged), record.ErrCorrupt)

		_, err = n.CreateTopic(c.ctx(), TopicConfig{Name: "while-" + id + "-is-mended", Partitions: 1})
		require.NoError(t, err)
		c.until("it is open again", func() bool { return n.metaReplica.Load() != damaged })
		require.NoError(t, n.metaReplica.Load().Status().Err)
		require.NoError(t, n.follow(c.ctx(), "go on"))
		require.NoError(t, readThrough(n.metaReplica.Load()))
	}
	c.stop("a") // so that both others count, and one of them leads
	_, err := c.node("b").CreateTopic(c.ctx(), TopicConfig{Name: "last", Partitions: 1})
	require.NoError(t, err)
	require.Len(t, c.node("b").Topics(), 5)
}

// readThrough reads all that is committed.
func readThrough(rep *replica.Replica) error {
	for from := record.Offset(0); ; {
		f, err := rep.Read(from, 1<<20, record.ReadUncommitted)
		if err != nil || len(f.Batches) == 0 {
			return err
		}
		from = f.Next
	}
}

// flip changes one byte of a file.
func (m *machine) flip(t *testing.T, file string, which func([]byte) int) {
	b, err := m.disk.ReadFile(file)
	require.NoError(t, err)
	f, err := m.disk.Open(file)
	require.NoError(t, err)
	at := which(b)
	_, err = f.WriteAt([]byte{b[at] ^ 1}, int64(at))
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
}
