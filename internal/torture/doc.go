// Package torture runs a whole cluster in one process, breaks it again and
// again, and checks every promise about what was written and read. It is a tool
// of tests:
//
//	go test ./internal/torture -run Torture -duration 10m -nodes 5 -seed 7 -v
//
// # The run
//
// Each node stands on a disk of its own that can lose power, fill up and fail
// (vfs.Mem), on a vote store that outlives it, and on one faulty network
// (transport.Network, or sockets with -tcp). Segments are small, so they roll all the time.
//
//	fleet     the machines: start, stop, loss of power, replacement
//	chaos     one goroutine that injects faults, by seed, and mends them
//	writers   idempotent producers; every value is unique
//	tellers   transactions over several partitions, some of them aborted or left open
//	readers   plain readers, each partition through several nodes
//	members   consumer groups whose members come, commit, go and crash
//	history   all of the above tell it what they did and saw; it knows what is wrong
//	verify    the end: heal, everybody must finish, read all again through every
//	          node, also after a loss of power everywhere, and compare the disks
//
// At most a minority of the nodes is broken at a time, but for short moments. By
// the seed, records are synced late or never; then one machine at a time loses power.
//
// # What is checked
//
// See the Violation kinds. A run is not repeatable to the letter, because
// goroutines run as they like; the seed repeats the faults and their order. A
// failure therefore comes with a story: the last steps and what nodes logged.
//
// Config has seams through which a test can wrap a disk or a client in one that
// breaks a promise on purpose: so the checker itself is tested.
package torture
