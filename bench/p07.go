package main

import "github.com/quorumlog/quorumlog"

func p7() scenario {
	return scenario{id: "P7", title: "3 nodes, one record in flight, fsync", unit: recordsPerSecond, by: byP50, rows: []row{
		{"quorumlog", "FlushEach", syncedQuorum, goal{}, withQuorum(3, quorumlog.FlushEach, produce)},
		{"NATS R3, sync publish", "files, sync_always", natsSyncedQuorum, within(0.7), withNATS(3, synced, natsSync)},
		{"raft + raft-wal", "entries of one record", syncedRaft, within(1.1), withRaft(openRaftWAL, raftOnes)},
		{"raft + raft-boltdb", "entries of one record", syncedRaft, goal{}, withRaft(openRaftBolt, raftOnes)},
	}}
}
