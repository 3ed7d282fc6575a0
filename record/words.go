package record

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"
)

// Offset is the place of a record in its partition: 0, 1, 2 … without a gap,
// apart from transaction markers.
type Offset int64

// NoOffset stands where an offset is not known or does not exist.
const NoOffset Offset = -1

// EntryNumber is the place of an entry in a partition's log: 1, 2, 3 … without
// a gap. It is the Raft index. Zero means "none".
type EntryNumber uint64

// LeaderEpoch is the number of a leadership of one partition; it only grows.
// It is the Raft term.
type LeaderEpoch int32

// NoLeaderEpoch marks a batch that no leader has given its offset yet.
const NoLeaderEpoch LeaderEpoch = -1

// ProducerID names an idempotent producer; unique for ever in a cluster.
type ProducerID int64

// NoProducerID marks a batch that is not protected against duplicates.
const NoProducerID ProducerID = -1

// ProducerEpoch is the incarnation of a producer id; an older one is fenced.
type ProducerEpoch int16

// Sequence numbers the records of one producer in one partition. It wraps
// from 2^31-1 to 0.
type Sequence int32

// NoSequence is the base sequence of a batch without a producer id.
const NoSequence Sequence = -1

// Add returns s moved on by n records, n ≥ 0, wrapping after 2^31-1.
func (s Sequence) Add(n int32) Sequence {
	return Sequence((int64(s) + int64(n)) & (1<<31 - 1))
}

// Generation is the number of a group's assignment; it only grows.
type Generation int32

// TopicID tells topics of the same name apart over delete and re-create.
type TopicID [16]byte

// NewTopicID returns a random id.
func NewTopicID() TopicID {
	var id TopicID
	_, _ = rand.Read(id[:]) // crypto/rand.Read never returns an error
	return id
}

// String returns the id as 32 hexadecimal digits.
func (id TopicID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText implements encoding.TextMarshaler.
func (id TopicID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *TopicID) UnmarshalText(text []byte) error {
	if hex.DecodedLen(len(text)) != len(id) {
		return fmt.Errorf("topic id %q is not 32 hexadecimal digits", text)
	}
	_, err := hex.Decode(id[:], text)
	return err
}

// TopicPartition names one partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String returns "topic/partition".
func (tp TopicPartition) String() string { return fmt.Sprintf("%s/%d", tp.Topic, tp.Partition) }

// Compare orders by topic, then by partition.
func (tp TopicPartition) Compare(o TopicPartition) int {
	return cmp.Or(cmp.Compare(tp.Topic, o.Topic), cmp.Compare(tp.Partition, o.Partition))
}

// Header is a name and a value that travel with a record.
type Header struct {
	Key   string
	Value []byte
}

// Record is one record, as it is sent and as it is read.
//
// On the way in, Offset and LeaderEpoch are ignored, Partition counts only
// with a partitioner that asks for it, and a zero Time means now. A nil Key is
// no key, an empty one is a key; a nil Value is a tombstone.
//
// On the way out the slices belong to the reader and are never reused.
type Record struct {
	Topic       string
	Partition   int32
	Offset      Offset
	LeaderEpoch LeaderEpoch
	Time        time.Time // millisecond precision
	Key         []byte
	Value       []byte
	Headers     []Header
}

// TopicPartition returns the partition r belongs to.
func (r *Record) TopicPartition() TopicPartition {
	return TopicPartition{Topic: r.Topic, Partition: r.Partition}
}

// Acks says when an append counts as done. The zero value is the safe one.
type Acks int8

const (
	// AckQuorum: on a majority of replicas, each by its flush policy. Default.
	AckQuorum Acks = iota
	// AckNone: handed to the leader. It may be lost without a word.
	AckNone
	// AckLeader: in the leader's log, by its flush policy. Lost when the leader
	// is replaced before a follower has it.
	AckLeader
	// AckAll: committed, and in the log of every replica that is in sync, each by
	// its flush policy; MinInSync of them at least. Survives the loss of all but
	// one of these.
	AckAll
)

// String returns "quorum", "none", "leader" or "all".
func (a Acks) String() string {
	switch a {
	case AckQuorum:
		return "quorum"
	case AckNone:
		return "none"
	case AckLeader:
		return "leader"
	case AckAll:
		return "all"
	}
	return fmt.Sprintf("acks(%d)", int8(a))
}

// Appended says what became of a batch.
type Appended struct {
	BaseOffset  Offset // of the first record; NoOffset with AckNone
	LeaderEpoch LeaderEpoch
	Duplicate   bool // it was in the log already, at BaseOffset
	// Synced: on disk with fsync on every replica that the ack waited for, so
	// that no power cut takes it there. False under a flush policy that syncs
	// later, and with AckNone.
	Synced bool
}

// Isolation says what a reader sees of transactions. The zero value is the safe one.
type Isolation int8

const (
	// ReadCommitted hides records of open and aborted transactions. Default.
	ReadCommitted Isolation = iota
	// ReadUncommitted shows everything below the high watermark.
	ReadUncommitted
)

// Fetched is what one read of a partition returned.
type Fetched struct {
	// Batches are whole and in order; the first may begin below the offset asked
	// for. With ReadCommitted those of aborted transactions and markers are left
	// out. They belong to the caller.
	Batches []Batch
	// Next is where the next read goes on: everything below it is in Batches or
	// was left out. The offset asked for when nothing is readable there yet.
	Next Offset
	// StartOffset <= LastStableOffset <= HighWatermark, as the replica knew them.
	StartOffset, LastStableOffset, HighWatermark Offset
}
