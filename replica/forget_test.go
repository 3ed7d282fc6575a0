package replica

import (
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

// sequences returns what a replica remembers of its producers. Every batch is committed.
func (h *host) sequences() producers {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := producers{}
	for id, refs := range h.producers {
		all[id] = append([]batchRef(nil), refs...)
	}
	return all
}

// allRemember waits until all replicas remember the same.
func (c *trio) allRemember(h *host) producers {
	c.t.Helper()
	var want producers
	c.eventually("the same producers everywhere", func() bool {
		want = h.sequences()
		return !slices.ContainsFunc(c.nodes, func(node string) bool {
			return !reflect.DeepEqual(want, c.live[node].sequences())
		})
	})
	return want
}

func TestProducersAreForgottenAlikeWhereverTheyAreStored(t *testing.T) {
	// Producer 1 writes at 0 and, behind the command at 10, at 12; 2 at 3; 3 at 7.
	full := func() producers {
		p := producers{}
		p.add(batchOf(t, 1, 0, 0, 1, 0))
		p.add(batchOf(t, 2, 0, 0, 1, 3))
		p.add(batchOf(t, 3, 0, 0, 1, 7))
		return p
	}
	behind := batchOf(t, 1, 0, 1, 1, 12)

	stored := full()
	stored.add(behind)
	require.True(t, stored.endBelow(5, 10, nil))
	stored.forget(5, 10, nil)
	later := full()
	later.forget(5, 10, nil)
	later.add(behind)
	require.Equal(t, later, stored)
	require.ElementsMatch(t, []record.ProducerID{1, 3}, keys(stored))
	require.Len(t, stored[1], 1, "what it wrote before the command is forgotten")
	require.False(t, stored.endBelow(5, 10, nil), "and a second one finds nothing")

	open := map[record.ProducerID]bool{2: true}
	p := full()
	require.Equal(t, record.Offset(7), p.oldest(1, 10, open))
	p.forget(10, 10, open)
	require.Equal(t, []record.ProducerID{2}, keys(p), "never one with an open transaction")
	require.False(t, p.endBelow(10, 10, open))

	p = full()
	require.Equal(t, record.Offset(3), p.oldest(1, 10, nil))
	require.Equal(t, record.Offset(7), p.oldest(2, 10, nil))
	require.Equal(t, record.Offset(10), p.oldest(3, 10, nil))
	require.Equal(t, record.Offset(5), p.oldest(2, 5, nil), "3 has written nothing below 5")
}

func keys(p producers) (ids []record.ProducerID) {
	for id := range maps.Keys(p) {
		ids = append(ids, id)
	}
	return ids
}

func TestOnlyProducersThatWroteLastAreRemembered(t *testing.T) {
	const most = 16
	c := startTrio(t, &trio{most: most}, "a", "b", "c")
	h := c.leader()
	c.write(h, 50, 0, 0, 1) // a transaction that stays open
	for id := range record.ProducerID(200) {
		require.NoError(t, c.get(h.send(buildBatch(t, 100+id, 0, 0, 1), AppendOptions{})).err)
		require.NoError(t, c.get(h.send(buildBatch(t, 1, 0, record.Sequence(id), 1), AppendOptions{})).err)
		require.LessOrEqual(t, len(h.sequences()), most+64, "never many more: a command takes a moment")
	}
	c.eventually("forgotten", func() bool { return len(h.sequences()) <= most })
	kept := c.allRemember(h)
	require.Contains(t, kept, record.ProducerID(1), "it writes all the time")
	require.Contains(t, kept, record.ProducerID(299))
	require.Contains(t, kept, record.ProducerID(50), "its transaction is open")
	require.NotContains(t, kept, record.ProducerID(100))

	// Who was forgotten is told so: its batch may have been written before.
	var order *record.OutOfOrderError
	require.ErrorAs(t, c.get(h.send(buildBatch(t, 100, 0, 1, 1), AppendOptions{})).err, &order)
	require.True(t, order.Unknown)
	require.Equal(t, testPartition, order.TopicPartition)
	require.ErrorAs(t, c.get(h.send(buildBatch(t, 1, 0, 999, 1), AppendOptions{})).err, &order)
	require.False(t, order.Unknown, "a gap is another thing")
	require.NoError(t, c.get(h.send(buildBatch(t, 100, 0, 0, 1), AppendOptions{})).err, "from 0 it may begin again")

	// All replicas forget the same after a restart: what checkpoints hold and what is replayed.
	for _, node := range c.nodes {
		c.stop(node)
	}
	for _, node := range c.nodes {
		c.start(node)
	}
	h = c.leader()
	require.True(t, c.get(h.send(buildBatch(t, 1, 0, 199, 1), AppendOptions{})).Duplicate)
	c.allRemember(h)
}

func TestProducersThatWriteNothingForLongAreForgotten(t *testing.T) {
	c := startTrio(t, &trio{expiry: 200 * time.Millisecond}, "a", "b", "c")
	h := c.leader()
	require.NoError(t, c.get(h.send(buildBatch(t, 1, 0, 0, 1), AppendOptions{})).err)
	began, next := time.Now(), 0
	c.eventually("producer 1 is forgotten", func() bool {
		require.NoError(t, c.get(h.send(buildBatch(t, 2, 0, record.Sequence(next), 1), AppendOptions{})).err)
		next++
		_, known := h.sequences()[1]
		return !known
	})
	require.GreaterOrEqual(t, time.Since(began), 200*time.Millisecond, "not before its time")
	require.Contains(t, c.allRemember(h), record.ProducerID(2))
	require.ErrorIs(t, c.get(h.send(buildBatch(t, 1, 0, 1, 1), AppendOptions{})).err, record.ErrOutOfOrder)
}

func TestAgeIsMeasuredInMarks(t *testing.T) {
	var f forgetting
	start := time.UnixMilli(0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	const expiry = 80 * time.Second
	for s := range 1000 {
		f.note(at(s), record.Offset(s), expiry)
		require.LessOrEqual(t, len(f.marks), marksPerExpiry+2)
		got := f.expired(at(s), expiry)
		if s < 80 {
			require.Zero(t, got)
			continue
		}
		require.LessOrEqual(t, got, record.Offset(s-80), "never early")
		require.Greater(t, got, record.Offset(s-91), "and at most an eighth late")
	}
}

// TestForgettingSurvivesAnyMixOfRestartsAndElections: whatever happens, replicas
// that have applied the same log remember the same.
func TestForgettingSurvivesAnyMixOfRestartsAndElections(t *testing.T) {
	seed := testSeed(t)
	rng := rand.New(rand.NewPCG(seed, 0))
	c := startTrio(t, &trio{most: 8, segment: 4 << 10}, "a", "b", "c")
	next := map[record.ProducerID]record.Sequence{}
	for range 12 {
		h := c.leader()
		for range 40 {
			id := record.ProducerID(rng.IntN(20))
			o := c.get(h.send(buildBatch(t, id, 0, next[id], 1), AppendOptions{}))
			if o.err != nil {
				require.ErrorIs(t, o.err, record.ErrOutOfOrder, "seed %d", seed)
				delete(next, id)
				continue
			}
			next[id]++
		}
		node := c.nodes[rng.IntN(3)]
		switch rng.IntN(3) {
		case 0:
			c.stop(node)
			c.start(node)
		case 1:
			_ = h.TransferLeadership(c.within(5*time.Second), "")
		case 2:
			_, err := h.TrimTo(c.within(5*time.Second), h.Status().HighWatermark-record.Offset(rng.IntN(20)))
			require.NoError(t, err, "seed %d", seed)
		}
	}
	c.allRemember(c.leader())
}
