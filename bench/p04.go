package main

import "github.com/quorumlog/quorumlog"

func p4() scenario {
	return scenario{id: "P4", title: "3 nodes, 3 copies, async produce, no fsync", unit: recordsPerSecond, rows: []row{
		{"quorumlog", "FlushNever, AckQuorum", cachedQuorum, goal{}, withQuorum(3, quorumlog.FlushNever, sendAsync)},
		{"NATS R3, fast batch", "files, flow 500 x 3", natsCachedQuorum, times(10), withNATS(3, unsynced, natsFast)},
		{"NATS R3, async", "files, 10,000 pending", natsCachedQuorum, times(10), withNATS(3, unsynced, natsAsync)},
	}}
}
