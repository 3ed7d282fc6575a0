// Package cluster makes nodes into one: topics, where their partitions lie, and
// the way from any node to a partition's leader. It knows nothing of Raft.
//
// # Metadata
//
// Every node holds a replica of the topic __cluster_metadata (one partition,
// a topic id that never changes) and folds its records into the same state:
//
//	key               value (JSON; "v" is its version)
//	topic/NAME        {"v":1,"topic":{"config":{…},"id":"32 hex digits","placement":[["a","b"],…]}}
//	producer-ids      {"v":1,"next":2000}
//	producer/NAME     {"v":1,"id":7,"epoch":3,"renewed":{"id":7,"epoch":2}}
//
// placement names the nodes of each partition, the one that should lead first.
// No producer has an id from next on. The leader of the metadata partition
// decides: it computes the records that make a request true from the state, as
// pure functions, and appends them fenced by its epoch (internal/fold). A
// request carries what makes a second try the same request, so a lost answer
// is asked for again.
//
// A lookup that finds a topic uses what the node knows. One that does not asks
// the metadata leader how far it must fold, so "unknown topic" is never stale.
//
// # Partitions on a node
//
// A node opens a replica of every partition that is placed on it, under
// Dir/partitions/TOPIC.HHHHHHHH-N, where H are the first digits of the topic id
// and N is the partition. Beside the replicas of __consumer_offsets it runs the
// coordinator of the groups whose names hash to that partition.
//
// Every Config.RetentionInterval the node has the replicas that it leads apply their
// topic's retention, one after the other: one timer a node, none a partition.
// The cluster's own topics keep everything.
//
// # Routing
//
// A request goes straight to the replica if this node leads, else to the
// leader's node. Who leads is known from the node's own replica, from what
// *record.NotLeaderError said, and otherwise by asking the other replicas; the
// newest epoch counts. Append tries once. Everything else waits for the next
// leader and tries again until its context ends; the error then says what was
// waited for, and what came of the last try.
//
// # Messages
//
// Integers are big-endian. A partition is its topic's id and its number (u32).
//
//	service  request                                                    answer
//	1 raft   package replica
//	2 append topic id 16 | partition u32 | acks u8 | 0 0 0 | batch      base offset i64 | leader epoch i32 | duplicate u8
//	3 fetch  topic id 16 | partition u32 | from i64 | max bytes u32 |   start i64 | last stable i64 |
//	         wait ms u32 | isolation u8                                 high watermark i64 | next i64 | batches
//	4 other  JSON                                                       JSON
//
// An answer begins with a byte: 0, or 1 when an error follows as JSON: its
// code, its text and its facts, so that it arrives as the typed error it was.
//
// # Concurrency
//
// All methods of Node may be called at once. No lock is held while waiting.
// Close ends every call with record.ErrClosed.
package cluster
