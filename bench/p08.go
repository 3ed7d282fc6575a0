package main

import (
	"context"
	"fmt"
	"time"

	"github.com/quorumlog/quorumlog"
)

func p8() scenario {
	return scenario{"P8", "plain read of everything, page cache, 1 partition", []row{
		{"quorumlog", "Node.Read, UntilEnd", pageCacheRead, withQuorum(1, quorumlog.FlushNever, read)},
		{"franz-go + kfake", "memory, 8 MiB fetches", inMemory, withKafka(inMemory, kafkaRead())},
		{"franz-go + kfake", "files, 8 MiB fetches", pageCacheRead, withKafka(cachedFiles, kafkaRead())},
		{"NATS R1, ordered consumer", "files, 5,000 messages a pull", pageCacheRead, withNATS(1, false, natsRead)},
	}}
}

// read writes for e.duration, then reads all of it.
func read(ctx context.Context, e env, n *quorumlog.Node) (sample, error) {
	filled, err := sendAsync(ctx, e, n)
	if err != nil {
		return sample{}, err
	}
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
	took := time.Since(began)
	if got < filled.records {
		return sample{}, fmt.Errorf("read %d of %d records", got, filled.records)
	}
	return sample{records: got, took: took}, nil
}
