// Package producer writes records: it picks their partitions, packs them into
// batches, sends the batches and repeats what failed, so that every record is
// in its partition once and in the order it was sent.
//
// # How to use it
//
//	p, err := node.Producer(quorumlog.ProducerConfig{})
//	...
//	res, err := p.Send(ctx, r)           // waits for the result
//	p.SendAsync(ctx, r, done)            // done gets it later; waits for room only
//	p.TrySendAsync(ctx, r, done)         // does not wait for room either
//	err = p.Flush(ctx)                   // all results are there
//	err = p.Close(ctx)                   // the same, and no more records
//
// One producer serves any number of goroutines and topics; they share its batches.
// Records that one goroutine sends to one partition are written in that order.
// The zero Config is the safe one, and [Config.Validate] refuses settings that
// would weaken its promise unless DisableIdempotence says so.
//
// # What became of a record
//
//	OutcomeOf(err)  the record is               so
//	Written         in the log, as Acks says    go on; Result says where
//	NotWritten      certainly not in the log    send it again, or not
//	Unknown         in it, now or later, or not look for it, or use Dedupe
//
// Unknown is *record.OutcomeUnknownError: the producer has given up, after
// Config.DeliveryTimeout or because ctx or the producer has ended, and the last
// answer is missing. ctx ends the wait and nothing else: Send takes a record back
// if its batch is still here and says NotWritten, otherwise it is Unknown to the
// caller and goes its way. *NotWrittenError wraps the reason why a record was
// given up; others say why it was refused at once:
//
//	record.ErrInvalid, record.ErrTooLarge  it can never be written
//	record.ErrUnknownTopic                 no such topic or partition
//	ErrTopicGrown                          its key would move; see ByKey
//	ErrBufferFull                          TrySendAsync would have had to wait
//	record.ErrClosed                       after Close
//	record.ErrFenced                       a newer producer of the name has written
//
// record.ErrFenced is the end of a producer: all later sends fail with it.
//
// # The way of a record
//
//	Send ──▶ partition ──▶ open batch ──▶ sealed ──▶ in flight ──▶ result
//	         (Partitioner) (copied here)  (full,     (at most five,
//	                                       lingered)  in sequence order)
//
// The record's bytes, headers too, are copied into the partition's open batch
// before Send or SendAsync goes on; the caller may reuse its slices as soon as the
// call returns. With Linger 0 a batch leaves at once when its partition has nothing
// in flight; what arrives while something is in flight is packed together, so
// batches grow with the load and a lone record does not wait. While 64 batches of all
// partitions are in flight, the next one waits until it is full. A batch also leaves
// when a record with other acks follows and with Flush. It is compressed as a whole.
//
// The buffer holds what has no result yet, Config.BufferBytes of it. Who finds it
// full waits in line, no longer than ctx. Meanwhile batches leave as with Linger 0, and
// up to 128 are in flight: those make room. To send all the others nearly empty would
// cost more than it brings.
//
// The layout of a topic, which one it is and how many partitions it has, is looked
// up with each batch that is begun, and when a partition is unknown. Records on their
// way to a topic that is deleted are given up, though another one of the name may
// have been made: in that one their keys may have other partitions.
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
// before the others follow, since a leader that knows nothing of a producer takes
// sequence 0 only.
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
// The number of tries is not limited, only their time: a limit would make gaps.
//
// # Names
//
// A producer with a Config.Name takes over from the one before it, in this process
// or another: it goes on under the same id with a higher epoch, and each partition
// refuses the older one's batches from the first of its own on. The older one's
// next send there fails with *record.FencedError. It happens with the first send,
// not with New. An older holder that only needs a new epoch, as after a gap, does
// not get one.
//
// What a name does not do is to recognise a record that the program sends a second
// time, after a restart or because its own caller asked again: to the producer that
// is a new record. [Dedupe] does, by an id in a header.
//
// # Transactions
//
// [Transactional] is the floor for those who run transactions: the same batches
// under an identity that its owner gives, one for each transaction.
//
// # Who may call what
//
// All methods of Producer may be called at once. A callback may send, but not call
// Flush or Close. A producer owns two goroutines: one sends, so that the batches of
// a partition reach the cluster in order, and one runs the callbacks. Another runs
// while it asks for an identity, a layout, or the ids written before. All end with
// Close. There is one timer per producer.
package producer
