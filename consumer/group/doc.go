// Package group is the coordinator of consumer groups: who is a member, who
// owns which partition, and from where a group resumes.
//
// The rules are plain functions of the state, a request and the time; they
// return the records to write and the answer. [State] is the fold of those
// records. [Coordinator] is the shell around both: it runs a decision under the
// fold, so that the answer is given when its records are on a quorum, and it
// keeps the sessions.
//
// # How partitions move
//
// The coordinator computes the target, who should have what. Each change of it
// begins a generation. A partition goes to the one who should have it when its
// last owner has given it up:
//
//	a joins      target {a: 0 1}       owners {0: a, 1: a}   generation 1
//	b joins      target {a: 0, b: 1}   owners {0: a, 1: a}   generation 2
//	a heartbeat  generation 1, owns 0 1
//	             assigned 0            a stops reading 1, may still commit
//	b heartbeat  assigned none
//	a heartbeat  generation 2, owns 0  owners {0: a}         1 is given up
//	b heartbeat  assigned 1            owners {0: a, 1: b}   since generation 2
//
// So no partition ever has two owners, those that stay are never interrupted,
// and an owner can commit what it has read until it gives up. An owner that is
// not heard of for its session timeout is no member any more, and what it owned
// is free.
//
// What a heartbeat leaves out counts as given up only if the member has heard
// of the current generation. Else a heartbeat that was delayed in the network
// since before the partition was granted would take it from a member that reads
// it.
//
// # Members that come back
//
// A static member names an instance. Whoever joins with the instance of a member
// takes its place in target and owners, in a generation of its own; the id it had
// is no member any more. So a restart within the session timeout moves nothing.
// A client that joins again after it was fenced, or has heard nothing, names the id
// it had: if that is a member still, it gives its place up in the same decision.
// So a client is never two members, whatever answers were lost.
//
// # Fencing
//
// Each owner has its partition since a generation. A commit names a member and
// the generation in which the member held what it read, and is refused with
// *[record.FencedError] unless that member owns the partition without a break
// since then: a commit cannot reach behind a time when somebody else had the
// partition, also not when its sender has it again. Committed offsets do not go
// back, unless a commit says that it wants to ([Request].Rewind).
//
// A node that was replaced as leader, and does not know it yet, can do no harm:
// what it decides is not written. It refuses members that have heard of a later
// generation, and committed offsets are looked up only after asking a quorum.
//
// # Topics that grow
//
// Heartbeats notice partitions that a topic has got since. The decision that gives
// them to members commits their start too, so that no member begins behind records
// that came after the group did. That holds as well when nobody was there as the topic
// grew, as long as the group has offsets in it.
//
// # Transactions
//
// A transaction's offsets are pending until its coordinator settles them: then they
// count, all of them, or are forgotten. Meanwhile nobody is told where to resume in
// their partitions. What a producer has ended here is remembered for a day, so that
// what is late of it is refused.
//
// # Sessions
//
// Deadlines are in the leader's memory and written nowhere. A heartbeat that
// changes nothing writes nothing. A new leader gives every member a fresh
// session: nobody expires because of a failover.
//
// # What nobody needs
//
// The offsets of a group without members are forgotten [Config].OffsetsRetention
// after the last member went, or after they were committed if that was later. While
// a group has members all its offsets stay, however old they are. With the last of
// its offsets the group is forgotten (KIP-211), unless it remembers a transaction that
// is open or ended less than a day ago. Who joins it then begins at generation 1. A
// member of before is none, as every membership has an id of its own.
//
// # Records
//
// All records of a group are in one partition of __consumer_offsets; each
// decision is one batch, true as a whole or not at all. The last record of a
// key counts, one without a value deletes it. Keys and values are JSON; values
// carry the version of their format, v, and one that is not known stops the
// fold. Fields that are not known are passed over.
//
//	key                                        value, version 1
//	{"k":"group","g":"billing"}                {"v":1,"gen":2,"topics":{"orders":2},"made":{"orders":7},"target":{"a":{"orders":[0]},"b":{"orders":[1]}}}
//	{"k":"member","g":"billing","m":"a"}       {"v":1,"client":"host-7","topics":["orders"],"session":10000,"assignor":"range","instance":"pod-3"}
//	{"k":"owner","g":"billing","t":"orders"}   {"v":1,"member":"a","since":1}
//	{"k":"offset","g":"billing","t":"orders","p":1}
//	                                           {"v":1,"topicID":"32 hex digits","offset":42,"metadata":"note"}
//	{"k":"pending","g":"billing","pid":7}      {"v":1,"open":true,"epoch":3,"coordinator":0,"time":…,"offsets":[{"Topic":"orders","Partition":1,"Offset":42}]}
//
// topics are the numbers of partitions that the target was made for, and those of
// topics that nobody reads now and that have offsets; made says of which topics of
// those names (Config.Made); session is
// in milliseconds, 0 for the coordinator's default. Fields that are empty or
// zero are left out of keys, so partition 0 has no p, and out of client,
// instance, assignor and metadata.
//
// The log is kept short ([fold.Compaction]): what a group is made of is written again
// now and then. An offset's record then has the time of its commit, and the group's says
// in empty, ms since 1970, when a member went last, if one has.
package group
