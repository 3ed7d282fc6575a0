package main

import "github.com/quorumlog/quorumlog"

func p4() scenario {
	return scenario{"P4", "3 nodes, 3 copies, async produce, no fsync", []row{
		{"quorumlog", "FlushNever, AckQuorum", cachedQuorum, withQuorum(3, quorumlog.FlushNever, sendAsync)},
		{"NATS R3, fast batch publish", "files, sync every 2 min, flow 500 x 3", natsCachedQuorum, withNATS(3, false, natsFast)},
		{"NATS R3, async publish", "files, sync every 2 min, 10,000 pending", natsCachedQuorum, withNATS(3, false, natsAsync)},
	}}
}
