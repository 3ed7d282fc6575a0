package replica

import (
	"fmt"
	"slices"

	"github.com/quorumlog/quorumlog/record"
)

// window is how many batches of each producer are remembered, so how many may
// be in flight. Kafka's number.
const window = 5

// batchRef is what is remembered of a batch.
type batchRef struct {
	epoch       record.ProducerEpoch
	first, last record.Sequence
	base        record.Offset
	timestamp   int64 // ms since 1970, the batch's maximum
}

// producers is the idempotence state of a partition: for each producer id its
// last batches, oldest first. It describes the tail of the log, uncommitted
// batches included, so that the leader decides on what really is there; commit
// trims each producer to its last five committed batches plus the uncommitted
// ones, and cut undoes what a truncation took away. Since a truncation never
// reaches committed batches, that is always enough.
//
// The rules are Kafka's ProducerAppendInfo (SEMANTICS 4), except for a producer
// without state: Kafka lets it begin anywhere, because there state goes when
// records do. Here it outlives them, so "without state" means new or forgotten.
type producers map[record.ProducerID][]batchRef

// verdict says what becomes of a batch. The zero value means: append it.
type verdict struct {
	err       error         // refuse, and why
	duplicate bool          // it is there already, at offset
	offset    record.Offset // of the original
}

func (v verdict) accepted() bool { return v.err == nil && !v.duplicate }

// check decides on a batch that is to be appended to the log's tail. The caller
// fills in the partition of errors.
func (p producers) check(b record.Batch) verdict {
	id := b.ProducerID()
	if id == record.NoProducerID {
		return verdict{}
	}
	refs := p[id]
	epoch, first, last := b.ProducerEpoch(), b.BaseSequence(), b.LastSequence()
	outOfOrder := func(want record.Sequence) verdict {
		return verdict{err: &record.OutOfOrderError{Producer: id, Epoch: epoch, Got: first, Want: want}}
	}
	if len(refs) == 0 {
		// It never wrote here, or was forgotten. Only its first batch is taken: any
		// other may have been written before, or follow one that was not.
		if first != 0 {
			return verdict{err: &record.OutOfOrderError{Producer: id, Epoch: epoch, Got: first, Unknown: true}}
		}
		return verdict{}
	}
	newest := refs[len(refs)-1]
	switch {
	case epoch < newest.epoch:
		return verdict{err: &record.FencedError{What: fmt.Sprintf("producer %d", id), Have: int64(epoch), Want: int64(newest.epoch)}}
	case epoch > newest.epoch:
		if first != 0 {
			return outOfOrder(0)
		}
		return verdict{}
	}
	for _, ref := range refs {
		if ref.epoch == epoch && ref.first == first && ref.last == last {
			return verdict{duplicate: true, offset: ref.base}
		}
	}
	want := newest.last.Add(1)
	switch behind := (int64(want) - int64(first)) & (1<<31 - 1); {
	case behind == 0:
		return verdict{}
	case behind < 1<<30: // it came before, and is older than what is remembered
		return verdict{err: fmt.Errorf("producer %d, sequence %d: %w", id, first, record.ErrDuplicate)}
	default:
		return outOfOrder(want)
	}
}

// add remembers an appended batch.
func (p producers) add(b record.Batch) {
	id := b.ProducerID()
	if id == record.NoProducerID || b.IsControl() {
		return
	}
	p[id] = append(p[id], batchRef{
		epoch: b.ProducerEpoch(), first: b.BaseSequence(), last: b.LastSequence(),
		base: b.BaseOffset(), timestamp: b.MaxTimestamp(),
	})
}

// commit forgets batches of a producer beyond the window; high is the high watermark.
func (p producers) commit(id record.ProducerID, high record.Offset) {
	refs := p[id]
	n := 0
	for len(refs)-n > window && refs[n+window].base < high {
		n++
	}
	if n > 0 {
		p[id] = refs[n:]
	}
}

// cut forgets every batch at or above end.
func (p producers) cut(end record.Offset) {
	for id, refs := range p {
		n := len(refs)
		for n > 0 && refs[n-1].base >= end {
			n--
		}
		if n == 0 {
			delete(p, id)
		} else {
			p[id] = refs[:n]
		}
	}
}

// lastBelow returns where the newest of refs below high begins, NoOffset if there
// is none, and how many refs lie below high.
func lastBelow(refs []batchRef, high record.Offset) (record.Offset, int) {
	n := len(refs)
	for n > 0 && refs[n-1].base >= high {
		n--
	}
	if n == 0 {
		return record.NoOffset, 0
	}
	return refs[n-1].base, n
}

// forget drops the producers whose newest batch below high, which is where the
// command to do so stands in the log, lies below offset, except those with an open
// transaction there. What stands behind the command is kept, so that it makes no
// difference whether it is stored already.
func (p producers) forget(offset, high record.Offset, open map[record.ProducerID]bool) {
	for id, refs := range p {
		switch last, n := lastBelow(refs, high); {
		case n == 0 || last >= offset || open[id]:
		case n == len(refs):
			delete(p, id)
		default:
			p[id] = slices.Clone(refs[n:])
		}
	}
}

// endBelow tells whether forget would drop something.
func (p producers) endBelow(offset, high record.Offset, open map[record.ProducerID]bool) bool {
	for id, refs := range p {
		if last, n := lastBelow(refs, high); n > 0 && last < offset && !open[id] {
			return true
		}
	}
	return false
}

// oldest returns the offset below which n producers have written last, of those
// that have written below high and have no open transaction.
func (p producers) oldest(n int, high record.Offset, open map[record.ProducerID]bool) record.Offset {
	ends := make([]record.Offset, 0, len(p))
	for id, refs := range p {
		if last, n := lastBelow(refs, high); n > 0 && !open[id] {
			ends = append(ends, last)
		}
	}
	if n >= len(ends) {
		return high
	}
	slices.Sort(ends)
	return ends[n]
}
