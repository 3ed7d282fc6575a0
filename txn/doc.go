// Package txn makes the records and consumed offsets of many partitions one: all
// of them count, or none.
//
//	err := c.Do(ctx, func(tx *txn.Tx) error {
//		if err := tx.Send(debit); err != nil {
//			return err
//		}
//		return tx.Send(credit)
//	})
//
// A [Client] holds a transactional id and runs one transaction after the other
// under it. Readers of committed records, which all readers are unless they say
// otherwise, see the records of a transaction when it has committed, and never
// those of one that was aborted.
//
// # What Do answers
//
//	nil                          committed
//	*AbortedError                aborted; it wraps the reason
//	*record.OutcomeUnknownError  ctx ended while the commit was on its way
//
// Whatever it answers, and if the function panics, the transaction does not stay
// open: what the client cannot end its coordinator aborts after Config.Timeout.
//
// # Fencing
//
// Whoever opens a Client takes its transactional id: a client that had it before
// cannot write or commit any more, and what it has open is aborted. So give each
// instance of a service that works on its own an id of its own, and the same one
// after a restart.
//
// # Read, process, write
//
// [Tx.Consumed] makes the offsets of a batch part of the transaction, so that what
// was read counts as handled exactly if what was written counts. [Pipe] is the loop
// around it. If the member has lost the partition meanwhile the transaction fails
// with *record.FencedError; whoever has it now waits until the transaction has ended
// before it reads.
//
// # How it works
//
// Package txn/coordinator decides. Before the first record of a partition, or the
// first offset of a group, is sent, it becomes part of the transaction in the
// coordinator's log; partitions take transactional records of nobody else. The
// records are batched and sent by package producer.
package txn
