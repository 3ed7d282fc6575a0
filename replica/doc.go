// Package replica is one partition on one node: a member of its Raft group,
// whose log is the partition's log. It alone knows hashicorp/raft.
//
// # One write
//
// The Raft index is the entry number of package log, and there is no second
// copy of a record. A batch travels like this:
//
//	Append          checks it, marks it "not placed" (leader epoch -1), hands it to Raft
//	StoreLogs       on the leader: decides on idempotence against the log's tail, stamps
//	                base offset and epoch, appends, syncs by the flush policy, beside
//	                the followers (overlap.go)
//	                on a follower: verifies checksum, offset and epoch, appends, syncs
//	ApplyBatch      the quorum has it: moves the high watermark, wakes readers
//	settle          answers whoever called Append
//
// A batch that is refused in StoreLogs (a duplicate, out of order, fenced, of
// another epoch than asked for) becomes a Raft no-op, which takes no offset, so
// offsets stay dense. What StoreLogs has stored is never changed again: the
// ring of recent entries, requests under way, the state machine and followers in the
// same process share it.
//
// StoreLogs is the only place where order, tail and epoch are exact: a batch
// may wait in Raft's queue over a change of leadership, and a leadership
// transfer that fails refuses some batches and takes the ones behind them.
//
// # What an answer means
//
//	nil                        written as Acks asked for
//	*record.NotLeaderError     not written; ask there
//	*record.OutcomeUnknownError  placed in this leader's log, and then it lost
//	                           leadership or the caller stopped waiting
//	any other                  not written
//
// # Membership
//
// One replica at a time joins as a learner (AddLearner), becomes a voter when it
// has everything (Promote), or leaves (Remove). The leader refuses what would
// lose the quorum or the last copy, after asking the others what they have, and
// hands over before it leaves itself. The in-sync set, AckAll and the majority
// behind MinInSync follow the newest membership in the log. A replica that was
// removed and does not know it asks for votes in vain: the others know no such
// member, and no term rises.
//
// # Damage
//
// Raft does not run over a hole. A replica whose log has one asks the others for
// what is missing before Raft starts, and writes it where it was (mend.go); damage that
// is met later stops the replica, and opening it again mends it. So it neither leads
// nor votes with damage, forgets nothing, and needs no leader for it. Damage where
// the others have nothing was never committed, and is cut off. Damage below the log
// start, which the others may have decided on while this replica was down, goes with
// its segments; if it cannot go without what lies above, the log is set aside, and
// the replica begins anew as one that may have forgotten. The only copy of
// a partition has nobody to ask: what lies around the damage is served.
//
// # What a replica may have forgotten
//
// After the machine has stopped, a replica whose flush policy lets acknowledged
// entries lie in memory may have forgotten some, and so may one whose log is gone.
// Until it has caught up with a leader it gives no vote and asks for none, unless
// all other voters say that they have no more than the candidate (unsure.go). So
// what was acknowledged by a quorum is lost only if the machines of a quorum stop.
//
// A disk that was replaced together with the votes also forgets which term it is. A
// deposed leader that is cut off from the majority, and not from that node, could
// win it over. Replace a node under a new id (cluster.ReplaceNode) where that
// matters. The other way round, the very first replicas of a new cluster cannot
// tell whether their disks are new, so for the moment until they have caught up
// for the first time, the loss of a leader costs availability until it is back.
//
// # Transactions
//
// A transactional batch is taken only into a transaction that is open in the
// partition: one that has a batch in the log already, or one that the coordinator
// has opened with OpenTransaction in this leader's memory (KIP-890: a batch that is
// late, or of a transaction nobody will end, would else stay open for ever). A marker
// ends it: a control batch whose epoch is above the transaction's, so that it fences
// what is late, takes effect once, and cannot hit the transaction after. Both are
// decided in StoreLogs, like sequences.
//
// The last stable offset is the first offset of the oldest open transaction, else
// the high watermark. Readers of committed records see nothing at or above it; below
// it, batches of aborted transactions are left out. Which these are is a part of the
// state: two offsets for each, until the log start has passed them.
//
// # Retention
//
// What is forgotten is decided once: the leader plans by its own segments, below
// its last stable offset, and appends a trim, a command that all replicas apply. The
// log start offset is what was decided, exactly, also inside a batch; reads below
// it are refused at once. Each replica removes its own segments that lie wholly
// below, oldest first, when its checkpoint covers them.
//
// # Heartbeats
//
// What leaders tell their followers while nothing is written goes from node to
// node in one message for all groups, every twentieth of the election timeout
// at the most. Each group still answers for itself, see beat.go.
//
// # Sleep
//
// A partition that nobody has written to for Config.SleepAfter goes to sleep:
// Raft ends on all its replicas, and with it heartbeats, timers and goroutines.
// Reads, status and leader are as before. The next write, change of membership or
// transfer at the leader wakes it: the leader starts Raft and is elected again, in
// two round trips. What was appended waits meanwhile. A barrier asks a quorum
// whether all still sleep, and wakes nobody if so.
//
//	leader                              followers
//	quiet, and all hold its last entry
//	asks "could you?" ----------------> same epoch, leader, last entry; all of it
//	                                    committed, applied and in the checkpoint
//	holds heartbeats back until none
//	is under way
//	says "sleep" ---------------------> end Raft, look that nothing came in between
//	all have: ends Raft, looks again
//	any has not: heartbeats again, ---> wake up with the first one
//	which end the sleep of the others
//
// Why this is safe: to end Raft is a crash with nothing lost, which Raft allows
// any replica at any time, and to start it again is a restart. Logs, terms and
// votes are those on disk, and whoever leads next was elected by a quorum of them.
// So no step, lost, repeated or late, can take back what was acknowledged. What
// the steps see to is that nobody believes what is not so:
//
//   - A replica sleeps under a leader and an epoch only if its term was that epoch
//     after Raft had ended. It cannot have voted in a later one.
//   - So when a quorum sleeps under this leader now, no later leader existed before
//     now: that is what a barrier of a sleeping leader rests on.
//   - Any message of Raft from a member wakes a replica up. One that is awake among
//     sleepers hears of no leader, stands for election, and so wakes the others.
//   - Nodes compare every quarter of an election timeout which groups sleep on
//     both (watch.go). A follower whose leader's node is silent for as long as
//     Raft would wait wakes up and stands for election; one whose leader is awake, or
//     gone, wakes up; a leader that a quorum has not asked for twice that long wakes
//     up and is a follower.
//   - A leader that was cut off while it slept may, for up to four election timeouts,
//     take itself for the leader. It writes nothing: it has to win an election first.
//     Reads there show what was committed when it fell asleep.
//
// # Producers
//
// The last five batches of each producer are remembered, also when their records
// are trimmed. What is forgotten, by age and by count, is decided by the leader and
// written down as a command, like a trim (forget.go). A producer that is not known
// must begin with sequence 0.
//
// # Files
//
// Beside the segments of package log lies "checkpoint": the state (high
// watermark, producers' last batches, transactions) at one committed entry. It is derived and
// bounds the replay of a restart; its layout stands in checkpoint.go and
// state.go. "members" is the membership as of the checkpoint, for the day that is
// damaged and the log has been trimmed (membersfile.go). Terms and votes of all groups of a node are in one file (Stable);
// term and candidate of a vote are written as one value.
//
// # Crash rules
//
//   - An entry counts as stored when log.Append returned, by the flush policy.
//   - A checkpoint is written after the log was synced up to its entry.
//   - A failed sync, an entry that cannot be read back, or replicas that differ
//     stop this replica (Status.Err), never the process; the others go on.
//   - Until a leader has committed in its own epoch, the high watermark after a
//     restart is the checkpoint's: readers may see less than before, never more.
//
// # Concurrency
//
// All exported methods may be called at once. Raft's main goroutine alone
// appends to the log; there is one Raft at a time.
// Callbacks run on the goroutine that settles, on Raft's (AckLeader), or on the
// caller's, and must not block.
package replica
