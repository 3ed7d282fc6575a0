// Package cluster makes nodes into one: topics, where their partitions lie, and
// the way from any node to a partition's leader. It knows nothing of Raft.
//
// # Metadata
//
// Every node holds a replica of the topic __cluster_metadata (one partition,
// a topic id that never changes) and folds its records into the same state:
//
//	key               value (JSON; "v" is its version)
//	node/ID           {"v":1,"state":"active"}, or "draining", or "removed"
//	topic/NAME        {"v":1,"topic":{"config":{…},"id":"32 hex digits","placement":[["a","b"],…]}}
//	topic/NAME        the same id, and a longer placement: the topic has got partitions
//	topic/NAME        none: the topic is deleted
//	partition/ID/N    {"v":1,"replicas":["a","b","d"],"from":["a","b"],"target":["d","b"],"version":2}
//	producer-ids      {"v":1,"next":2000}
//	producer/NAME     {"v":1,"id":7,"epoch":3,"renewed":{"id":7,"epoch":2}}
//
// placement names the nodes of each partition as it begins, the one that should
// lead first; a partition record is newer. The first decision of all names the
// founders as nodes.
// No producer has an id from next on. The leader of the metadata partition
// decides: it computes the records that make a request true from the state, as
// pure functions, and appends them fenced by its epoch (internal/fold). A
// request carries what makes a second try the same request, so a lost answer
// is asked for again.
//
// A lookup that finds a topic uses what the node knows. One that does not asks
// the metadata leader how far it must fold, so "unknown topic" is never stale.
//
// # Membership
//
// A node joins (Config.Join) as a learner of the metadata partition, and becomes
// one of its voters while there are fewer than five. A partition moves in steps
// that the leader of the metadata partition takes, one for each look at two
// things: what is decided, and who is in the partition's group.
//
//	decided    Reassign, DrainNode, …: a target                  partition record
//	announce   the node may open a replica, which waits          partition record
//	join       the node becomes a learner                        the group's log
//	promote    it has caught up and becomes a voter              the group's log
//	remove     an old one leaves, the leader after a transfer    the group's log
//	forget     that node closes its replica and deletes it       partition record
//	           … and so on, one copy more before one less …
//	arrived    replicas are the target; its first one leads      partition record
//
// So replicas is at every moment at least who is in the group, and a node that is
// not in it may delete what it has. Who leads the metadata partition next looks at
// the same two things and goes on. A step carries the version of the decision that
// it is of, and a late one is refused. Steps that would lose a quorum or the last
// copy are refused by package replica, and tried again; Moves says why they wait.
//
// A deleted topic's id is never used again. Whoever still means it, by its id, is
// refused; a topic of the same name is another one.
//
// # Partitions on a node
//
// A node opens a replica of every partition that is placed on it, under
// Dir/partitions/TOPIC.HHHHHHHH-N, where H are the first digits of the topic id
// and N is the partition. What has gone from the node is renamed to end in
// ".deleted" and then deleted, after a start too. Beside a replica of one of the
// cluster's own topics it runs the coordinator of what hashes to that partition: groups
// (__consumer_offsets), transactional ids (__transaction_state), half messages of
// producer groups (__half_messages). Each is a fold of its partition, and the leader's
// answers.
//
// A transaction's coordinator opens it in the partitions that join it, ends it there
// with markers, and settles the offsets of its groups, by requests like any other: to
// the leader of each, until they are answered.
//
// Every Config.RetentionInterval the node has the replicas that it leads apply their
// topic's retention, one after the other: one timer a node, none a partition.
// The cluster's own topics have none: coordinators write what they know again at the
// end of their log, and what is before is trimmed (package internal/fold). The metadata
// keeps everything.
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
