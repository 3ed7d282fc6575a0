package replica

import (
	"maps"
	"slices"
	"sort"
	"sync"

	"github.com/quorumlog/quorumlog/record"
)

// span is an aborted transaction: the producer's transactional batches from first
// up to last, the offset of its marker.
type span struct {
	producer    record.ProducerID
	first, last record.Offset
}

// aborted finds the batches that readers must not see: the transactions that were
// aborted in the part of the log that is kept. It is derived from the log, a part
// of the replica's state, and has a lock of its own, for readers.
type aborted struct {
	mu    sync.RWMutex
	spans map[record.ProducerID][]span // in order of the log; those of one producer do not overlap
}

func (a *aborted) add(s span) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.spans == nil {
		a.spans = map[record.ProducerID][]span{}
	}
	a.spans[s.producer] = append(a.spans[s.producer], s)
}

// replace forgets everything for what another state knows.
func (a *aborted) replace(spans map[record.ProducerID][]span) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.spans = spans
}

// trim forgets what lies wholly below start.
func (a *aborted) trim(start record.Offset) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, spans := range a.spans {
		n := sort.Search(len(spans), func(i int) bool { return spans[i].last >= start })
		switch {
		case n == len(spans):
			delete(a.spans, id)
		case n > 0:
			a.spans[id] = slices.Clone(spans[n:])
		}
	}
}

// committed leaves in batches, which are all below the last stable offset, what
// belongs to no aborted transaction and is no marker.
func (a *aborted) committed(batches []record.Batch) []record.Batch {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return slices.DeleteFunc(batches, func(b record.Batch) bool {
		return b.IsControl() || b.IsTransactional() && a.holds(b.ProducerID(), b.BaseOffset())
	})
}

// holds reports whether a producer's transactional batch was aborted. a.mu is held.
func (a *aborted) holds(id record.ProducerID, base record.Offset) bool {
	spans := a.spans[id]
	i := sort.Search(len(spans), func(i int) bool { return spans[i].last > base })
	return i < len(spans) && spans[i].first <= base
}

// all returns every span. Only who holds Replica.mu, without which none is added,
// may look into the answer.
func (a *aborted) all() map[record.ProducerID][]span {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.spans
}

func encodeSpans(b []byte, all map[record.ProducerID][]span) []byte {
	b = putU32(b, uint32(len(all)))
	for _, id := range slices.Sorted(maps.Keys(all)) {
		b = putU64(b, uint64(id))
		b = putU32(b, uint32(len(all[id])))
		for _, s := range all[id] {
			b = putU64(b, uint64(s.first), uint64(s.last))
		}
	}
	return b
}

func decodeSpans(d *decoder) map[record.ProducerID][]span {
	spans := map[record.ProducerID][]span{}
	for n := d.u32(); n > 0 && d.err == nil; n-- {
		id := record.ProducerID(d.u64())
		for k := d.u32(); k > 0 && d.err == nil; k-- {
			spans[id] = append(spans[id], span{id, record.Offset(d.u64()), record.Offset(d.u64())})
		}
	}
	return spans
}
