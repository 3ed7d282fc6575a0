package main

import "github.com/quorumlog/quorumlog"

func p7() scenario {
	return scenario{"P7", "3 nodes, one record in flight, fsync", []row{
		{"quorumlog", "FlushEach", syncedQuorum, withQuorum(3, quorumlog.FlushEach, produce)},
	}}
}
