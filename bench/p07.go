package main

import "github.com/quorumlog/quorumlog"

func p7() scenario {
	return scenario{"P7", "3 nodes, one record in flight, fsync", []row{
		{"quorumlog", "FlushEach", syncedQuorum, withQuorum(3, quorumlog.FlushEach, produce)},
		{"NATS R3, sync publish", "files, sync_always", natsSyncedQuorum, withNATS(3, true, natsSync)},
	}}
}
