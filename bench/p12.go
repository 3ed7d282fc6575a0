package main

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlog/quorumlog"
)

func p12() scenario {
	return scenario{id: "P12", title: "3 nodes, fsync, concurrent callers of Produce", unit: recordsPerSecond, rows: []row{
		{"quorumlog, 64 callers", "FlushEach", syncedQuorum, goal{}, withQuorum(3, quorumlog.FlushEach, callers(64))},
		{"quorumlog, 1 caller", "FlushEach", syncedQuorum, times(20), withQuorum(3, quorumlog.FlushEach, callers(1))},
	}}
}

func callers(count int) func(context.Context, env, *quorumlog.Node) (sample, error) {
	return func(ctx context.Context, e env, n *quorumlog.Node) (sample, error) {
		each := make([]sample, count)
		g, ctx := errgroup.WithContext(ctx)
		for i := range each {
			g.Go(func() (err error) {
				each[i], err = produce(ctx, e, n)
				return err
			})
		}
		err := g.Wait()
		return together(each), err
	}
}
