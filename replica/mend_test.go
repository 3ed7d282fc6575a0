package replica

import (
	"io/fs"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

// spoil flips a byte of an entry that a stopped node has, and returns its file.
func (c *trio) spoil(node string, n record.EntryNumber) string {
	c.t.Helper()
	dir := path.Join("/", c.dir, node, "orders-0")
	l, err := log.Open(c.t.Context(), dir, log.Config{FS: c.disks[node], TopicID: testTopic, SegmentBytes: c.segment})
	require.NoError(c.t, err)
	e, err := l.ReadEntry(n)
	require.NoError(c.t, err)
	require.NoError(c.t, l.Close())
	names, err := c.disks[node].List(dir)
	require.NoError(c.t, err)
	for _, name := range names {
		if !strings.HasSuffix(name, segment.LogSuffix) {
			continue
		}
		b, err := c.disks[node].ReadFile(path.Join(dir, name))
		require.NoError(c.t, err)
		if at := strings.Index(string(b), string(e.Data)); at >= 0 && len(e.Data) > 0 {
			f, err := c.disks[node].Open(path.Join(dir, name))
			require.NoError(c.t, err)
			_, err = f.WriteAt([]byte{b[at+70] ^ 1}, int64(at)+70)
			require.NoError(c.t, err)
			require.NoError(c.t, f.Sync())
			require.NoError(c.t, f.Close())
			return path.Join(dir, name)
		}
	}
	require.FailNow(c.t, "entry not found")
	return ""
}

// unindex removes what would keep the log from being read when it is opened.
func (c *trio) unindex(file string) {
	require.NoError(c.t, c.disks[strings.Split(file, "/")[1]].Remove(strings.TrimSuffix(file, segment.LogSuffix)+segment.IndexSuffix))
}

// batchAt returns the number of the n-th batch in a node's log.
func batchAt(t *testing.T, h *host, n int) record.EntryNumber {
	b := h.store.log.Bounds()
	for i := b.First; i < b.Next; i++ {
		e, err := h.store.log.ReadEntry(i)
		require.NoError(t, err)
		if e.Kind == segment.KindBatch {
			if n == 0 {
				return i
			}
			n--
		}
	}
	require.FailNow(t, "no such batch")
	return 0
}

func TestADamagedReplicaIsMendedFromTheOthers(t *testing.T) {
	c := newTrioOf(t, 1024, "a", "b", "c")
	c.produce(c.leader(), 0, 40)
	for _, node := range c.nodes {
		c.eventually("all have it", c.holds(node, 40))
	}
	first, second := batchAt(t, c.live["b"], 3), batchAt(t, c.live["b"], 20)
	third := batchAt(t, c.live["c"], 10)
	for _, node := range []string{"b", "c"} {
		c.stop(node)
	}
	c.unindex(c.spoil("b", first))
	c.unindex(c.spoil("b", second))
	c.unindex(c.spoil("c", third))

	c.net.Isolate("a")
	_, err := c.open("b")
	damage := (*DamagedError)(nil)
	require.ErrorAs(t, err, &damage)
	require.ErrorIs(t, err, record.ErrCorrupt)
	require.Len(t, damage.Holes, 2)
	require.Equal(t, first, damage.Holes[0].FirstEntry)

	c.net.Heal()
	c.start("b")
	c.start("c")
	for _, node := range c.nodes {
		require.NoError(t, c.live[node].store.log.Verify(t.Context(), nil))
		require.Len(t, c.values(c.live[node], 40), 40)
		require.False(t, c.live[node].Status().Unsure, "nothing was forgotten")
	}
	c.produce(c.leader(), 40, 5)
}

// TestDamageThatIsMetWhileReadingIsMended damages a segment that Open does not
// look at, since its index is good.
func TestDamageThatIsMetWhileReadingIsMended(t *testing.T) {
	c := newTrioOf(t, 1024, "a", "b", "c")
	c.produce(c.leader(), 0, 40)
	for _, node := range c.nodes {
		c.eventually("all have it", c.holds(node, 40))
	}
	n := batchAt(t, c.live["b"], 3)
	c.eventually("nothing reads it when it is opened", func() bool {
		c.live["b"].checkpoint()
		return c.live["b"].checkpoints.entry() > uint64(n)
	})
	c.stop("b")
	c.spoil("b", n)
	h := c.start("b")
	_, err := h.Read(3, 1, record.ReadUncommitted)
	require.ErrorIs(t, err, record.ErrCorrupt)
	require.ErrorIs(t, h.Status().Err, record.ErrCorrupt)
	c.stop("b")
	h = c.start("b")
	require.NoError(t, h.store.log.Verify(t.Context(), nil))
	require.Len(t, c.values(h, 40), 40)
}

// TestDamageThatIsMetWhileOpeningIsMended is the same without a checkpoint: then
// the log is replayed.
func TestDamageThatIsMetWhileOpeningIsMended(t *testing.T) {
	c := newTrioOf(t, 1024, "a", "b", "c")
	c.produce(c.leader(), 0, 40)
	for _, node := range c.nodes {
		c.eventually("all have it", c.holds(node, 40))
	}
	n := batchAt(t, c.live["b"], 3)
	c.stop("b")
	c.spoil("b", n)
	if err := c.disks["b"].Remove("/b/orders-0/" + checkpointName); err != nil {
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
	h := c.start("b")
	require.NoError(t, h.store.log.Verify(t.Context(), nil))
	require.Len(t, c.values(h, 40), 40)
}

// TestDamageInWhatWasNeverCommittedIsCutOff has a leader write what nobody else
// gets, and damages that.
func TestDamageInWhatWasNeverCommittedIsCutOff(t *testing.T) {
	c := startTrio(t, &trio{timeout: 300 * time.Millisecond}, "a", "b", "c")
	h := c.ledBy("a")
	c.produce(h, 0, 3)
	c.net.Isolate("a")
	for i := range 3 {
		o := c.get(h.send(buildBatch(t, 7, 0, record.Sequence(i), 1), AppendOptions{Acks: record.AckLeader}))
		require.NoError(t, o.err)
	}
	n := batchAt(t, h, 4)
	c.stop("a")
	c.unindex(c.spoil("a", n))
	c.net.Heal()
	h = c.start("a")
	require.Len(t, c.values(c.leader(), 3)[:3], 3)
	require.NoError(t, h.store.log.Verify(t.Context(), nil))
	c.eventually("replicas agree", func() bool { return h.Status().EndOffset == c.leader().Status().EndOffset })
}

// TestTheOnlyCopyServesWhatLiesAroundDamage has nobody to ask.
func TestTheOnlyCopyServesWhatLiesAroundDamage(t *testing.T) {
	c := newTrioOf(t, 1024, "a")
	c.produce(c.leader(), 0, 40)
	n, last := batchAt(t, c.live["a"], 3), batchAt(t, c.live["a"], 39)
	c.stop("a")
	c.unindex(c.spoil("a", n))
	c.spoil("a", last)
	h := c.start("a")
	c.leader()
	c.produce(h, 40, 3)
	for i := range record.Offset(43) {
		f, err := h.Read(i, 1, record.ReadUncommitted)
		if i == 3 || i == 39 {
			hole := (*log.CorruptError)(nil)
			require.ErrorAs(t, err, &hole)
			require.Equal(t, [2]record.Offset{i, i + 1}, [2]record.Offset{hole.From, hole.To})
			continue
		}
		require.NoError(t, err)
		require.Equal(t, i, f.Batches[0].BaseOffset())
	}
	require.NoError(t, h.Status().Err)
	c.t.Cleanup(func() { delete(c.live, "a") }) // its bytes are not what the checks at the end want
	require.NoError(t, h.Close())
	require.NoError(t, h.mux.Close())
	require.NoError(t, h.endpoint.Close())
	delete(c.live, "a")
}

// TestAReplicaThatCannotBeMendedIsSetAside is for the one that a node cannot do without.
func TestAReplicaThatCannotBeMendedIsSetAside(t *testing.T) {
	c := newTrioOf(t, 1024, "a", "b", "c")
	c.produce(c.leader(), 0, 40)
	for _, node := range c.nodes {
		c.eventually("all have it", c.holds(node, 40))
	}
	n := batchAt(t, c.live["b"], 3)
	c.stop("b")
	file := c.spoil("b", n)
	c.unindex(file)
	c.net.Isolate("b")
	c.aside = true
	h := c.start("b")
	require.True(t, h.Status().Unsure)
	require.Zero(t, h.Status().EndOffset)
	kept, err := c.disks["b"].ReadFile(file + ".damaged")
	require.NoError(t, err)
	require.NotEmpty(t, kept)
	c.net.Heal()
	require.Len(t, c.values(h, 40), 40)
	c.eventually("it is sure", func() bool { return !h.Status().Unsure })
	c.stop("b")
	h = c.start("b")
	require.Len(t, c.values(h, 40), 40)
}
