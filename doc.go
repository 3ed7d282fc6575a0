// Package quorumlog keeps partitioned, replicated logs inside the process that
// imports it: topics of partitions in segment files, replicated by one Raft
// group per partition, written by an idempotent producer and read by iterators
// and consumer groups. One node needs no port; several are the same API.
//
//	n, err := quorumlog.Open(dir, quorumlog.Config{})
//	if err != nil {
//		return err
//	}
//	defer n.Close()
//	if _, err := n.Produce(ctx, "orders", quorumlog.Record{Key: []byte("42"), Value: []byte("paid")}); err != nil {
//		return err
//	}
//	for r, err := range n.Read(ctx, "orders", quorumlog.FromStart(), quorumlog.UntilEnd()) {
//		if err != nil {
//			return err
//		}
//		fmt.Printf("%d %s\n", r.Offset, r.Value)
//	}
//
// # Promises
//
// Produce returns when the record is on disk, synced, on a majority of the
// partition's replicas. A reader sees only what has got that far, so it
// survives the loss of any minority of nodes. A retry after a leader change
// writes nothing twice: a partition knows its producers and the last batches of
// each. Where nobody can know whether a write was done, the error says so and
// matches ErrOutcomeUnknown.
//
// After a crash Open repairs what can be derived from the segment files, which
// alone are truth. Damage that cannot be repaired is an error that names the
// file and the offsets; nothing is cut away in silence.
//
// # A guest
//
// A node starts no process, opens no port but Config.Listen, installs no signal
// handler, and writes to no logger but the one in its Config. Several nodes live in one
// process. Close ends every goroutine that a node has started, and may be
// called more than once.
//
// # Floors
//
// The packages below this one are building blocks and may be used alone. Each
// imports only floors below its own; a test keeps it so.
//
//	txn                              transactions and half messages as a client sees them
//	producer, consumer               batching, positions, groups as a client sees them
//	cluster                          topics, placement, routing
//	replica                          one partition's Raft group on one node
//	consumer/group                   the rules of groups, without I/O
//	txn/coordinator, txn/half        the rules of transactions and half messages
//	log                              one partition's segments
//	segment, index                   one file of entries, and where things are in it
//	record, internal/vfs, transport  the bytes of a batch, the file system, the network
package quorumlog
