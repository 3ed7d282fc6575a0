package replica

import (
	"context"
	"fmt"
	"path"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/transport"
)

// counted is an endpoint that counts the messages it sends.
type counted struct {
	transport.Endpoint
	sent *atomic.Int64
}

func (e counted) Send(ctx context.Context, to string, svc transport.Service, req [][]byte, done func([]byte, error)) {
	e.sent.Add(1)
	e.Endpoint.Send(ctx, to, svc, req, done)
}

// fleet is many partitions, each on the same three nodes of one process.
type fleet struct {
	net      *transport.Network
	sent     atomic.Int64 // messages so far
	replicas []*Replica
}

// startFleet opens the partitions and waits until each has a leader. They are
// closed with the test. change, if not nil, has its say on each configuration.
func startFleet(t testing.TB, partitions int, fs vfs.FS, dir string, stable func(node string) *Stable, change func(*Config)) *fleet {
	t.Helper()
	f := &fleet{net: transport.NewNetwork()}
	nodes := []string{"a", "b", "c"}
	muxes, stables := map[string]*Mux{}, map[string]*Stable{}
	for _, node := range nodes {
		e, err := f.net.Join(node)
		require.NoError(t, err)
		muxes[node], stables[node] = NewMux(counted{e, &f.sent}, testService), stable(node)
		t.Cleanup(func() {
			require.NoError(t, muxes[node].Close())
			require.NoError(t, stables[node].Close())
			require.NoError(t, e.Close())
		})
	}
	var mu sync.Mutex
	var opens, closes errgroup.Group
	opens.SetLimit(16)
	closes.SetLimit(64)
	t.Cleanup(func() {
		for _, r := range f.replicas {
			closes.Go(r.Close)
		}
		require.NoError(t, closes.Wait())
	})
	for p := range partitions {
		for i := range nodes {
			opens.Go(func() error {
				node := nodes[(p+i)%len(nodes)]
				cfg := Config{
					FS: fs, Dir: path.Join(dir, node, fmt.Sprint("orders-", p)), Node: node,
					TopicPartition: record.TopicPartition{Topic: "orders", Partition: int32(p)}, TopicID: testTopic,
					Peers: []string{nodes[p%3], nodes[(p+1)%3], nodes[(p+2)%3]}, // leaders spread
					Mux:   muxes[node], Stable: stables[node],
				}
				if change != nil {
					change(&cfg)
				}
				r, err := Open(context.Background(), cfg)
				if err == nil {
					mu.Lock()
					f.replicas = append(f.replicas, r)
					mu.Unlock()
				}
				return err
			})
		}
	}
	require.NoError(t, opens.Wait())
	f.await(t, func(r *Replica) bool {
		node, _ := r.Leader()
		return node != ""
	})
	return f
}

// await waits until all replicas are so.
func (f *fleet) await(t testing.TB, so func(*Replica) bool) {
	t.Helper()
	limit := time.After(time.Minute)
	for _, r := range f.replicas {
		for {
			changed := r.Changed()
			if so(r) {
				break
			}
			select {
			case <-changed:
			case <-limit:
				require.FailNow(t, "it does not come to that", "%v on %s: %+v", r.cfg.TopicPartition, r.cfg.Node, r.Status())
			}
		}
	}
}

// TestMessagesOfQuietGroupsGrowWithPairsOfNodesNotWithGroups counts them over
// some heartbeats of many groups and of few.
func TestMessagesOfQuietGroupsGrowWithPairsOfNodesNotWithGroups(t *testing.T) {
	const timeout = 500 * time.Millisecond
	for _, partitions := range []int{3, 60} {
		t.Run(fmt.Sprint(partitions), func(t *testing.T) {
			f := startFleet(t, partitions, vfs.NewMem(), "/", func(string) *Stable { return NewMemoryStable() }, func(c *Config) {
				c.ElectionTimeout = timeout
			})
			before, begin := f.sent.Load(), time.Now()
			<-time.After(2 * timeout) // what is measured is the passing of time
			perSecond := float64(f.sent.Load()-before) / time.Since(begin).Seconds()
			// Six directed pairs, each with one message in a twentieth of the timeout
			// at the most, and the last of the beginning. Without this care it is 54 for
			// each partition.
			require.Less(t, perSecond, 2*6/(timeout/20).Seconds())
		})
	}
}

// TestManyPartitionsThatSleepCostNextToNothing, and those that a node led go on
// without it.
func TestManyPartitionsThatSleepCostNextToNothing(t *testing.T) {
	const partitions = 60
	f := startFleet(t, partitions, vfs.NewMem(), "/", func(string) *Stable { return NewMemoryStable() }, func(c *Config) {
		c.SleepAfter = 50 * time.Millisecond
	})
	f.await(t, (*Replica).asleep)
	before, began := f.sent.Load(), time.Now()
	<-time.After(time.Second) // what is measured is the passing of time
	perSecond := float64(f.sent.Load()-before) / time.Since(began).Seconds()
	require.Less(t, perSecond, 2*6/(f.replicas[0].cfg.ElectionTimeout/4).Seconds(), "six pairs, four messages in a timeout")
	require.Less(t, runtime.NumGoroutine(), 2*3*partitions, "Raft alone would have 16 for each partition")

	f.net.Isolate("a")
	f.await(t, func(r *Replica) bool {
		node, _ := r.Leader()
		return r.cfg.Node == "a" || node == "b" || node == "c"
	})
}

// TestSilenceIsNoStall: a node that has not been asked has not been silent.
func TestSilenceIsNoStall(t *testing.T) {
	now := time.Now()
	n := &nap{since: now.Add(-time.Hour)}
	c := &contact{at: now.Add(-time.Minute), missed: enoughMissed - 1}
	require.False(t, c.silent(n, now, time.Second), "this process stood still")
	c.missed++
	require.True(t, c.silent(n, now, time.Second))
	require.False(t, c.silent(n, now, time.Hour))
	n.since = now
	require.False(t, c.silent(n, now, time.Second), "it has just fallen asleep")
}
