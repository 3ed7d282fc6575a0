package main

import "github.com/quorumlog/quorumlog"

func p1() scenario {
	return scenario{"P1", "1 node, 1 partition, async produce, no fsync", []row{
		{"quorumlog", "FlushNever", cachedOne, withQuorum(1, quorumlog.FlushNever, sendAsync)},
		{"franz-go + kfake", "files, no compression, no linger", cachedFiles, withKafka(cachedFiles, kafkaAsync)},
		{"franz-go + kfake", "memory, no compression, no linger", inMemory, withKafka(inMemory, kafkaAsync)},
		{"NATS R1, fast batch publish", "files, sync every 2 min, flow 500 x 3", natsCachedOne, withNATS(1, false, natsFast)},
		{"NATS R1, async publish", "files, sync every 2 min, 10,000 pending", natsCachedOne, withNATS(1, false, natsAsync)},
	}}
}
