package quorumlog_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog"
)

// Benchmarks pass 100-byte records one by one through the public API; one
// operation is one record.

const benchValue = 100

var flushes = map[string]quorumlog.FlushPolicy{"fsync": quorumlog.FlushEach, "nofsync": quorumlog.FlushNever}

func openBench(b *testing.B, nodes int, flush quorumlog.FlushPolicy) []*quorumlog.Node {
	b.Helper()
	nw, peers := quorumlog.NewNetwork(), map[string]string{}
	for i := range nodes {
		peers[fmt.Sprint(i)] = ""
	}
	return openBenchNodes(b, flush, peers, quorumlog.Config{Network: nw})
}

// openBenchTCP opens three nodes that talk over TCP.
func openBenchTCP(b *testing.B, flush quorumlog.FlushPolicy) []*quorumlog.Node {
	b.Helper()
	peers := map[string]string{}
	for i := range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0") // finds a free port, and is closed below
		require.NoError(b, err)
		require.NoError(b, l.Close())
		peers[fmt.Sprint(i)] = l.Addr().String()
	}
	return openBenchNodes(b, flush, peers, quorumlog.Config{})
}

// openBenchNodes opens a node for each of peers, and makes the topic. The first one
// leads.
func openBenchNodes(b *testing.B, flush quorumlog.FlushPolicy, peers map[string]string, cfg quorumlog.Config) []*quorumlog.Node {
	dir, nodes := b.TempDir(), len(peers)
	var all []*quorumlog.Node
	for i := range nodes {
		cfg.ID, cfg.Peers = fmt.Sprint(i), peers
		if cfg.Network == nil {
			cfg.Listen = peers[cfg.ID]
		}
		n, err := quorumlog.Open(filepath.Join(dir, cfg.ID), cfg)
		require.NoError(b, err)
		b.Cleanup(func() { require.NoError(b, n.Close()) })
		all = append(all, n)
	}
	err := all[0].CreateTopic(context.Background(), quorumlog.TopicConfig{Name: "bench", Partitions: 1, Replicas: nodes, Flush: flush})
	require.NoError(b, err)
	return all
}

func fill(b *testing.B, n *quorumlog.Node, records int) {
	b.Helper()
	ctx := context.Background()
	p, err := n.Producer(quorumlog.ProducerConfig{})
	require.NoError(b, err)
	failed := make(chan error, 1)
	value := make([]byte, benchValue)
	done := func(_ quorumlog.Result, err error) {
		if err != nil {
			select {
			case failed <- err:
			default:
			}
		}
	}
	for range records {
		p.SendAsync(ctx, quorumlog.Record{Topic: "bench", Value: value}, done)
	}
	require.NoError(b, p.Close(ctx))
	select {
	case err := <-failed:
		b.Fatal(err)
	default:
	}
}

func perSecond(b *testing.B) { b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s") }

func BenchmarkSendAsync(b *testing.B) {
	for _, nodes := range []int{1, 3} {
		for name, flush := range flushes {
			b.Run(fmt.Sprintf("nodes=%d/%s", nodes, name), func(b *testing.B) {
				all := openBench(b, nodes, flush)
				fill(b, all[0], 1) // identity and routes are there
				b.ReportAllocs()
				b.ResetTimer()
				fill(b, all[0], b.N)
				perSecond(b)
			})
		}
	}
}

func BenchmarkProduceOneAtATime(b *testing.B) {
	for _, nodes := range []int{1, 3} {
		for name, flush := range flushes {
			b.Run(fmt.Sprintf("nodes=%d/%s", nodes, name), func(b *testing.B) {
				n := openBench(b, nodes, flush)[0]
				ctx, r := context.Background(), quorumlog.Record{Value: make([]byte, benchValue)}
				_, err := n.Produce(ctx, "bench", r)
				require.NoError(b, err)
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N {
					if _, err := n.Produce(ctx, "bench", r); err != nil {
						b.Fatal(err)
					}
				}
				perSecond(b)
			})
		}
	}
}

func BenchmarkTCP(b *testing.B) {
	for name, flush := range flushes {
		b.Run("SendAsync/"+name, func(b *testing.B) {
			all := openBenchTCP(b, flush)
			fill(b, all[0], 1)
			b.ReportAllocs()
			b.ResetTimer()
			fill(b, all[0], b.N)
			perSecond(b)
		})
		b.Run("OneAtATime/"+name, func(b *testing.B) {
			n := openBenchTCP(b, flush)[0]
			ctx, r := context.Background(), quorumlog.Record{Value: make([]byte, benchValue)}
			_, err := n.Produce(ctx, "bench", r)
			require.NoError(b, err)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if _, err := n.Produce(ctx, "bench", r); err != nil {
					b.Fatal(err)
				}
			}
			perSecond(b)
		})
	}
}

func BenchmarkRead(b *testing.B) {
	n := openBench(b, 1, quorumlog.FlushNever)[0]
	fill(b, n, b.N)
	b.ReportAllocs()
	b.ResetTimer()
	got := 0
	for _, err := range n.Read(context.Background(), "bench", quorumlog.UntilEnd()) {
		if err != nil {
			b.Fatal(err)
		}
		got++
	}
	require.Equal(b, b.N, got)
	perSecond(b)
}

func BenchmarkGroup(b *testing.B) {
	n := openBench(b, 1, quorumlog.FlushNever)[0]
	fill(b, n, b.N)
	ctx := context.Background()
	g, err := n.Group(ctx, "bench", []string{"bench"}, quorumlog.GroupConfig{})
	require.NoError(b, err)
	b.ReportAllocs()
	b.ResetTimer()
	for got := 0; got < b.N; {
		batch, err := g.Poll(ctx)
		if err != nil {
			b.Fatal(err)
		}
		got += len(batch.Records)
		if err := g.Commit(ctx, batch); err != nil {
			b.Fatal(err)
		}
	}
	perSecond(b)
	require.NoError(b, g.Close(ctx))
}

func BenchmarkRun(b *testing.B) {
	n := openBench(b, 1, quorumlog.FlushNever)[0]
	fill(b, n, b.N)
	ctx := context.Background()
	g, err := n.Group(ctx, "bench", []string{"bench"}, quorumlog.GroupConfig{})
	require.NoError(b, err)
	b.ReportAllocs()
	b.ResetTimer()
	got, done := 0, errors.New("done")
	err = g.Run(ctx, func(context.Context, quorumlog.Record) error {
		if got++; got == b.N {
			return done
		}
		return nil
	})
	require.ErrorIs(b, err, done)
	perSecond(b)
	require.NoError(b, g.Close(ctx))
}
