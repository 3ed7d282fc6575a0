package main

import "github.com/quorumlog/quorumlog"

func p2() scenario {
	return scenario{"P2", "1 node, 1 partition, async produce, fsync", []row{
		{"quorumlog", "FlushEach", syncedOne, withQuorum(1, quorumlog.FlushEach, sendAsync)},
		{"franz-go + kfake", "files, SyncWrites, no compression, no linger", syncedFiles, withKafka(syncedFiles, kafkaAsync)},
		{"quorumlog, as P1", "FlushNever", cachedOne, withQuorum(1, quorumlog.FlushNever, sendAsync)},
	}}
}
