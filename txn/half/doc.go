// Package half keeps half messages: records that are stored and unseen until a
// local transaction somewhere else has decided about them.
//
//	store ──▶ half ──┬─ commit ───▶ committed ──▶ appended to its topic ──▶ done
//	                 ├─ rollback ─▶ done
//	                 └─ unknown, or no decision: checked back
//
// A half message that nobody has decided about is handed to an instance of its
// producer group, whichever asks first, when it is due: by default 6 s after it was
// stored, then every 30 s. Each time counts as a check; after 15 of them the group's
// policy ends it: rollback, commit, or park, which keeps it until somebody decides by
// hand. While no instance asks, nothing is counted and it stays half.
//
// The first decision counts. Whoever decides later is told what it was.
//
// A half message is in a topic of the cluster's own, so it holds nobody back in the
// topic it is for.
//
// # Appended once
//
// With the decision to commit, the record gets a sequence of the producer that this
// coordinator has for the target partition, its lane, in the same batch of the log.
// It is appended under that producer and sequence until it is there, by the next
// leader if need be, and the partition knows it when it comes again. If the partition
// has forgotten the producer the lane goes on under a new one.
//
// # Records
//
// All messages of a producer group are in one partition of __half_messages, which is
// kept short (fold.Compaction). Keys and
// values are JSON; a version, v, that is not known stops the fold. The last record of
// a key counts, one without a value deletes it. Times are ms since 1970.
//
//	key                                    value
//	{"k":"half","g":"orders","id":"X"}     {"v":1,"state":"half","topic":"t","partition":0,"record":{…},
//	                                        "policy":"rollback","tries":2,"due":…,"first":6000,"every":30000,"most":15}
//	                                       state "committed": "seq":3 of the lane; "parked"; "rolled-back" and
//	                                       "delivered" hold no record and are deleted after a day
//	{"k":"lane","t":"t","p":0}             {"v":1,"pid":7,"next":4}
package half
