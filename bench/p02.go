package main

import "github.com/quorumlog/quorumlog"

func p2() scenario {
	return scenario{"P2", "1 node, 1 partition, async produce, fsync", []row{
		{"quorumlog", "FlushEach", syncedOne, withQuorum(1, quorumlog.FlushEach, sendAsync)},
		{"franz-go + kfake", "files, SyncWrites, no compression, no linger", syncedFiles, withKafka(syncedFiles, kafkaAsync)},
		{"quorumlog, as P1", "FlushNever", cachedOne, withQuorum(1, quorumlog.FlushNever, sendAsync)},
		{"NATS R1, fast batch publish", "files, sync_always, flow 500 x 3", natsSyncedOne, withNATS(1, true, natsFast)},
		{"NATS R1, async publish", "files, sync_always, 10,000 pending", natsSyncedOne, withNATS(1, true, natsAsync)},
	}}
}
