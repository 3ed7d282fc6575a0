package main

import "github.com/quorumlog/quorumlog"

func p3() scenario {
	return scenario{"P3", "3 nodes, 3 copies, async produce, fsync", []row{
		{"quorumlog", "FlushEach, AckQuorum", syncedQuorum, withQuorum(3, quorumlog.FlushEach, sendAsync)},
		{"NATS R3, fast batch publish", "files, sync_always, flow 500 x 3", natsSyncedQuorum, withNATS(3, true, natsFast)},
		{"NATS R3, async publish", "files, sync_always, 10,000 pending", natsSyncedQuorum, withNATS(3, true, natsAsync)},
		{"NATS R3, fast batch publish, unsynced", "files, sync every 2 min, flow 500 x 3", natsCachedQuorum, withNATS(3, false, natsFast)},
	}}
}
