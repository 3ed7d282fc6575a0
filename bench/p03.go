package main

import "github.com/quorumlog/quorumlog"

func p3() scenario {
	return scenario{id: "P3", title: "3 nodes, 3 copies, async produce, fsync", unit: recordsPerSecond, rows: []row{
		{"quorumlog", "FlushEach, AckQuorum", syncedQuorum, goal{}, withQuorum(3, quorumlog.FlushEach, sendAsync)},
		{"NATS R3, fast batch", "files, sync_always, flow 500 x 3", natsSyncedQuorum, times(20), withNATS(3, synced, natsFast)},
		{"NATS R3, async", "files, sync_always, 10,000 pending", natsSyncedQuorum, times(20), withNATS(3, synced, natsAsync)},
		{"NATS R3, fast batch", "files, flow 500 x 3", natsCachedQuorum, times(5), withNATS(3, unsynced, natsFast)},
		{"NATS R3, async", "files, 10,000 pending", natsCachedQuorum, times(5), withNATS(3, unsynced, natsAsync)},
		{"raft + raft-wal", raftReady, syncedRaft, times(0.7), withRaft(openRaftWAL, raftStream)},
		{"raft + raft-boltdb", raftReady, syncedRaft, goal{}, withRaft(openRaftBolt, raftStream)},
	}}
}
