package producer

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

const (
	// maxInFlight is how many batches of a producer a leader remembers per
	// partition. With more in flight a repeated one might not be recognised.
	maxInFlight = 5

	minBatchBytes = 1 << 10
	maxBatchBytes = 8 << 20 // what a partition takes
)

// Config says how a producer works. Config{} works, and is the safe one.
type Config struct {
	// Name keeps the producer's identity over restarts and fences an older
	// holder of it. Without a name each producer is a new one.
	Name string

	// Acks says when a record counts as written. Less than record.AckQuorum
	// needs DisableIdempotence, since it may lose what was acknowledged. WithAcks
	// asks for another level for one record.
	Acks record.Acks

	// MaxInFlight is the number of batches on their way per partition.
	// Default 5, which is also the most with idempotence.
	MaxInFlight int

	// Linger is how long a batch that is not full waits for more records. With
	// 0, the default, it waits only while others of its partition are in flight.
	Linger time.Duration

	// BatchBytes is the largest batch before compression, and so the largest
	// record. 1 KiB to 8 MiB, which is what a partition takes; default 1 MiB.
	BatchBytes int

	// BufferBytes bounds the records that are not settled yet. When it is
	// reached, sends wait. At least BatchBytes; default 32 MiB.
	BufferBytes int64

	// Codec compresses the batches. Default none.
	Codec record.Codec

	// Codecs are for single topics, by name, instead of Codec.
	Codecs map[string]record.Codec

	// Partitioner picks the partitions. Default ByKey.
	Partitioner Partitioner

	// RefuseGrowth has ByKey refuse records with a key, with *TopicGrownError, once a
	// topic has more partitions than this producer has begun with. By default it
	// spreads keys anew: whoever adds partitions to a topic of records with keys is
	// asked whether that may be. This is for a producer that would rather stop than
	// end the order between the old and the new records of most keys.
	RefuseGrowth bool

	// Dedupe recognises records that are sent again from outside. It needs a Name.
	// Default off.
	Dedupe Dedupe

	// DeliveryTimeout bounds the life of a record from Send to its result,
	// retries included. Default 30 s.
	DeliveryTimeout time.Duration

	// DisableIdempotence sends without an identity: a retry may write a record
	// twice, and with MaxInFlight above 1 out of order.
	DisableIdempotence bool

	// NoRetries gives a batch up when its first try fails: with DisableIdempotence,
	// which it needs, a record is then written once at most.
	NoRetries bool

	// Logger gets what an operator should know. Default silent.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.MaxInFlight = cmp.Or(c.MaxInFlight, maxInFlight)
	c.BatchBytes = cmp.Or(c.BatchBytes, 1<<20)
	c.BufferBytes = cmp.Or(c.BufferBytes, max(32<<20, int64(c.BatchBytes)))
	c.DeliveryTimeout = cmp.Or(c.DeliveryTimeout, 30*time.Second)
	if c.Dedupe.on() {
		c.Dedupe.Age = cmp.Or(c.Dedupe.Age, defaultDedupeAge)
		c.Dedupe.Count = cmp.Or(c.Dedupe.Count, defaultDedupeCount)
	}
	c.Codecs = maps.Clone(c.Codecs)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Partitioner == nil {
		c.Partitioner = ByKey
	}
	return c
}

// Validate reports everything that is wrong with c, not only the first thing.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if err := checkAcks(c.Acks, c.DisableIdempotence); err != nil {
		fault("Acks: %w", err)
	}
	if c.MaxInFlight < 1 {
		fault("MaxInFlight is %d, want at least 1", c.MaxInFlight)
	} else if c.MaxInFlight > maxInFlight && !c.DisableIdempotence {
		fault("MaxInFlight is %d, but a leader recognises only the last %d batches of a producer: use at most %d, or set DisableIdempotence", c.MaxInFlight, maxInFlight, maxInFlight)
	}
	if c.NoRetries && !c.DisableIdempotence {
		fault("NoRetries loses records that a retry would have saved, and leaves a gap that those behind it cannot pass: set DisableIdempotence too, or shorten DeliveryTimeout")
	}
	if c.Name != "" && c.DisableIdempotence {
		fault("Name %q means nothing with DisableIdempotence", c.Name)
	}
	if c.Dedupe != (Dedupe{}) {
		if !c.Dedupe.on() {
			fault("Dedupe has no Header, so no record has an id")
		}
		if c.Name == "" {
			fault("Dedupe needs a Name: without one a producer cannot know what it has written before")
		}
		if c.Dedupe.Age < 0 || c.Dedupe.Count < 0 {
			fault("Dedupe.Age is %v and Count is %d, want more than 0", c.Dedupe.Age, c.Dedupe.Count)
		}
	}
	if !isCodec(c.Codec) {
		fault("Codec is %v, want none, gzip, snappy, lz4 or zstd", c.Codec)
	}
	for _, topic := range slices.Sorted(maps.Keys(c.Codecs)) {
		if codec := c.Codecs[topic]; !isCodec(codec) {
			fault("Codecs[%q] is %v, want none, gzip, snappy, lz4 or zstd", topic, codec)
		}
	}
	if c.BatchBytes < minBatchBytes || c.BatchBytes > maxBatchBytes {
		fault("BatchBytes is %d, want %d to %d", c.BatchBytes, minBatchBytes, maxBatchBytes)
	}
	if c.BufferBytes < int64(c.BatchBytes) {
		fault("BufferBytes is %d, want at least BatchBytes, %d", c.BufferBytes, c.BatchBytes)
	}
	if c.DeliveryTimeout < 0 {
		fault("DeliveryTimeout is %v, want more than 0", c.DeliveryTimeout)
	}
	if c.Linger < 0 || c.Linger >= c.DeliveryTimeout {
		fault("Linger is %v, want 0 or more and less than DeliveryTimeout, %v", c.Linger, c.DeliveryTimeout)
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%w: producer config: %w", record.ErrInvalid, errors.Join(errs...))
}

func isCodec(c record.Codec) bool { return c >= record.None && c <= record.Zstd }

// checkAcks returns why a level of acknowledgement does not go with idempotence.
func checkAcks(a record.Acks, disabled bool) error {
	switch a {
	case record.AckQuorum, record.AckAll:
		return nil
	case record.AckLeader, record.AckNone:
		if disabled {
			return nil
		}
		return fmt.Errorf("%v can lose acknowledged records, so nothing is exactly once: set DisableIdempotence too, or use quorum or all", a)
	}
	return fmt.Errorf("%v is not known, want quorum, all, leader or none", a)
}
