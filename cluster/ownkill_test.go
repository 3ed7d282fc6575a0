package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
)

// committer commits one offset after the other for a group, through any node that runs.
type committer struct {
	group string
	acked record.Offset
}

func (w *committer) run(ctx context.Context, rng *rand.Rand, nodes func() []*Node, acked chan<- struct{}) {
	for ctx.Err() == nil {
		running := nodes()
		n := running[rng.IntN(len(running))]
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, err := n.Group(try, w.group, group.Request{Op: group.OpCommit, Offsets: []group.Offset{{TopicPartition: part("orders", 0), Offset: w.acked + 1}}})
		cancel()
		if err != nil { // it may have been written all the same; the same offset comes again
			continue
		}
		w.acked++
		select {
		case acked <- struct{}{}:
		case <-ctx.Done():
		}
	}
}

// Power is cut at one node or two at a time, while their coordinators rewrite and trim
// their logs over and over.
func TestNoCommittedOffsetIsLostWhereverACoordinatorDies(t *testing.T) {
	rng := rand.New(rand.NewPCG(testSeed(t), 0))
	c := startCluster(t, func(cfg *Config) {
		small(cfg)
		cfg.CompactionFloor = 2 << 10
		cfg.Defaults.Flush = log.FlushEach
	}, "a", "b", "c")
	c.create("orders", 1)
	_, err := c.node("a").groupPartition(c.ctx(), "g0")
	require.NoError(t, err)

	var mu sync.Mutex // guards running
	running := map[string]*Node{}
	for _, id := range c.peers {
		running[id] = c.node(id)
	}
	nodes := func() (all []*Node) {
		mu.Lock()
		defer mu.Unlock()
		for _, n := range running {
			all = append(all, n)
		}
		return all
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	acked := make(chan struct{})
	committers := make([]*committer, 6)
	var wg sync.WaitGroup
	for i := range committers {
		w, rng := &committer{group: fmt.Sprint("g", i)}, rand.New(rand.NewPCG(rng.Uint64(), 0))
		committers[i] = w
		wg.Go(func() { w.run(ctx, rng, nodes, acked) })
	}
	commits := func(n int) {
		t.Helper()
		limit := time.After(20 * time.Second)
		for range n {
			select {
			case <-acked:
			case <-limit:
				require.FailNow(t, "nothing is committed any more")
			}
		}
	}
	for range 10 {
		commits(20 + rng.IntN(100))
		dead := []string{"a", "b", "c"}
		rng.Shuffle(len(dead), func(i, k int) { dead[i], dead[k] = dead[k], dead[i] })
		dead = dead[:1+rng.IntN(2)]
		for _, id := range dead {
			mu.Lock()
			delete(running, id)
			mu.Unlock()
			m := c.machines[id]
			m.disk.Crash()
			require.NoError(t, m.endpoint.Close())
			_ = m.Close()
			m.Node, m.disk = nil, m.disk.Reboot(rng.Uint64())
		}
		if len(dead) == 1 {
			commits(20 + rng.IntN(200))
		}
		for _, id := range dead {
			c.start(id)
			mu.Lock()
			running[id] = c.node(id)
			mu.Unlock()
		}
	}
	commits(100)
	stop()
	wg.Wait()
	for _, w := range committers {
		for _, id := range c.peers {
			a, err := c.node(id).Group(c.ctx(), w.group, group.Request{Op: group.OpCommitted, Partitions: []record.TopicPartition{part("orders", 0)}})
			require.NoError(t, err)
			require.Contains(t, []record.Offset{w.acked, w.acked + 1}, a.Offsets[0].Offset, "%s, asked at %s", w.group, id)
			// And each node comes to know it by itself.
			_, coord := c.own(c.node(id), OffsetsTopic, w.group)
			var got record.Offset
			require.Eventually(t, func() bool {
				coord.(*group.Coordinator).View(func(s *group.State) { got = s.Committed(w.group, part("orders", 0)).Offset })
				return got == a.Offsets[0].Offset
			}, 10*time.Second, time.Millisecond, "%s on %s", w.group, id)
		}
		c.short(OffsetsTopic, w.group, 0)
	}
}
