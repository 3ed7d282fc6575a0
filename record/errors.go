package record

import (
	"errors"
	"fmt"
)

// Classes of errors, for errors.Is. Each answers one of a caller's questions:
// may I retry, must I go elsewhere, was my write done?
var (
	// ErrClosed: the node, log or client was closed. Nothing was written.
	ErrClosed = errors.New("closed")
	// ErrNotLeader matches *NotLeaderError: ask the leader instead. Nothing was written.
	ErrNotLeader = errors.New("not the leader")
	// ErrOverloaded: too much is in flight already. Nothing was written; retry later.
	ErrOverloaded = errors.New("overloaded")
	// ErrUnreachable: the other node could not be reached. Nothing was handed over; retry.
	ErrUnreachable = errors.New("unreachable")
	// ErrOutcomeUnknown matches *OutcomeUnknownError: it may or may not have been written.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrOffsetOutOfRange matches *OffsetRangeError.
	ErrOffsetOutOfRange = errors.New("offset out of range")
	// ErrUnknownTopic matches *UnknownTopicError.
	ErrUnknownTopic = errors.New("unknown topic or partition")
	// ErrTopicExists: a topic of that name is there already.
	ErrTopicExists = errors.New("topic exists")
	// ErrFenced matches *FencedError: a newer holder has taken over. Stop.
	ErrFenced = errors.New("fenced")
	// ErrOutOfOrder matches *OutOfOrderError: an earlier batch of this producer is missing.
	ErrOutOfOrder = errors.New("sequence out of order")
	// ErrDuplicate: the batch was written before, so long ago that its offset is forgotten.
	ErrDuplicate = errors.New("duplicate batch older than the window")
	// ErrNotEnoughReplicas matches *NotEnoughReplicasError.
	ErrNotEnoughReplicas = errors.New("not enough replicas in sync")
	// ErrTooLarge matches *TooLargeError. Nothing was written.
	ErrTooLarge = errors.New("too large")
	// ErrCorrupt matches *BatchError and every other error about bytes that are not what was written.
	ErrCorrupt = errors.New("corrupt")
	// ErrNotInTransaction matches *TransactionError. Nothing was written.
	ErrNotInTransaction = errors.New("not in the transaction")
	// ErrPending: a transaction that is still open is in the way. Nothing was done;
	// retry when it has ended.
	ErrPending = errors.New("a transaction is in the way")
	// ErrInvalid: an argument makes no sense. Nothing was done.
	ErrInvalid = errors.New("invalid argument")
)

// NotLeaderError says that this replica does not lead the partition.
type NotLeaderError struct {
	TopicPartition
	Leader string // the node that leads, "" when nobody knows
	Epoch  LeaderEpoch
}

// Is reports whether target is ErrNotLeader.
func (e *NotLeaderError) Is(target error) bool { return target == ErrNotLeader }

func (e *NotLeaderError) Error() string {
	if e.Leader == "" {
		return fmt.Sprintf("%v has no leader now; retry", e.TopicPartition)
	}
	return fmt.Sprintf("%v is led by node %q (epoch %d); ask there", e.TopicPartition, e.Leader, e.Epoch)
}

// OutcomeUnknownError says that nobody can know yet whether a write was done.
// Sending the same batch of an idempotent producer again is safe.
type OutcomeUnknownError struct {
	TopicPartition
	Err error // why
}

// Is reports whether target is ErrOutcomeUnknown.
func (e *OutcomeUnknownError) Is(target error) bool { return target == ErrOutcomeUnknown }

// Unwrap returns the cause.
func (e *OutcomeUnknownError) Unwrap() error { return e.Err }

func (e *OutcomeUnknownError) Error() string {
	return fmt.Sprintf("%v: written or not, nobody knows: %v", e.TopicPartition, e.Err)
}

// OffsetRangeError says which offset was asked for and what the log held.
type OffsetRangeError struct {
	TopicPartition
	Offset     Offset
	Start, End Offset // the log held [Start, End)
}

// Is reports whether target is ErrOffsetOutOfRange.
func (e *OffsetRangeError) Is(target error) bool { return target == ErrOffsetOutOfRange }

func (e *OffsetRangeError) Error() string {
	return fmt.Sprintf("%v: offset %d is outside [%d, %d)", e.TopicPartition, e.Offset, e.Start, e.End)
}

// UnknownTopicError names the topic or partition that does not exist.
type UnknownTopicError struct {
	Topic     string
	Partition int32 // -1 when the topic itself is unknown
}

// Is reports whether target is ErrUnknownTopic.
func (e *UnknownTopicError) Is(target error) bool { return target == ErrUnknownTopic }

func (e *UnknownTopicError) Error() string {
	if e.Partition < 0 {
		return fmt.Sprintf("topic %q does not exist; create it first", e.Topic)
	}
	return fmt.Sprintf("topic %q has no partition %d", e.Topic, e.Partition)
}

// FencedError says that a newer holder of the same identity has taken over.
type FencedError struct {
	What       string // "producer 7", "member a of group billing"
	Have, Want int64  // epoch or generation: ours, and the one that counts now
}

// Is reports whether target is ErrFenced.
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

func (e *FencedError) Error() string {
	return fmt.Sprintf("%s has epoch %d, now %d counts: a newer one has taken over", e.What, e.Have, e.Want)
}

// TransactionError says that a batch does not belong to the transaction that its
// producer has open in the partition now: none is, or the batch stands outside.
type TransactionError struct {
	TopicPartition
	Producer ProducerID
	Epoch    ProducerEpoch
	Open     bool // the producer has a transaction open there, and the batch is not in it
}

// Is reports whether target is ErrNotInTransaction.
func (e *TransactionError) Is(target error) bool { return target == ErrNotInTransaction }

func (e *TransactionError) Error() string {
	if e.Open {
		return fmt.Sprintf("%v: producer %d epoch %d wrote outside of its open transaction", e.TopicPartition, e.Producer, e.Epoch)
	}
	return fmt.Sprintf("%v: producer %d epoch %d has no transaction open here; add the partition first", e.TopicPartition, e.Producer, e.Epoch)
}

// OutOfOrderError says that a batch does not follow the last one of its producer.
type OutOfOrderError struct {
	TopicPartition
	Producer ProducerID
	Epoch    ProducerEpoch
	Got      Sequence
	Want     Sequence
	// Unknown says that the partition knows nothing of the producer: it has not
	// written here, or so long ago that it was forgotten. Kafka's UNKNOWN_PRODUCER_ID.
	Unknown bool
}

// Is reports whether target is ErrOutOfOrder.
func (e *OutOfOrderError) Is(target error) bool { return target == ErrOutOfOrder }

func (e *OutOfOrderError) Error() string {
	why := ""
	if e.Unknown {
		why = ": it is not known here, or not any more"
	}
	return fmt.Sprintf("%v: producer %d epoch %d sent sequence %d, want %d%s", e.TopicPartition, e.Producer, e.Epoch, e.Got, e.Want, why)
}

// NotEnoughReplicasError says that fewer replicas than AckAll asks for are in
// sync. Appended tells two cases apart: refused before anything was written, or
// written and committed by the quorum, but held by fewer than asked for.
type NotEnoughReplicasError struct {
	TopicPartition
	Have, Need int
	Appended   bool
}

// Is reports whether target is ErrNotEnoughReplicas.
func (e *NotEnoughReplicasError) Is(target error) bool { return target == ErrNotEnoughReplicas }

func (e *NotEnoughReplicasError) Error() string {
	what := "not written; retry when more are back"
	if e.Appended {
		what = "written and committed all the same"
	}
	return fmt.Sprintf("%v: %d replicas are in sync, want %d: %s", e.TopicPartition, e.Have, e.Need, what)
}

// TooLargeError says what is too large and by how much.
type TooLargeError struct {
	What        string // "record", "batch"
	Size, Limit int    // bytes
}

// Is reports whether target is ErrTooLarge.
func (e *TooLargeError) Is(target error) bool { return target == ErrTooLarge }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s of %d bytes is above the limit of %d", e.What, e.Size, e.Limit)
}

// BatchError says why bytes are not a record batch.
type BatchError struct {
	BaseOffset Offset // as the header says
	Reason     string
}

// Is reports whether target is ErrCorrupt.
func (e *BatchError) Is(target error) bool { return target == ErrCorrupt }

func (e *BatchError) Error() string {
	return fmt.Sprintf("record batch at offset %d: %s", e.BaseOffset, e.Reason)
}
