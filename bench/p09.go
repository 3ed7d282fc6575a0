package main

import (
	"context"
	"errors"
	"time"

	"github.com/quorumlog/quorumlog"
)

func p9() scenario {
	return scenario{id: "P9", title: "group of one member, default commits", unit: recordsPerSecond, rows: []row{
		{"quorumlog", "Group.Run, commits after the handler", pageCacheRead, goal{}, withQuorum(1, quorumlog.FlushNever, runGroup)},
		{"quorumlog, as P8", "Node.Read, UntilEnd", pageCacheRead, times(0.8), withQuorum(1, quorumlog.FlushNever, read)},
		{"franz-go + kfake", "memory, automatic commits, 8 MiB fetches", inMemory, goal{}, withKafka(inMemory, kafkaRead("bench"))},
	}}
}

var errEnd = errors.New("all read")

// runGroup writes for e.duration, then has a member handle all of it.
func runGroup(ctx context.Context, e env, n *quorumlog.Node) (sample, error) {
	filled, err := sendAsync(ctx, e, n)
	if err != nil {
		return sample{}, err
	}
	g, err := n.Group(ctx, "bench", []string{topic}, quorumlog.GroupConfig{})
	if err != nil {
		return sample{}, err
	}
	e.prepared()
	var began time.Time
	got := -1 // with the first record the member has joined
	err = g.Run(ctx, func(context.Context, quorumlog.Record) error {
		if got++; got == 0 {
			began = time.Now()
		}
		if got == filled.records {
			return errEnd
		}
		return nil
	})
	took := time.Since(began)
	if errors.Is(err, errEnd) {
		err = nil
	}
	return sample{records: got, took: took}, errors.Join(err, g.Close(ctx))
}
