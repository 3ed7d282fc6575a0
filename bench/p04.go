package main

import "github.com/quorumlog/quorumlog"

func p4() scenario {
	return scenario{"P4", "3 nodes, 3 copies, async produce, no fsync", []row{
		{"quorumlog", "FlushNever, AckQuorum", cachedQuorum, withQuorum(3, quorumlog.FlushNever, sendAsync)},
	}}
}
