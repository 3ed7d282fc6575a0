package producer

import (
	"slices"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// identity is what a batch is sent under.
type identity struct {
	id    record.ProducerID
	epoch record.ProducerEpoch
}

// batch is a run of records of one partition on its way: open while it takes
// records, then sealed, then in flight, then finished. The producer's lock
// guards it, but for builder and data while it is in flight: those belong to
// the sender.
type batch struct {
	pt      *partition
	topic   record.TopicID  // that it is for
	builder *record.Builder // the records; nil once encoded
	data    record.Batch    // as first given away: only the bytes no leader stamps may be read
	slots   []slot          // who waits for what, one per record
	ids     []*known        // of the records, nil for one without; with Dedupe only
	gone    []int           // indexes of records taken back before the first try
	bytes   int64           // of the buffer, held until finished
	acks    record.Acks     // what all of its records asked for

	deadline    time.Time // then it is given up
	lingerUntil time.Time // then it leaves though it is not full

	// Set with the first try.
	count int32         // records
	low   record.Offset // it is not below

	// Set with each try.
	stamp  *record.ProducerStamp // nil without idempotence
	number int64                 // of the batches of its partition
	try    int
	flying bool // handed to the cluster, no answer yet
	alone  bool // nothing of the partition was in flight before it

	err   error // of the last try
	maybe bool  // a failed try may have been written

	finished bool
	answer   record.Appended
	failure  error
	flushes  []*flush

	// With Dedupe. A batch in doubt has been finished with an unknown outcome at its
	// deadline, but is repeated until it is known, so that its records are recognised
	// when they come again. Those that do are followers of it.
	doubt      bool
	doubtUntil time.Time // then its ids are of unknown outcome
	followers  []*batch
	id         *known // of a follower
}

// slot is who wants to know what became of one record: one of the two, or nobody.
type slot struct {
	done func(Result, error)
	wait *waiter
}

// waiter is a Send that waits.
type waiter struct {
	batch *batch
	index int // of its slot
	ready chan struct{}
	res   Result
	err   error
}

// result returns what became of record i.
func (b *batch) result(i int) (Result, error) {
	if b.failure != nil {
		return Result{}, b.failure
	}
	r := Result{
		Topic: b.pt.tp.Topic, Partition: b.pt.tp.Partition, Offset: b.answer.BaseOffset,
		Duplicate: b.answer.Duplicate, Synced: b.answer.Synced,
	}
	if r.Offset != record.NoOffset {
		r.Offset += record.Offset(i)
	}
	return r, nil
}

// callBack runs the callbacks, without the producer's lock.
func (b *batch) callBack() {
	for i, s := range b.slots {
		if s.done != nil {
			s.done(b.result(i))
		}
	}
}

// dropGone takes the slots of records that were taken back out of b. It leaves
// gone, sorted, for encode.
func (b *batch) dropGone() {
	slices.Sort(b.gone)
	kept := b.slots[:0]
	for i, s := range b.slots {
		if _, gone := slices.BinarySearch(b.gone, i); gone {
			continue
		}
		if s.wait != nil {
			s.wait.index = len(kept)
		}
		if b.ids != nil {
			b.ids[len(kept)] = b.ids[i]
		}
		kept = append(kept, s)
	}
	clear(b.slots[len(kept):])
	b.slots = kept
	if b.ids != nil {
		b.ids = b.ids[:len(kept)]
	}
}

// encode returns the bytes for this try. The sender calls it without the lock.
func (b *batch) encode(opt record.BatchOptions) (record.Batch, error) {
	if b.data != nil {
		return b.data.Reissue(b.stamp), nil
	}
	builder := b.builder
	if len(b.gone) > 0 {
		var err error
		if builder, err = without(builder, b.gone); err != nil {
			return nil, err
		}
	}
	opt.Producer = b.stamp
	data, err := builder.Build(opt)
	b.data = data
	return data, err
}

// without returns what is in builder but for the records at the sorted indexes gone.
func without(builder *record.Builder, gone []int) (*record.Builder, error) {
	all, err := builder.Build(record.BatchOptions{})
	if err != nil {
		return nil, err
	}
	var (
		rest record.Builder
		it   record.Iterator
		r    record.Record
	)
	if err := it.Reset(all); err != nil {
		return nil, err
	}
	for i := 0; it.Next(&r); i++ {
		if _, skip := slices.BinarySearch(gone, i); skip {
			continue
		}
		if err := rest.Append(&r); err != nil {
			return nil, err
		}
	}
	return &rest, it.Err()
}
