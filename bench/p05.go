package main

import "github.com/quorumlog/quorumlog"

func p5() scenario {
	return scenario{id: "P5", title: "1 node, one record in flight, no fsync", unit: recordsPerSecond, by: byP50, rows: []row{
		{"quorumlog", "FlushNever", cachedOne, goal{}, withQuorum(1, quorumlog.FlushNever, produce)},
		{"NATS R1, sync publish", "files", natsCachedOne, within(1), withNATS(1, unsynced, natsSync)},
		{"franz-go + kfake", "files, ProduceSync, no linger", cachedFiles, goal{}, withKafka(cachedFiles, kafkaSync)},
		{"tidwall/wal", "Write, NoSync", cachedOne, goal{}, withStore(openTidwall, false, storeOnes)},
		{"bbolt", "Update, NoSync", cachedOne, goal{}, withStore(openBolt, false, storeOnes)},
		{"pebble", "Set, NoSync", pebbleBuffered, goal{}, withStore(openPebble, false, storeOnes)},
	}}
}
