// Package coordinator decides on transactions: who holds a transactional id,
// which partitions and groups a transaction has touched, and how it ends.
//
// The rules are plain functions of the state, a request and the time; they
// return the records to write and the answer. [State] is the fold of those
// records. [Coordinator] is the shell around both: it runs a decision under the
// fold, carries verdicts to the partitions, and keeps the deadlines.
//
// # States
//
//	                add                       end, take by another, timeout
//	empty ────────────────────▶ ongoing ─────────────────────────▶ prepare commit
//	  ▲                            ▲                               prepare abort
//	  │ first take                 │ add                                 │ every participant
//	 dead ◀── unused for long ── complete commit, complete abort ◀───────┘ has its marker
//
// A verdict is final when its prepare record is on a quorum. What follows is
// repeated until it is done, by the next leader if need be. Dead is an id that
// nothing is kept of: it was never used, or not for long.
//
// An end is answered when every participant has its marker, so that who has
// committed reads what it wrote. That they have it needs no record of its own: the
// leader remembers it, and lets the next transaction begin from prepare. Its first
// record says so then; without one, completion is written after a second. A leader
// that does not know delivers the verdict again, which has no effect, before
// anything else begins. So a transaction waits for four writes, one after the other:
// what it has added, its batches, the verdict, the markers.
//
// # An epoch for each transaction
//
// A transaction writes under a producer id and an epoch that no other
// transaction has (KIP-890). Its markers carry the epoch after its own, which
// is the one of the next transaction. So a partition that has seen the end of a
// transaction refuses what is late of it, and a marker that is late cannot end
// the transaction after: it only ends epochs below its own. Epochs are stored
// in the same record as what they are for, so a log that takes no records uses
// none up. Behind epoch 32,766 a new producer id begins at 0; 32,767 is left for
// the last marker.
//
// When the log may lose what it has acknowledged ([Config].Forgetful), epochs may go
// back to what a partition has seen already: an open transaction there would be joined
// by another, and its records taken for those of the other that came before. So each
// take gets a new producer id then, and what is aborted without its holder gets the last
// marker of all.
//
// # Fencing
//
// Each holder of a transactional id has a random name. A take by a new one ends
// the transaction of the one before and fences it: every request names its
// holder. A name that was replaced stays fenced, so a take that was delayed
// does no harm. The names of the last 8 are kept.
//
// # Participants
//
// A partition or group is in the log before it hears of the transaction, so it
// is certain to hear of the end. Only then the coordinator opens the transaction
// there, and only there its batches are accepted.
//
// # Records
//
// All records of an id are in one partition of __transaction_state, which is kept short
// ([fold.Compaction]). The last record of a key counts, one without a value deletes
// it. A kind, version, state or flag that is not known stops the fold. Integers are
// big-endian, uvarints those of encoding/binary, times ms since 1970; a name is its
// length, uvarint, and its bytes.
//
//	key    kind u8 = 1 | transactional id, to the end
//	value  version u8 = 1 | state u8 | flags u8 (1: last commit) | epoch i16 | last epoch i16 |
//	       producer id i64 | last producer id i64 | timeout i64 ms | start i64 | updated i64 |
//	       holder name | past holders: uvarint, names | groups: uvarint, names | topics: uvarint
//	topic  name | partitions: uvarint, uvarint each
//
// States are 1 empty, 2 ongoing, 3 prepare commit, 4 prepare abort, 5 complete commit,
// 6 complete abort. start is of the open transaction, 0 when none is.
//
// epoch is the transaction's own; from prepare on the one of its markers, which
// is the next transaction's. What is called last is of the transaction
// that ended last, by which its end request is recognised when it comes again, also
// when another holder has taken the id since; its producer id is -1 when there was none.
package coordinator
