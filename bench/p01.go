package main

import "github.com/quorumlog/quorumlog"

func p1() scenario {
	return scenario{"P1", "1 node, 1 partition, async produce, no fsync", []row{
		{"quorumlog", "FlushNever", cachedOne, withQuorum(1, quorumlog.FlushNever, sendAsync)},
		{"franz-go + kfake", "files, no compression, no linger", cachedFiles, withKafka(cachedFiles, kafkaAsync)},
		{"franz-go + kfake", "memory, no compression, no linger", inMemory, withKafka(inMemory, kafkaAsync)},
	}}
}
