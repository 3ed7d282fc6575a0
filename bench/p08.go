package main

import (
	"context"
	"fmt"
	"time"

	"github.com/quorumlog/quorumlog"
)

func p8() scenario {
	return scenario{id: "P8", title: "plain read of everything, page cache, 1 partition", unit: recordsPerSecond, rows: []row{
		{"quorumlog", "Node.Read, UntilEnd", pageCacheRead, goal{}, withQuorum(1, quorumlog.FlushNever, read)},
		{"franz-go + kfake", "memory, 8 MiB fetches", inMemory, times(2), withKafka(inMemory, kafkaRead(""))},
		{"franz-go + kfake", "files, 8 MiB fetches", pageCacheRead, goal{}, withKafka(cachedFiles, kafkaRead(""))},
		{"NATS R1, ordered consumer", "files, 5,000 messages a pull", pageCacheRead, times(15), withNATS(1, unsynced, natsRead)},
	}}
}

// read writes for e.duration, then reads all of it.
func read(ctx context.Context, e env, n *quorumlog.Node) (sample, error) {
	filled, err := sendAsync(ctx, e, n)
	if err != nil {
		return sample{}, err
	}
	e.prepared()
	s, err := readAll(ctx, e, n)
	if err == nil && s.records < filled.records {
		err = fmt.Errorf("read %d of %d records", s.records, filled.records)
	}
	return s, err
}

func readAll(ctx context.Context, e env, n *quorumlog.Node) (sample, error) {
	began, got := time.Now(), 0
	for r, err := range n.Read(ctx, topic, quorumlog.UntilEnd()) {
		if err != nil {
			return sample{}, err
		}
		if len(r.Value) != e.size {
			return sample{}, fmt.Errorf("record %d has %d bytes, not %d", r.Offset, len(r.Value), e.size)
		}
		got++
	}
	return sample{records: got, took: time.Since(began)}, nil
}
