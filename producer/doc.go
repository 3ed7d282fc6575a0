// Package producer writes records: it picks their partitions, packs them into
// batches, sends the batches and repeats what failed, so that every record is
// in its partition once and in the order it was sent.
//
// # The way of a record
//
//	Send ──▶ partition ──▶ open batch ──▶ sealed ──▶ in flight ──▶ result
//	         (Partitioner) (copied here)  (full,     (at most five,
//	                                       lingered)  in sequence order)
//
// The record's bytes are copied into the partition's open batch before Send
// or SendAsync goes on; the caller may reuse its slices as soon as the call
// returns. With Linger 0 a batch leaves at once when its partition has nothing
// in flight; what arrives while something is in flight is packed together, so
// batches grow with the load and a lone record does not wait.
//
// # Once and in order
//
// Unless DisableIdempotence is set, every batch carries the producer's id and
// epoch and the sequence of its first record, and the partition's leader takes
// only the batch that follows. After a failure that may pass, the later
// batches of the partition wait for their own results; then all that failed
// are sent again in sequence order, with the same id, epoch and sequence. One
// that had been written after all is recognised and answered as a duplicate.
// A partition that never took a batch of this identity gets one batch alone
// before the others follow: a leader that knows nothing of a producer takes any
// sequence as its first.
//
// A batch that is given up may leave a gap in the sequences. The leader tells:
// it refuses the batch that comes next although nothing is in flight before it.
// Then the producer takes a new identity and begins at sequence 0 again: with a
// Name it is the next epoch of the same id, for which all partitions wait until
// nothing is in flight, since a new epoch fences the old one; without a Name it
// is a fresh id, for this partition only. Of the batches behind the gap, those
// that were surely not written are sent under the new identity, in order; the
// others are answered with *record.OutcomeUnknownError, since sending them again
// might write them twice.
//
// # Errors
//
// Every error but one says that the record was not written.
// *record.OutcomeUnknownError (record.ErrOutcomeUnknown) says that nobody can
// know. *NotWrittenError wraps the reason why a batch was given up.
// record.ErrFenced is the end of the producer: another one of its name has
// taken over, and all later sends fail with it.
//
// # Who may call what
//
// All methods of Producer may be called at once. A producer owns two
// goroutines: one sends, so that the batches of a partition reach the cluster
// in order, and one runs the callbacks. Both end with Close. There is one timer
// per producer.
package producer
