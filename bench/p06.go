package main

import "github.com/quorumlog/quorumlog"

func p6() scenario {
	return scenario{id: "P6", title: "3 nodes, one record in flight, no fsync", unit: recordsPerSecond, by: byP50, rows: []row{
		{"quorumlog", "FlushNever", cachedQuorum, goal{}, withQuorum(3, quorumlog.FlushNever, produce)},
		{"NATS R3, sync publish", "files", natsCachedQuorum, within(0.5), withNATS(3, unsynced, natsSync)},
	}}
}
