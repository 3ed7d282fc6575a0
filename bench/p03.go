package main

import "github.com/quorumlog/quorumlog"

func p3() scenario {
	return scenario{"P3", "3 nodes, 3 copies, async produce, fsync", []row{
		{"quorumlog", "FlushEach, AckQuorum", syncedQuorum, withQuorum(3, quorumlog.FlushEach, sendAsync)},
	}}
}
