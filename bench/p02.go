package main

import "github.com/quorumlog/quorumlog"

func p2() scenario {
	return scenario{id: "P2", title: "1 node, 1 partition, async produce, fsync", unit: recordsPerSecond, rows: []row{
		{"quorumlog", "FlushEach", syncedOne, goal{}, withQuorum(1, quorumlog.FlushEach, sendAsync)},
		{"quorumlog, as P1", "FlushNever", cachedOne, times(0.5), withQuorum(1, quorumlog.FlushNever, sendAsync)},
		{"franz-go + kfake", "files, SyncWrites, no linger", syncedFiles, goal{}, withKafka(syncedFiles, kafkaAsync)},
		{"NATS R1, fast batch", "files, sync_always, flow 500 x 3", natsSyncedOne, times(20), withNATS(1, synced, natsFast)},
		{"NATS R1, async", "files, sync_always, 10,000 pending", natsSyncedOne, times(20), withNATS(1, synced, natsAsync)},
		{"tidwall/wal", storeLot, syncedStore, goal{}, withStore(openTidwall, true, storeLots)},
		{"bbolt", storeLot, syncedStore, goal{}, withStore(openBolt, true, storeLots)},
		{"pebble", storeLot + ", Sync", syncedStore, goal{}, withStore(openPebble, true, storeLots)},
	}}
}
