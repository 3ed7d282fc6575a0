package main

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlog/quorumlog"
)

func p12() scenario {
	return scenario{"P12", "3 nodes, fsync, concurrent callers of Produce", []row{
		{"quorumlog, 64 callers", "FlushEach", syncedQuorum, withQuorum(3, quorumlog.FlushEach, callers(64))},
		{"quorumlog, 1 caller", "FlushEach", syncedQuorum, withQuorum(3, quorumlog.FlushEach, callers(1))},
	}}
}

func callers(count int) func(context.Context, env, *quorumlog.Node) (sample, error) {
	return func(ctx context.Context, e env, n *quorumlog.Node) (sample, error) {
		each := make([]sample, count)
		g, ctx := errgroup.WithContext(ctx)
		began := time.Now()
		for i := range each {
			g.Go(func() (err error) {
				each[i], err = produce(ctx, e, n)
				return err
			})
		}
		err := g.Wait()
		all := sample{took: time.Since(began)}
		for _, s := range each {
			all.records += s.records
			all.waits = append(all.waits, s.waits...)
		}
		return all, err
	}
}
