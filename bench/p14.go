package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/quorumlog/quorumlog"
	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/segment"
)

// What is configured, or fixed, in P3: records that are not settled yet
// (ProducerConfig.BufferBytes), and the newest entries of each replica (package replica).
const (
	producerBuffer = 32 << 20
	replicaBuffer  = 8 << 20
	configured     = producerBuffer + 3*replicaBuffer
)

func p14() []scenario {
	const live = "/gc/heap/live:bytes"
	return []scenario{
		{id: "P14/memory", title: "memory that P3 takes at the most while it runs", unit: mebibytes, rows: []row{
			{"quorumlog, live heap", "as P3", syncedQuorum, goal{}, heap(live)},
			{"configured buffers", "32 MiB of the producer, 3 x 8 MiB of the replicas", inPlace, within(1), func(context.Context, env) (sample, error) {
				return sample{records: 1, took: 1, figure: configured}, nil
			}},
			{"quorumlog, heap with garbage", "as P3", syncedQuorum, goal{}, heap("/memory/classes/heap/objects:bytes")},
		}},
		{id: "P14/allocations", title: "allocations for each batch or fetch", unit: allocations, by: byNothing, rows: []row{
			{"quorumlog, batch: two hops", "as P1: producer, leader", cachedOne, atMost(4), batchAllocations(1)},
			{"quorumlog, batch: a follower", "as P4, what it takes more, halved", cachedQuorum, atMost(2), followerAllocations},
			{"quorumlog, fetch of 1 MiB", "Node.Read, UntilEnd", pageCacheRead, atMost(2), fetchAllocations},
		}},
	}
}

// heap runs P3 and returns the most of a figure of the runtime, less what it was before.
func heap(name string) func(context.Context, env) (sample, error) {
	return func(ctx context.Context, e env) (sample, error) {
		read := func() float64 {
			all := []metrics.Sample{{Name: name}}
			metrics.Read(all)
			return float64(all[0].Value.Uint64())
		}
		runtime.GC()
		runtime.GC() // the second one has swept what the first found
		before, most := read(), 0.0
		return withQuorum(3, quorumlog.FlushEach, func(ctx context.Context, e env, n *quorumlog.Node) (sample, error) {
			ended := make(chan struct{})
			var watch sync.WaitGroup
			watch.Go(func() {
				tick := time.NewTicker(time.Millisecond)
				defer tick.Stop()
				for {
					most = max(most, read())
					select {
					case <-tick.C:
					case <-ended:
						return
					}
				}
			})
			s, err := sendAsync(ctx, e, n)
			close(ended)
			watch.Wait()
			s.figure = max(0, most-before)
			return s, err
		})(ctx, e)
	}
}

// mallocs returns how many objects the process has allocated.
func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

// batchAllocations streams records to so many nodes and returns what a batch takes.
func batchAllocations(nodes int) func(context.Context, env) (sample, error) {
	return func(ctx context.Context, e env) (sample, error) {
		var took uint64
		s, err := withQuorum(nodes, quorumlog.FlushNever, func(ctx context.Context, e env, n *quorumlog.Node) (sample, error) {
			if _, err := sendAsync(ctx, e, n); err != nil { // buffers have grown
				return sample{}, err
			}
			before := mallocs()
			s, err := sendAsync(ctx, e, n)
			took = mallocs() - before
			return s, err
		})(ctx, e)
		if err != nil {
			return sample{}, err
		}
		batches, err := countBatches(ctx, filepath.Join(e.dir, "0"))
		s.figure = float64(took) / (batches / 2)
		return s, err
	}
}

// countBatches returns how many batches a node's partition has, all of which are there
// after Close.
func countBatches(ctx context.Context, dir string) (float64, error) {
	files, err := segmentFiles(dir)
	if err != nil {
		return 0, err
	}
	f, err := os.Open(files[0])
	if err != nil {
		return 0, err
	}
	begin := make([]byte, segment.HeaderSize)
	if _, err := io.ReadFull(f, begin); err != nil {
		return 0, errors.Join(err, f.Close())
	}
	h, err := segment.DecodeHeader(begin)
	if err := errors.Join(err, f.Close()); err != nil {
		return 0, err
	}
	l, err := log.Open(ctx, filepath.Dir(files[0]), log.Config{FS: vfs.OS, TopicID: h.TopicID})
	if err != nil {
		return 0, err
	}
	b := l.Bounds()
	return float64(b.Next - b.First), l.Close()
}

func followerAllocations(ctx context.Context, e env) (sample, error) {
	one, err := batchAllocations(1)(ctx, e.in("1"))
	if err != nil {
		return sample{}, err
	}
	s, err := batchAllocations(3)(ctx, e.in("3"))
	s.figure = max(0, s.figure-one.figure) / 2
	return s, err
}

// fetchAllocations writes for e.duration, then returns what reading takes for each
// fetch of 1 MiB.
func fetchAllocations(ctx context.Context, e env) (sample, error) {
	return withQuorum(1, quorumlog.FlushNever, func(ctx context.Context, e env, n *quorumlog.Node) (sample, error) {
		if _, err := sendAsync(ctx, e, n); err != nil {
			return sample{}, err
		}
		before := mallocs()
		s, err := readAll(ctx, e, n)
		fetches := max(1, float64(s.records*e.size)/(1<<20))
		s.figure = float64(mallocs()-before) / fetches
		return s, err
	})(ctx, e)
}
