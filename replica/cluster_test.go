package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/transport"
)

const testService transport.Service = 9

var (
	testPartition = record.TopicPartition{Topic: "orders", Partition: 0}
	testTopic     = record.TopicID{1, 2, 3}
)

// buildBatch builds a batch of n small records.
func buildBatch(t testing.TB, id record.ProducerID, epoch record.ProducerEpoch, first record.Sequence, n int) record.Batch {
	t.Helper()
	var b record.Builder
	for i := range n {
		r := record.Record{Value: fmt.Appendf(nil, "%d/%d", id, int64(first)+int64(i)), Time: time.UnixMilli(1_700_000_000_000)}
		require.NoError(t, b.Append(&r))
	}
	batch, err := b.Build(record.BatchOptions{Producer: &record.ProducerStamp{ID: id, Epoch: epoch, Sequence: first}})
	require.NoError(t, err)
	return batch
}

// trio is one partition on a few nodes in one process.
type trio struct {
	t       testing.TB
	net     *transport.Network
	nodes   []string
	peers   []string // as the partition began; others join
	disks   map[string]vfs.FS
	stables map[string]*Stable
	live    map[string]*host
	flush   log.FlushPolicy
	segment int64
	lag     time.Duration
	inSync  int
	expiry  time.Duration // of producers
	most    int           // producers
	timeout time.Duration // of elections; 500 ms if zero
	sleep   time.Duration // SleepAfter
	dir     string        // of all nodes, on the disk itself; in memory if empty
	aside   bool          // SetAside
	new     bool          // New
	shown   shown
}

// host is what one node runs.
type host struct {
	*Replica
	mux      *Mux
	endpoint transport.Endpoint
}

// newTrio opens the partition on nodes in memory. Everything is closed with the test.
func newTrio(t testing.TB, nodes ...string) *trio {
	t.Helper()
	return newTrioOf(t, 0, nodes...)
}

// newTrioOf is newTrio with small segments.
func newTrioOf(t testing.TB, segmentBytes int64, nodes ...string) *trio {
	t.Helper()
	return startTrio(t, &trio{segment: segmentBytes}, nodes...)
}

// startTrio opens the partition as c says.
func startTrio(t testing.TB, c *trio, nodes ...string) *trio {
	t.Helper()
	*c = trio{
		segment: c.segment, flush: c.flush, lag: c.lag, inSync: c.inSync, expiry: c.expiry, most: c.most, timeout: cmp.Or(c.timeout, 500*time.Millisecond),
		sleep: c.sleep, shown: shown{}, dir: c.dir,
		t: t, net: transport.NewNetwork(), nodes: nodes, peers: nodes,
		disks: map[string]vfs.FS{}, stables: map[string]*Stable{}, live: map[string]*host{},
	}
	for _, node := range nodes {
		c.disks[node], c.stables[node] = vfs.NewMem(), NewMemoryStable()
		if c.dir != "" {
			disk := vfs.NewOS()
			t.Cleanup(func() { require.NoError(t, disk.Close()) })
			c.disks[node] = disk
		}
	}
	c.new = true
	for _, node := range nodes {
		c.start(node)
	}
	c.new = false
	t.Cleanup(func() {
		if !t.Failed() {
			c.checkReplicas()
		}
		for _, node := range c.nodes {
			c.stop(node)
		}
	})
	return c
}

func (c *trio) start(node string) *host {
	c.t.Helper()
	h, err := c.open(node)
	require.NoError(c.t, err)
	c.live[node] = h
	return h
}

// join starts a node that holds no replica yet.
func (c *trio) join(node string) *host {
	c.t.Helper()
	c.nodes = append(slices.Clone(c.nodes), node)
	c.disks[node], c.stables[node] = vfs.NewMem(), NewMemoryStable()
	return c.start(node)
}

func (c *trio) open(node string) (*host, error) {
	e, err := c.net.Join(node)
	if err != nil {
		return nil, err
	}
	mux := NewMux(e, testService)
	r, err := Open(context.Background(), Config{
		FS: c.disks[node], Dir: path.Join("/", c.dir, node, "orders-0"), Node: node,
		TopicPartition: testPartition, TopicID: testTopic, Peers: c.peers,
		Mux: mux, Stable: c.stables[node], ElectionTimeout: c.timeout, SleepAfter: c.sleep, Flush: c.flush, SegmentBytes: c.segment, LagTimeMax: c.lag, MinInSync: c.inSync, ProducerExpiry: c.expiry, MaxProducers: c.most, SetAside: c.aside, New: c.new, Logger: testLogger(node),
	})
	if err != nil {
		return nil, errors.Join(err, mux.Close(), e.Close())
	}
	return &host{Replica: r, mux: mux, endpoint: e}, nil
}

// testLogger writes to standard error when QUORUMLOG_LOG is set.
func testLogger(node string) *slog.Logger {
	if os.Getenv("QUORUMLOG_LOG") == "" {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug - 4})).With("on", node)
}

func (c *trio) stop(node string) {
	c.t.Helper()
	h := c.live[node]
	if h == nil {
		return
	}
	delete(c.live, node)
	require.NoError(c.t, h.Close())
	require.NoError(c.t, h.mux.Close())
	require.NoError(c.t, h.endpoint.Close())
}

// leader waits until a live node leads that all live, connected nodes agree on
// and that has served a barrier.
func (c *trio) leader(among ...string) *host {
	c.t.Helper()
	if len(among) == 0 {
		among = c.nodes
	}
	ctx := c.within(10 * time.Second)
	for {
		changed := make(chan struct{}, len(among))
		for _, node := range among {
			if h := c.live[node]; h != nil {
				ch := h.Changed()
				go func() {
					select {
					case <-ch:
						changed <- struct{}{}
					case <-ctx.Done():
					}
				}()
			}
		}
		for _, node := range among {
			if h := c.live[node]; h != nil {
				if _, _, err := h.Barrier(ctx); err == nil {
					return h
				}
			}
		}
		select {
		case <-changed:
		case <-time.After(20 * time.Millisecond): // the end of a transfer that came to nothing fires nothing
		case <-ctx.Done():
			require.FailNow(c.t, "no leader", "among %v", among)
		}
	}
}

func (c *trio) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	c.t.Cleanup(cancel)
	return ctx
}

// outcome is what Append told.
type outcome struct {
	record.Appended
	err error
}

// send appends and returns where the answer will come.
func (h *host) send(b record.Batch, opt AppendOptions) <-chan outcome {
	ch := make(chan outcome, 1)
	h.Append(context.Background(), b, opt, func(a record.Appended, err error) { ch <- outcome{a, err} })
	return ch
}

func (c *trio) get(ch <-chan outcome) outcome {
	c.t.Helper()
	select {
	case o := <-ch:
		c.checkOffsets()
		return o
	case <-time.After(10 * time.Second):
		require.FailNow(c.t, "no answer to an append")
		return outcome{}
	}
}

// values reads everything below the high watermark, which must reach upTo.
func (c *trio) values(h *host, upTo record.Offset) []string {
	c.t.Helper()
	require.NoError(c.t, h.Wait(c.within(10*time.Second), upTo-1))
	var got []string
	var it record.Iterator
	for from := record.Offset(0); ; {
		f, err := h.Read(from, 1<<20, record.ReadCommitted)
		require.NoError(c.t, err)
		if len(f.Batches) == 0 {
			require.Equal(c.t, f.HighWatermark, from)
			return got
		}
		for _, b := range f.Batches {
			require.Equal(c.t, from, b.BaseOffset(), "offsets are dense")
			require.NoError(c.t, b.Check())
			require.NoError(c.t, it.Reset(b))
			for r := (record.Record{}); it.Next(&r); {
				got = append(got, string(r.Value))
			}
			require.NoError(c.t, it.Err())
			from = b.NextOffset()
		}
	}
}

// testSeed is the seed of a random test; QUORUMLOG_SEED takes it back.
func testSeed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("QUORUMLOG_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("QUORUMLOG_SEED=%d", seed)
	return seed
}
