package replica

import (
	"context"
	"fmt"
	"path"
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
	sent     atomic.Int64 // messages so far
	replicas []*Replica
}

// startFleet opens the partitions and waits until each has a leader. They are
// closed with the test. change, if not nil, has its say on each configuration.
func startFleet(t testing.TB, partitions int, fs vfs.FS, dir string, stable func(node string) *Stable, change func(*Config)) *fleet {
	t.Helper()
	f := &fleet{}
	net := transport.NewNetwork()
	nodes := []string{"a", "b", "c"}
	muxes, stables := map[string]*Mux{}, map[string]*Stable{}
	for _, node := range nodes {
		e, err := net.Join(node)
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
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, r := range f.replicas {
		for {
			changed := r.Changed()
			if node, _ := r.Leader(); node != "" {
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				require.FailNow(t, "no leader", "of %v", r.cfg.TopicPartition)
			}
		}
	}
	return f
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
