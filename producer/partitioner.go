package producer

import (
	"math/rand/v2"

	"github.com/quorumlog/quorumlog/record"
)

// Partitioner makes the Picker of one topic: ByKey, RoundRobin, Manual, or a
// function of the caller's wrapped in ByFunc.
type Partitioner func(topic string) Picker

// Picker picks the partitions of one topic for one producer, which calls it
// from one goroutine at a time and holds a lock meanwhile: it must be quick and
// not call the producer.
type Picker interface {
	// Pick returns the partition for r, from 0 up to n, which is at least 1. It
	// must not keep r.
	Pick(r *record.Record, n int) int
	// Sealed tells that the batch of that partition takes no more records.
	Sealed(partition int)
}

// ByKey maps a key to the partition that Kafka's clients map it to, so records
// of one key stay in order. Records without a key fill one batch together; the
// partition of each such batch is picked at random.
func ByKey(string) Picker { return &byKey{sticky: -1} }

type byKey struct{ sticky int }

func (k *byKey) Pick(r *record.Record, n int) int {
	if r.Key != nil {
		return KeyPartition(r.Key, n)
	}
	if k.sticky < 0 || k.sticky >= n {
		k.sticky = rand.IntN(n)
	}
	return k.sticky
}

func (k *byKey) Sealed(partition int) {
	if partition == k.sticky {
		k.sticky = -1
	}
}

// RoundRobin gives each record, with or without a key, to the next partition,
// beginning with one picked at random.
func RoundRobin(string) Picker { return &roundRobin{next: -1} }

type roundRobin struct{ next int }

func (rr *roundRobin) Pick(_ *record.Record, n int) int {
	if rr.next < 0 {
		rr.next = rand.IntN(n)
	}
	p := rr.next % n
	rr.next = (p + 1) % n
	return p
}

func (*roundRobin) Sealed(int) {}

// Manual sends each record to its own Record.Partition.
func Manual(string) Picker {
	return pickFunc(func(r *record.Record, _ int) int { return int(r.Partition) })
}

// ByFunc lets pick choose one of n partitions for each record. A choice outside
// [0, n) fails the record with *record.UnknownTopicError or record.ErrInvalid.
func ByFunc(pick func(r *record.Record, n int) int) Partitioner {
	return func(string) Picker { return pickFunc(pick) }
}

type pickFunc func(r *record.Record, n int) int

func (f pickFunc) Pick(r *record.Record, n int) int { return f(r, n) }
func (pickFunc) Sealed(int)                         {}
