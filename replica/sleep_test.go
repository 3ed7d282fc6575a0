package replica

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

// newSleeper is newTrio with partitions that go to sleep soon.
func newSleeper(t testing.TB, nodes ...string) *trio {
	t.Helper()
	return startTrio(t, &trio{sleep: 50 * time.Millisecond, timeout: 300 * time.Millisecond}, nodes...)
}

// until waits until is is true, which a change of the replica makes it.
func (c *trio) until(h *host, is func() bool, within time.Duration) bool {
	limit := time.After(within)
	for {
		changed := h.changed.wait()
		if is() {
			return true
		}
		select {
		case <-changed:
		case <-limit:
			return false
		}
	}
}

// sleeping waits until the partition sleeps on all nodes and returns its leader.
func (c *trio) sleeping() *host {
	c.t.Helper()
	for _, node := range c.nodes {
		h := c.live[node]
		require.True(c.t, c.until(h, h.asleep, 15*time.Second), "node %s does not sleep", node)
	}
	leader, _ := c.live[c.nodes[0]].Leader()
	for _, node := range c.nodes {
		require.True(c.t, c.live[node].asleep(), "node %s woke up", node)
		theirs, _ := c.live[node].Leader()
		require.Equal(c.t, leader, theirs)
	}
	return c.live[leader]
}

// others returns the nodes but one.
func (c *trio) others(node string) (others []string) {
	for _, n := range c.nodes {
		if n != node {
			others = append(others, n)
		}
	}
	return others
}

// note appends a record of producer 7 with that sequence.
func (c *trio) note(h *host, seq record.Sequence) outcome {
	c.t.Helper()
	return c.get(h.send(buildBatch(c.t, 7, 0, seq, 1), AppendOptions{}))
}

func numbered(n int) (want []string) {
	for i := range n {
		want = append(want, fmt.Sprintf("7/%d", i))
	}
	return want
}

func TestAQuietPartitionSleepsAndAWriteWakesIt(t *testing.T) {
	for _, nodes := range [][]string{{"a"}, {"a", "b", "c"}} {
		t.Run(fmt.Sprint(len(nodes)), func(t *testing.T) {
			c := newSleeper(t, nodes...)
			require.NoError(t, c.note(c.leader(), 0).err)
			for i := range 3 {
				lead := c.sleeping()
				for _, node := range c.others(lead.cfg.Node) { // they say who leads, and sleep on
					var not *record.NotLeaderError
					require.ErrorAs(t, c.note(c.live[node], record.Sequence(1+i)).err, &not)
					require.Equal(t, lead.cfg.Node, not.Leader)
				}
				began := time.Now()
				acks := []record.Acks{record.AckQuorum, record.AckAll, record.AckLeader}[i]
				require.NoError(t, c.get(lead.send(buildBatch(t, 7, 0, record.Sequence(1+i), 1), AppendOptions{Acks: acks})).err)
				require.Less(t, time.Since(began), lead.cfg.ElectionTimeout, "a leader that wakes up waits for no timeout")
			}
			for _, node := range nodes {
				require.Equal(t, numbered(4), c.values(c.live[node], 4))
			}
		})
	}
}

func TestAPartitionThatSleepsIsReadWithoutWakingIt(t *testing.T) {
	c := newSleeper(t, "a", "b", "c")
	require.NoError(t, c.note(c.leader(), 0).err)
	lead := c.sleeping()
	_, epoch := lead.Leader()
	for _, node := range c.nodes {
		h := c.live[node]
		require.Equal(t, numbered(1), c.values(h, 1))
		s := h.Status()
		require.NoError(t, s.Err)
		require.Equal(t, lead.cfg.Node, s.Leader)
		require.Equal(t, epoch, s.Epoch)
		require.EqualValues(t, 1, s.HighWatermark)
		require.Equal(t, h == lead, h.CaughtUp())
	}
	for _, r := range lead.Status().Replicas {
		require.True(t, r.InSync, r.Node)
		require.EqualValues(t, 1, r.EndOffset)
	}
	confirmed, high, err := lead.Barrier(c.within(10 * time.Second))
	require.NoError(t, err)
	require.Equal(t, epoch, confirmed)
	require.EqualValues(t, 1, high)
	for _, node := range c.nodes {
		require.True(t, c.live[node].asleep(), node)
	}
}

// TestTheRestElectsWhenTheLeadersNodeDiesAsleep, and knows all that was acknowledged.
func TestTheRestElectsWhenTheLeadersNodeDiesAsleep(t *testing.T) {
	c := newSleeper(t, "a", "b", "c")
	require.NoError(t, c.note(c.leader(), 0).err)
	old := c.sleeping()
	c.net.Isolate(old.cfg.Node)
	next := c.leader(c.others(old.cfg.Node)...)
	require.NoError(t, c.note(next, 1).err)
	require.Equal(t, numbered(2), c.values(next, 2))
}

// TestALeaderThatSleepsAndIsCutOffLeadsNobody: what it is asked to write is not
// written, it confirms nothing, and it does not pass for the leader for long.
func TestALeaderThatSleepsAndIsCutOffLeadsNobody(t *testing.T) {
	for name, ask := range map[string]func(c *trio, old *host){
		"write": func(c *trio, old *host) {
			require.ErrorIs(c.t, c.note(old, 1).err, record.ErrNotLeader)
		},
		"barrier": func(c *trio, old *host) {
			_, _, err := old.Barrier(c.within(10 * time.Second))
			require.ErrorIs(c.t, err, record.ErrNotLeader)
		},
		"nothing": func(c *trio, old *host) {
			require.True(c.t, c.until(old, func() bool { return !old.asleep() }, 10*time.Second))
			require.False(c.t, old.leads())
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newSleeper(t, "a", "b", "c")
			require.NoError(t, c.note(c.leader(), 0).err)
			old := c.sleeping()
			c.net.Isolate(old.cfg.Node)
			ask(c, old)
			next := c.leader(c.others(old.cfg.Node)...)
			require.NoError(t, c.note(next, 1).err)
			c.net.Heal()
			require.Equal(t, numbered(2), c.values(old, 2))
			c.sleeping()
		})
	}
}

// TestAReplicaThatCannotBeReachedKeepsThePartitionAwake, and one that is back lets it sleep.
func TestAReplicaThatCannotBeReachedKeepsThePartitionAwake(t *testing.T) {
	c := newSleeper(t, "a", "b", "c")
	lead := c.leader()
	gone := c.others(lead.cfg.Node)[0]
	c.net.Isolate(gone)
	require.NoError(t, c.note(lead, 0).err)
	require.False(t, c.until(lead, lead.asleep, 20*lead.cfg.SleepAfter))
	c.net.Heal()
	c.sleeping()
}

// TestAReplicaThatSleepsAloneWakesUp: whatever gets lost on the way to sleep, a
// group is not left half asleep.
func TestAReplicaThatSleepsAloneWakesUp(t *testing.T) {
	alone := func(t *testing.T, c *trio, lead *host) *host {
		h := c.live[c.others(lead.cfg.Node)[0]]
		require.NoError(t, h.Wait(c.within(10*time.Second), 0))
		ctx := c.within(10 * time.Second)
		for {
			for _, r := range []*host{lead, h} { // the checkpoint that sleep asks for
				r.mu.Lock()
				r.want(choreCheckpoint)
				r.mu.Unlock()
			}
			n := lead.newNap(lead.cfg.Node, lead.raft().CurrentTerm())
			if lead.ask(ctx, n, opSleep, lead.store.log.Bounds().LastTerm, 1, []string{h.cfg.Node}) {
				return h
			}
			require.NoError(t, ctx.Err(), "it does not go to sleep")
		}
	}
	t.Run("its leader is awake", func(t *testing.T) {
		c := newTrio(t, "a", "b", "c")
		lead := c.leader()
		require.NoError(t, c.note(lead, 0).err)
		h := alone(t, c, lead)
		require.True(t, c.until(h, func() bool { return !h.asleep() }, 10*time.Second))
		require.NoError(t, c.note(lead, 1).err)
		require.Equal(t, numbered(2), c.values(h, 2))
	})
	t.Run("its leader does not reach it", func(t *testing.T) {
		c := newTrio(t, "a", "b", "c")
		lead := c.leader()
		require.NoError(t, c.note(lead, 0).err)
		h := alone(t, c, lead)
		c.net.CutOneWay(lead.cfg.Node, h.cfg.Node)
		require.True(t, c.until(h, func() bool { return !h.asleep() }, 10*time.Second))
		c.net.Heal()
		require.NoError(t, c.note(c.leader(), 1).err)
		require.Equal(t, numbered(2), c.values(h, 2))
	})
	t.Run("its leader has closed and told nobody", func(t *testing.T) {
		c := newSleeper(t, "a", "b", "c")
		require.NoError(t, c.note(c.leader(), 0).err)
		old := c.sleeping()
		old.mux.watch.remove(old.Replica)
		next := c.leader(c.others(old.cfg.Node)...)
		require.NoError(t, c.note(next, 1).err)
	})
}

func TestRestartsOfAPartitionThatSleepsLoseNothing(t *testing.T) {
	for name, pick := range map[string]func(c *trio, lead string) []string{
		"the leader":  func(_ *trio, lead string) []string { return []string{lead} },
		"a follower":  func(c *trio, lead string) []string { return c.others(lead)[:1] },
		"all of them": func(c *trio, _ string) []string { return c.nodes },
	} {
		t.Run(name, func(t *testing.T) {
			c := newSleeper(t, "a", "b", "c")
			require.NoError(t, c.note(c.leader(), 0).err)
			lead := c.sleeping()
			stopped := pick(c, lead.cfg.Node)
			for _, node := range stopped {
				c.stop(node)
			}
			for _, node := range stopped {
				c.start(node)
			}
			require.NoError(t, c.note(c.leader(), 1).err)
			c.sleeping()
			for _, node := range c.nodes {
				require.Equal(t, numbered(2), c.values(c.live[node], 2))
			}
		})
	}
}

// TestALeaderThatClosesAsleepHandsLeadershipOn: nobody waits for a timeout.
func TestALeaderThatClosesAsleepHandsLeadershipOn(t *testing.T) {
	c := newSleeper(t, "a", "b", "c")
	require.NoError(t, c.note(c.leader(), 0).err)
	old := c.sleeping()
	began := time.Now()
	c.stop(old.cfg.Node)
	next := c.leader(c.others(old.cfg.Node)...)
	require.Less(t, time.Since(began), old.cfg.ElectionTimeout)
	require.NoError(t, c.note(next, 1).err)
}

// TestSleepRacesWithEverythingElse writes, cuts links, isolates and restarts
// nodes at random moments of going to sleep and waking up. What was acknowledged
// must be there at the end, once, in order, on all replicas.
func TestSleepRacesWithEverythingElse(t *testing.T) {
	seed := rand.Uint64()
	if text := os.Getenv("QUORUMLOG_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Log("QUORUMLOG_SEED =", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	c := startTrio(t, &trio{sleep: time.Millisecond, timeout: 300 * time.Millisecond}, "a", "b", "c")
	var naps, written int
	// one writes the next record, at whichever node leads, until it is acknowledged.
	one := func() {
		batch := func() record.Batch { return buildBatch(t, 7, 0, record.Sequence(written), 1) }
		ctx := c.within(20 * time.Second)
		for at := c.nodes[rng.IntN(3)]; ; {
			once, cancel := context.WithTimeout(ctx, time.Second)
			ch := make(chan outcome, 1)
			c.live[at].Append(once, batch(), AppendOptions{}, func(a record.Appended, err error) { ch <- outcome{a, err} })
			o := <-ch // the replica ends the wait
			cancel()
			if o.err == nil {
				require.EqualValues(t, written, o.BaseOffset)
				written++
				return
			}
			require.NoError(t, ctx.Err(), "no progress after healing: %v", o.err)
			at = c.nodes[rng.IntN(3)]
			if leader, _ := c.live[at].Leader(); leader != "" {
				at = leader
			}
		}
	}
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); {
		h := c.live[c.nodes[rng.IntN(3)]]
		if c.until(h, h.asleep, time.Duration(rng.IntN(400))*time.Millisecond) {
			naps++
		}
		switch rng.IntN(8) {
		case 0:
			c.net.CutOneWay(c.nodes[rng.IntN(3)], c.nodes[rng.IntN(3)])
			c.until(h, h.asleep, time.Duration(rng.IntN(200))*time.Millisecond)
		case 1:
			c.net.Isolate(h.cfg.Node)
			c.until(h, h.asleep, time.Duration(rng.IntN(200))*time.Millisecond)
		case 2:
			node := h.cfg.Node
			c.stop(node)
			c.start(node)
		case 3:
			_ = h.TransferLeadership(c.within(time.Second), "") // if it leads
		}
		c.net.Heal()
		one()
	}
	require.Positive(t, naps)
	t.Log(naps, "naps,", written, "records")
	for _, node := range c.nodes {
		require.Equal(t, numbered(written), c.values(c.live[node], record.Offset(written)))
	}
	c.sleeping()
}
