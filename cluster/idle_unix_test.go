//go:build unix

package cluster

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/replica"
	"github.com/quorumlog/quorumlog/transport"
)

var (
	idlePartitions = flag.String("idle", "", "measure what so many idle partitions cost, for example 1,100,1000")
	idleSleep      = flag.Duration("idle.sleep", -1, "their SleepAfter; by default they stay awake")
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

// TestIdleCostIsMeasured prints a line of the table in docs/idle.md for each
// number of partitions in the flag -idle.
func TestIdleCostIsMeasured(t *testing.T) {
	if *idlePartitions == "" {
		t.Skip("takes a minute; run it with -idle 1,100,1000 -v")
	}
	for _, text := range strings.Split(*idlePartitions, ",") {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		t.Run(text, func(t *testing.T) { measureIdle(t, n, 10*time.Second) })
	}
}

// measureIdle looks for a while at three nodes with topics that nobody uses.
func measureIdle(t *testing.T, partitions int, d time.Duration) {
	dir, network := t.TempDir(), transport.NewNetwork()
	peers := []string{"a", "b", "c"}
	var sent atomic.Int64
	var nodes []*Node
	for _, id := range peers {
		e, err := network.Join(id)
		require.NoError(t, err)
		stable, err := replica.OpenStable(filepath.Join(dir, id+".votes"))
		require.NoError(t, err)
		n, err := Open(context.Background(), Config{
			FS: vfs.OS, Dir: filepath.Join(dir, id), Stable: stable, Endpoint: counted{e, &sent}, Peers: peers, SleepAfter: *idleSleep,
		})
		require.NoError(t, err)
		nodes = append(nodes, n)
		t.Cleanup(func() {
			require.NoError(t, n.Close())
			require.NoError(t, stable.Close())
			require.NoError(t, e.Close())
		})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for made := 0; made < partitions; made += 100 { // a busy machine does not elect a thousand at once
		topic, err := nodes[0].CreateTopic(ctx, TopicConfig{Name: fmt.Sprint("orders-", made), Partitions: min(100, partitions-made), Replicas: 3})
		require.NoError(t, err)
		for _, n := range nodes {
			_, err := n.Topic(ctx, topic.Name())
			require.NoError(t, err)
			require.NoError(t, n.awaitLeaders(ctx, topic))
		}
		for _, n := range nodes {
			if *idleSleep > 0 {
				awaitSleep(t, ctx, n)
			}
		}
	}
	runtime.GC()
	cpu, before, began := cpuTime(t), sent.Load(), time.Now()
	<-time.After(d) // what is measured is the passing of time
	took := time.Since(began).Seconds()
	cpu, before = cpuTime(t)-cpu, sent.Load()-before
	var mem runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&mem)
	t.Logf("| partitions | CPU, of one core | goroutines | heap | stacks | handles | messages/s |")
	t.Logf("| %d | %.1f %% | %d | %.1f MB | %.1f MB | %d | %.0f |", partitions, 100*cpu.Seconds()/took, runtime.NumGoroutine(),
		float64(mem.HeapAlloc)/1e6, float64(mem.StackInuse)/1e6, handles(), float64(before)/took)
}

func cpuTime(t *testing.T) time.Duration {
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// handles counts the files that this process has open, 0 where nobody tells.
func handles() int {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(open)
}
