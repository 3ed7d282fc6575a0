package main

import "github.com/quorumlog/quorumlog"

func p6() scenario {
	return scenario{"P6", "3 nodes, one record in flight, no fsync", []row{
		{"quorumlog", "FlushNever", cachedQuorum, withQuorum(3, quorumlog.FlushNever, produce)},
		{"NATS R3, sync publish", "files, sync every 2 min", natsCachedQuorum, withNATS(3, false, natsSync)},
	}}
}
