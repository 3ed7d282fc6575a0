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
	// Pick returns the partition for r, from 0 up to n, which is at least 1 and
	// may change while the producer lives. It must not keep r.
	Pick(r *record.Record, n int) int
}

// stickyBytes is how much goes to one partition before the next is picked, for
// records without a key. It is counted in records, not in batches: else a slow
// partition, whose batches wait for longer and grow, would get more than its share.
const stickyBytes = 64 << 10

// ByKey maps a key to the partition that Kafka's clients map it to, so records
// of one key stay in order. Records without a key go to a partition picked at
// random, 64 KiB to each, so that they share batches and all partitions get the
// same (KIP-480, KIP-794), but for those that do not take batches at the moment.
//
// With another number of partitions most keys have another partition: see
// Config.RefuseGrowth.
func ByKey(string) Picker { return new(byKey) }

type byKey struct {
	sticky int
	left   int                      // bytes that may still go to sticky
	down   func(partition int) bool // it does not take batches now; nil: nobody knows
}

func (k *byKey) Pick(r *record.Record, n int) int {
	if r.Key != nil {
		return KeyPartition(r.Key, n)
	}
	if k.left <= 0 || k.sticky >= n {
		k.sticky, k.left = k.choose(n), stickyBytes
	} else if k.isDown(k.sticky) {
		k.sticky = k.choose(n)
	}
	k.left -= record.SizeOf(r)
	return k.sticky
}

// choose returns a random partition, one that takes batches if there is any.
func (k *byKey) choose(n int) int {
	first := rand.IntN(n)
	if !k.isDown(first) {
		return first
	}
	var up []int
	for i := range n {
		if !k.isDown(i) {
			up = append(up, i)
		}
	}
	if len(up) == 0 {
		return first
	}
	return up[rand.IntN(len(up))]
}

func (k *byKey) isDown(partition int) bool { return k.down != nil && k.down(partition) }

// RoundRobin gives each record, with or without a key, to the next partition,
// beginning with one picked at random.
func RoundRobin(string) Picker { return &roundRobin{next: -1} }

type roundRobin struct{ next int } // -1 before the first record

func (rr *roundRobin) Pick(_ *record.Record, n int) int {
	if rr.next < 0 {
		rr.next = rand.IntN(n)
	}
	p := rr.next % n
	rr.next = (p + 1) % n
	return p
}

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
