package main

import "github.com/quorumlog/quorumlog"

func p5() scenario {
	return scenario{"P5", "1 node, one record in flight, no fsync", []row{
		{"quorumlog", "FlushNever", cachedOne, withQuorum(1, quorumlog.FlushNever, produce)},
		{"franz-go + kfake", "files, ProduceSync, no linger", cachedFiles, withKafka(cachedFiles, kafkaSync)},
		{"NATS R1, sync publish", "files, sync every 2 min", natsCachedOne, withNATS(1, false, natsSync)},
	}}
}
