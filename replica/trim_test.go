package replica

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

// produce appends n batches of one record by producer 1, from a sequence on.
func (c *trio) produce(h *host, from, n int) {
	c.t.Helper()
	var answers []<-chan outcome
	for i := from; i < from+n; i++ {
		answers = append(answers, h.send(buildBatch(c.t, 1, 0, record.Sequence(i), 1), AppendOptions{}))
	}
	for _, ch := range answers {
		require.NoError(c.t, c.get(ch).err)
	}
}

// eventually waits until ok, trying again whenever the high watermark moves and
// now and then in between; what it waits for happens on goroutines of the replica.
func (c *trio) eventually(what string, ok func() bool) {
	c.t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		c.checkOffsets()
		select {
		case <-tick.C:
		case <-deadline:
			require.FailNow(c.t, "did not happen", what)
		}
	}
}

func TestAllReplicasTrimAlike(t *testing.T) {
	c := newTrioOf(t, 4<<10, "a", "b", "c")
	h := c.leader()
	c.produce(h, 0, 200)
	start, err := h.TrimTo(c.within(10*time.Second), 150)
	require.NoError(t, err)
	require.Equal(t, record.Offset(150), start)
	start, err = h.TrimTo(c.within(10*time.Second), 40)
	require.NoError(t, err)
	require.Equal(t, record.Offset(150), start, "it never goes back")

	for _, node := range c.nodes {
		r := c.live[node]
		c.eventually("trim on "+node, func() bool {
			return r.Status().StartOffset == 150 && r.store.log.Bounds().Start > 100
		})
		_, err := r.Read(149, 1<<20, record.ReadCommitted)
		var out *record.OffsetRangeError
		require.ErrorAs(t, err, &out)
		require.Equal(t, record.Offset(150), out.Start)
		f, err := r.Read(150, 1<<20, record.ReadCommitted)
		require.NoError(t, err)
		require.NotEmpty(t, f.Batches)
	}

	start, err = h.TrimTo(c.within(10*time.Second), 1<<40)
	require.NoError(t, err)
	require.Equal(t, record.Offset(200), start, "never past the high watermark")
	_, err = h.TrimTo(c.within(time.Second), -1)
	require.ErrorIs(t, err, record.ErrInvalid)
	c.produce(h, 200, 10)

	// All of it survives a restart of everything, the trimmed producer too.
	for _, node := range c.nodes {
		c.eventually("last trim on "+node, func() bool { s := c.live[node].Status(); return s.StartOffset == 200 && s.HighWatermark == 210 })
	}
	for _, node := range c.nodes {
		c.stop(node)
	}
	for _, node := range c.nodes {
		require.Equal(t, record.Offset(200), c.start(node).Status().StartOffset)
	}
	h = c.leader()
	require.True(t, c.get(h.send(buildBatch(t, 1, 0, 207, 1), AppendOptions{})).Duplicate)
	c.produce(h, 210, 5)
}

// lag stops a follower, has the leader write and trim past what it has, and
// brings it back.
func lag(t *testing.T, c *trio, behind int) (back, lead *host) {
	h := c.leader()
	c.produce(h, 0, behind)
	var node string
	for _, n := range c.nodes {
		if n != h.Status().Node {
			node = n
		}
	}
	c.stop(node)
	c.produce(h, behind, 300)
	_, err := h.TrimTo(c.within(10*time.Second), record.Offset(behind+250))
	require.NoError(t, err)
	c.eventually("trim", func() bool { return h.store.log.Bounds().Start > record.Offset(behind+100) })
	h.forget()
	return c.start(node), h
}

// forget empties the ring, from which a follower would get what is trimmed.
func (h *host) forget() {
	h.store.mu.Lock()
	defer h.store.mu.Unlock()
	h.store.ring.clear()
}

func readable(t *testing.T, h *host, from record.Offset) (n int) {
	t.Helper()
	for {
		f, err := h.Read(from, 1<<20, record.ReadCommitted)
		require.NoError(t, err)
		if len(f.Batches) == 0 {
			return n
		}
		for _, b := range f.Batches {
			n, from = n+int(b.Count()), b.NextOffset()
		}
	}
}

func TestAFollowerBehindTheLogStartGetsEverythingThatIsThere(t *testing.T) {
	for name, behind := range map[string]int{"from nothing but the membership": 0, "from a log of its own": 50} {
		t.Run(name, func(t *testing.T) {
			c := newTrioOf(t, 4<<10, "a", "b", "c")
			back, lead := lag(t, c, behind)
			end := record.Offset(behind + 300)
			require.NoError(t, back.Wait(c.within(10*time.Second), end-1))
			require.Equal(t, lead.store.log.Bounds().First, back.store.log.Bounds().First, "not from the latest snapshot: all that is retained")
			require.Equal(t, 50, readable(t, back, end-50))

			// It can lead, and knows the producers.
			c.produce(lead, behind+300, 1)
			node := back.Status().Node
			require.NoError(t, lead.raft().LeadershipTransferToServer(raft.ServerID(node), raft.ServerAddress(node)).Error())
			h := c.leader(node)
			require.True(t, c.get(h.send(buildBatch(t, 1, 0, record.Sequence(behind+300), 1), AppendOptions{})).Duplicate)
			c.produce(h, behind+301, 10)
		})
	}
}

func TestAnInstalledFollowerSurvivesItsRestart(t *testing.T) {
	c := newTrioOf(t, 4<<10, "a", "b", "c")
	back, _ := lag(t, c, 20)
	node := back.Status().Node
	require.NoError(t, back.Wait(c.within(10*time.Second), 319))
	c.stop(node)
	back = c.start(node)
	require.Equal(t, 50, readable(t, back, 270))
	h := c.leader()
	c.produce(h, 320, 50)
	require.NoError(t, back.Wait(c.within(10*time.Second), 369))
}

// A follower with a longer, diverged log must not believe in it after an anchor
// has replaced it.
func TestADivergedFollowerBehindTheLogStart(t *testing.T) {
	c := newTrioOf(t, 4<<10, "a", "b", "c")
	old := c.leader()
	node := old.Status().Node
	c.produce(old, 0, 10)
	c.net.Isolate(node)
	for i := range 120 { // placed, never committed
		old.send(buildBatch(t, 2, 0, record.Sequence(i), 1), AppendOptions{})
	}
	c.eventually("the tail is placed", func() bool { return old.store.log.Bounds().End >= 130 })
	c.stop(node)
	c.net.Heal()

	h := c.leader()
	c.produce(h, 10, 60)
	_, err := h.TrimTo(c.within(10*time.Second), 60)
	require.NoError(t, err)
	c.eventually("trim", func() bool { return h.store.log.Bounds().Start > 20 })
	h.forget()
	back := c.start(node)
	require.NoError(t, back.Wait(c.within(10*time.Second), 69))
	require.Equal(t, 10, readable(t, back, 60))
	require.Equal(t, h.store.log.Bounds().End, back.store.log.Bounds().End)
}

// Raft does not look anew where its log ends when a second one comes.
func TestADivergedTailIsGoneAfterTwoInstalls(t *testing.T) {
	l, err := log.Open(t.Context(), "/orders-0", log.Config{FS: vfs.NewMem(), TopicID: testTopic})
	require.NoError(t, err)
	defer l.Close()
	for n := range record.EntryNumber(10) {
		require.NoError(t, l.Append([]segment.Entry{{Number: n + 1, Term: 1, Kind: segment.KindNoop}}))
	}
	s := &store{log: l}
	for _, anchor := range []uint64{3, 5} {
		require.NoError(t, s.install(state{entry: anchor, term: 2}))
		for index := anchor + 1; index <= 10; index++ {
			var e raft.Log
			require.NoError(t, s.GetLog(index, &e))
			require.Zero(t, e.Term, "it conflicts with all that a leader can have")
		}
		require.True(t, s.misled(), "Raft believes in the tail")
	}
}

func TestATrimmedLogOpensWithoutItsCheckpoint(t *testing.T) {
	c := newTrioOf(t, 4<<10, "a")
	h := c.leader()
	c.produce(h, 0, 200)
	_, err := h.TrimTo(c.within(10*time.Second), 150)
	require.NoError(t, err)
	c.eventually("trim", func() bool { return h.store.log.Bounds().Start > 100 })
	c.stop("a")
	require.NoError(t, c.disks["a"].Remove("/a/orders-0/"+checkpointName))

	h = c.start("a")
	c.leader()
	require.NoError(t, h.Wait(c.within(10*time.Second), 199))
	require.True(t, c.get(h.send(buildBatch(t, 1, 0, 199, 1), AppendOptions{})).Duplicate, "producers come back from the log")
	c.produce(h, 200, 5)
}
