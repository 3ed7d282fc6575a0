package main

import (
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quorumlog/quorumlog"
)

func p1() scenario {
	return scenario{id: "P1", title: "1 node, 1 partition, async produce, no fsync", unit: recordsPerSecond, rows: []row{
		{"quorumlog", "FlushNever", cachedOne, goal{}, withQuorum(1, quorumlog.FlushNever, sendAsync)},
		{"franz-go + kfake", "files, no linger", cachedFiles, times(1.2), withKafka(cachedFiles, kafkaAsync)},
		{"franz-go + kfake", "files, no linger, 100,000 buffered", cachedFiles, times(1.2), withKafka(cachedFiles, kafkaAsync, kgo.MaxBufferedRecords(100_000))},
		{"franz-go + kfake", "memory, no linger", inMemory, goal{}, withKafka(inMemory, kafkaAsync)},
		{"NATS R1, fast batch", "files, flow 500 x 3", natsCachedOne, times(10), withNATS(1, unsynced, natsFast)},
		{"NATS R1, async", "files, 10,000 pending", natsCachedOne, times(10), withNATS(1, unsynced, natsAsync)},
		{"NATS R1, fast batch", "files, persist_mode async, flow 500 x 3", natsBuffered, times(10), withNATS(1, buffered, natsFast)},
		{"tidwall/wal", storeLot + ", NoSync", cachedOne, goal{}, withStore(openTidwall, false, storeLots)},
		{"bbolt", storeLot + ", NoSync", cachedOne, goal{}, withStore(openBolt, false, storeLots)},
		{"pebble", storeLot + ", NoSync", pebbleBuffered, goal{}, withStore(openPebble, false, storeLots)},
	}}
}
