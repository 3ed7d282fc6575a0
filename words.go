package quorumlog

import (
	"context"
	"time"

	"github.com/quorumlog/quorumlog/cluster"
	"github.com/quorumlog/quorumlog/consumer"
	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/replica"
	"github.com/quorumlog/quorumlog/transport"
	"github.com/quorumlog/quorumlog/txn"
	"github.com/quorumlog/quorumlog/txn/coordinator"
)

// The words a user needs, from the floors below.
type (
	// Record is one record, as it is sent and as it is read.
	Record = record.Record
	// Header is a name and a value that travel with a record.
	Header = record.Header
	// Offset is the place of a record in its partition.
	Offset = record.Offset
	// Acks says when a record counts as written.
	Acks = record.Acks
	// TopicPartition names one partition.
	TopicPartition = record.TopicPartition
	// TopicConfig says what a topic is made of.
	TopicConfig = cluster.TopicConfig
	// GrowOption says how Node.AddPartitions may change a topic.
	GrowOption = cluster.GrowOption
	// TopicStatus is the state of a topic's partitions.
	TopicStatus = cluster.TopicStatus
	// ReplicaStatus is the state of a partition as one of its replicas sees it.
	ReplicaStatus = replica.Status
	// PartitionPlan is what retention removes from one partition, or would.
	PartitionPlan = cluster.PartitionPlan
	// NodeInfo is one node of the cluster and what lies on it.
	NodeInfo = cluster.NodeInfo
	// Move is one partition's way from some nodes to others.
	Move = cluster.Move
	// LeaderMove hands the leadership of a partition to another replica.
	LeaderMove = cluster.LeaderMove
	// Plan is what would spread the load evenly. It can be looked at, and applied.
	Plan = cluster.Plan
	// MoveProgress is how far a call has come that moves partitions.
	MoveProgress = cluster.Progress
	// Result says where a record went.
	Result = producer.Result
	// Outcome is what an error of a send says about the record.
	Outcome = producer.Outcome
	// Producer sends records. Node.Producer makes one.
	Producer = producer.Producer
	// ProducerConfig says how a producer works. The zero value is the safe one.
	ProducerConfig = producer.Config
	// Partitioner picks the partitions of a topic's records.
	Partitioner = producer.Partitioner
	// Picker picks the partitions of one topic's records for one producer.
	Picker = producer.Picker
	// Codec compresses batches.
	Codec = record.Codec
	// Dedupe says how a producer recognises records that are sent again.
	Dedupe = producer.Dedupe
	// SendOption changes how one record is sent.
	SendOption = producer.SendOption
	// Group is one member of a consumer group. Node.Group makes one.
	Group = consumer.Group
	// GroupConfig says how a member of a group behaves. The zero value works.
	GroupConfig = consumer.Config
	// Txn runs transactions under a transactional id. Node.Txn makes one.
	Txn = txn.Client
	// TxnConfig says how transactions are run. The zero value works.
	TxnConfig = txn.Config
	// Tx is a transaction that is open.
	Tx = txn.Tx
	// HalfProducer sends records whose fate a local transaction decides.
	// Node.HalfProducer makes one.
	HalfProducer = txn.HalfProducer
	// HalfConfig says how half messages are handled. The zero value works.
	HalfConfig = txn.HalfConfig
	// HalfSchedule says when half messages are checked.
	HalfSchedule = txn.Schedule
	// HalfID names a half message.
	HalfID = txn.ID
	// Half is a half message as a check sees it.
	Half = txn.Half
	// Decision is what becomes of a half message; the zero value is HalfUnknown.
	Decision = txn.Decision
	// SQL ties half messages to local transactions in a database.
	SQL = txn.SQL
	// Batch is a run of records that Group.Poll hands out.
	Batch = consumer.Batch
	// OpenTransaction is a transaction that holds readers of a partition back.
	OpenTransaction = cluster.OpenTransaction
	// RetryPolicy says what becomes of a record whose handler fails: GroupConfig.Retry.
	RetryPolicy = consumer.RetryPolicy
	// Failure says why and whence a record was moved. FailureOf reads it.
	Failure = consumer.Failure
	// DeadLetters is what a group has given up on. Node.DeadLetters returns it.
	DeadLetters = consumer.DeadLetters
	// Letter is one of the DeadLetters.
	Letter = consumer.Letter
	// Lag is how far a group is behind in one partition.
	Lag = consumer.Lag
	// ResetTo says where Node.ResetGroup moves a group.
	ResetTo = consumer.ResetTo
	// OffsetMove is what a reset does, or would do, to one partition.
	OffsetMove = consumer.OffsetMove
	// PanicError is a panic of a handler, turned into an error.
	PanicError = consumer.PanicError
	// ReadOption says where a read begins and ends.
	ReadOption = consumer.ReadOption
	// FlushPolicy says when a topic's records are made to survive a power cut.
	FlushPolicy = log.FlushPolicy
	// Network connects nodes of one process, and can cut, delay and drop.
	Network = transport.Network
)

// When Run commits what its handler deals with: GroupConfig.Commit.
const (
	AfterHandler = consumer.AfterHandler // at least once; the default
	OnReceipt    = consumer.OnReceipt    // at most once
	OnTimer      = consumer.OnTimer      // at least once, each GroupConfig.CommitInterval
	EachRecord   = consumer.EachRecord   // at least once, each record by itself
	ByHand       = consumer.ByHand       // left to Group.CommitFinished and its like
)

// Decisions about a half message.
const (
	HalfUnknown  = txn.Unknown  // ask again later
	HalfCommit   = txn.Commit   // append the record to its topic
	HalfRollback = txn.Rollback // forget it
)

// What becomes of half messages that no check decides about: HalfSchedule.Policy.
const (
	RollbackUndecided = txn.RollbackUndecided // the default
	CommitUndecided   = txn.CommitUndecided
	ParkUndecided     = txn.ParkUndecided // keep it until HalfProducer.Decide
)

// Pipe reads batches of a group, has step handle each in a transaction, and commits
// what step has sent together with the offset behind the batch, until ctx ends or
// step fails: each record is handled exactly once.
func Pipe(ctx context.Context, from *Group, to *Txn, step func(tx *Tx, b Batch) error) error {
	return txn.Pipe(ctx, from, to, step)
}

// NewNetwork returns a network for nodes of one process.
func NewNetwork() *Network { return transport.NewNetwork() }

// FromStart begins a read with the oldest record of each partition. Default.
func FromStart() ReadOption { return consumer.FromStart() }

// FromEnd begins a read behind the last record of each partition.
func FromEnd() ReadOption { return consumer.FromEnd() }

// FromOffset begins a read at offset o of every partition that is read.
func FromOffset(o Offset) ReadOption { return consumer.FromOffset(o) }

// FromTime begins a read with the first record of each partition whose time is t
// or later.
func FromTime(t time.Time) ReadOption { return consumer.FromTime(t) }

// ReadUncommitted shows the records of transactions that are open or were aborted,
// too, up to the high watermark. By default a read sees what is committed.
func ReadUncommitted() ReadOption { return consumer.Isolation(record.ReadUncommitted) }

// UntilEnd ends a read at the end as it is when the read begins. Without it a
// read waits for new records until its context ends.
func UntilEnd() ReadOption { return consumer.UntilEnd() }

// Backwards reads the newest record first, down to the log start.
func Backwards() ReadOption { return consumer.Backwards() }

// Nearby reads from the node's own replica where it has one, leader or follower.
func Nearby() ReadOption { return consumer.Nearby() }

// CaughtUp has f called once, in the loop, when it has seen everything that was
// there as it began.
func CaughtUp(f func()) ReadOption { return consumer.CaughtUp(f) }

// Partition reads one partition instead of all.
func Partition(p int32) ReadOption { return consumer.Partition(p) }

// What RetryPolicy.Classify may say about an error.
const (
	Retry      = consumer.Retry      // in place, then by way of the retry topics
	DeadLetter = consumer.DeadLetter // to the dead letters at once
	Stop       = consumer.Stop       // Run returns it
)

// ToStart resets a group to the oldest records.
func ToStart() ResetTo { return consumer.ToStart() }

// ToEnd resets a group to behind the newest records.
func ToEnd() ResetTo { return consumer.ToEnd() }

// ToOffset resets a group to offset o, or the nearest one there is.
func ToOffset(o Offset) ResetTo { return consumer.ToOffset(o) }

// ToTime resets a group to the first records whose time is t or later.
func ToTime(t time.Time) ResetTo { return consumer.ToTime(t) }

// Back resets a group to where the records of the last d begin.
func Back(d time.Duration) ResetTo { return consumer.Back(d) }

// Permanent marks an error of a handler as one that trying again cannot mend.
func Permanent(err error) error { return consumer.Permanent(err) }

// FailureOf returns why and whence a record was moved; false if it was not.
func FailureOf(r Record) (Failure, bool) { return consumer.FailureOf(r) }

// Flush policies of a topic. A crash of the process alone loses nothing under
// any of them.
const (
	FlushEach  = log.FlushEach  // synced before it is acknowledged; the default
	FlushNever = log.FlushNever // left to the operating system
)

// FlushEvery is the policy of one sync for all that was written within d.
func FlushEvery(d time.Duration) FlushPolicy { return log.FlushEvery(d) }

// Acknowledgements: when a record counts as written.
const (
	AckQuorum = record.AckQuorum // on a majority of replicas; the default
	AckAll    = record.AckAll    // on every replica that is in sync, MinInSync at least
	AckLeader = record.AckLeader // in the leader's log
	AckNone   = record.AckNone   // handed to the leader
)

// Codecs of a producer's batches. None is the default.
const (
	CodecNone   = record.None
	CodecGzip   = record.Gzip
	CodecSnappy = record.Snappy
	CodecLZ4    = record.LZ4
	CodecZstd   = record.Zstd
)

// MoveKeys lets AddPartitions change a topic whose records have keys, most of which
// then have another partition. Who would rather stop than write on sets
// ProducerConfig.RefuseGrowth.
func MoveKeys() GrowOption { return cluster.MoveKeys() }

// ByKey is the Partitioner that keeps the records of a key in one partition, the
// one that Kafka's clients take, and spreads those without a key. The default.
func ByKey(topic string) Picker { return producer.ByKey(topic) }

// RoundRobin is the Partitioner that gives each record to the next partition.
func RoundRobin(topic string) Picker { return producer.RoundRobin(topic) }

// ByPartition is the Partitioner that sends each record to its own
// Record.Partition.
func ByPartition(topic string) Picker { return producer.Manual(topic) }

// ByFunc makes a Partitioner that lets pick choose one of n partitions.
func ByFunc(pick func(r *Record, n int) int) Partitioner { return producer.ByFunc(pick) }

// WithAcks asks for AckAll, or AckQuorum, for one record. Weaker levels need a
// Producer with DisableIdempotence.
func WithAcks(a Acks) SendOption { return producer.WithAcks(a) }

// Outcomes of a send, from OutcomeOf.
const (
	NotWritten     = producer.NotWritten
	Written        = producer.Written
	OutcomeUnknown = producer.Unknown
)

// OutcomeOf returns what an error of Produce or of a Producer says about the
// record.
func OutcomeOf(err error) Outcome { return producer.OutcomeOf(err) }

// Classes of errors, for errors.Is.
var (
	ErrClosed           = record.ErrClosed
	ErrInvalid          = record.ErrInvalid
	ErrTopicExists      = record.ErrTopicExists
	ErrUnknownTopic     = record.ErrUnknownTopic
	ErrTooLarge         = record.ErrTooLarge
	ErrOffsetOutOfRange = record.ErrOffsetOutOfRange
	ErrOutcomeUnknown   = record.ErrOutcomeUnknown

	ErrNotWritten        = producer.ErrNotWritten
	ErrDeliveryTimeout   = producer.ErrDeliveryTimeout
	ErrTopicGrown        = producer.ErrTopicGrown
	ErrBufferFull        = producer.ErrBufferFull
	ErrNotEnoughReplicas = record.ErrNotEnoughReplicas
	ErrUnsafeChange      = replica.ErrUnsafeChange // of who is in the cluster, or in a partition
	ErrFenced            = record.ErrFenced
	ErrActive            = consumer.ErrActive
	ErrAborted           = txn.ErrAborted
	ErrCorrupt           = record.ErrCorrupt
	ErrLocked            = vfs.ErrLocked
)

// Errors that carry facts, for errors.As.
type (
	// UnknownTopicError names the topic or partition that does not exist.
	UnknownTopicError = record.UnknownTopicError
	// InvalidTopicError says why a topic cannot be made.
	InvalidTopicError = cluster.InvalidTopicError
	// RefusedError says why nodes or partitions are not changed as asked for, and what
	// to do instead. It matches ErrUnsafeChange.
	RefusedError = cluster.RefusedError
	// UnsafeChangeError says why a partition's leader refuses a step that would lose
	// its quorum or the last copy. It matches ErrUnsafeChange.
	UnsafeChangeError = replica.UnsafeChangeError
	// TooLargeError says what is too large and by how much.
	TooLargeError = record.TooLargeError
	// OffsetRangeError says which offset was asked for and what the log held.
	OffsetRangeError = record.OffsetRangeError
	// OutcomeUnknownError says that nobody can know yet whether a write was done.
	OutcomeUnknownError = record.OutcomeUnknownError
	// NotWrittenError says why a record was given up that is certainly not written.
	NotWrittenError = producer.NotWrittenError
	// BufferFullError says that there was no room for a record in the buffer.
	BufferFullError = producer.BufferFullError
	// TopicGrownError says that a topic has more partitions, so keys would move.
	TopicGrownError = producer.TopicGrownError
	// NotEnoughReplicasError says that fewer replicas are in sync than AckAll asks
	// for, and whether the record was written.
	NotEnoughReplicasError = record.NotEnoughReplicasError
	// FencedError says that a newer holder of the same identity has taken over.
	FencedError = record.FencedError
	// AbortedError says that a transaction was aborted, and why.
	AbortedError = txn.AbortedError
	// EndedError says that a transaction had ended already, and how.
	EndedError = coordinator.EndedError
	// ActiveError says that a group has members and cannot be reset.
	ActiveError = consumer.ActiveError
	// LockedError says who has the directory open.
	LockedError = vfs.LockedError
)
