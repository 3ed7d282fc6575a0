package replica

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/quorumlog/quorumlog/record"
)

// transactional is what a partition knows of one producer of transactions.
type transactional struct {
	// epoch is that of the newest marker, or of the transaction that is open
	// since. What is below it is over.
	epoch       record.ProducerEpoch
	coordinator record.LeaderEpoch // of the newest marker
	first       record.Offset      // of the open transaction, NoOffset when none is
	last        record.Offset      // of the newest marker, NoOffset before
	time        int64              // of the batch that made it so, ms since 1970
}

func (t transactional) open() bool { return t.first != record.NoOffset }

// after returns what t becomes by a batch, and whether it becomes another.
func (t transactional) after(b record.Batch) (transactional, bool) {
	if !b.IsTransactional() {
		return t, false
	}
	if b.IsControl() {
		m, ok, err := record.ParseMarker(b)
		if err != nil || !ok || m.Epoch <= t.epoch {
			return t, false // what a leader has checked is never damaged, nor late
		}
		return transactional{
			epoch: m.Epoch, coordinator: m.Coordinator, first: record.NoOffset, last: b.BaseOffset(), time: b.MaxTimestamp(),
		}, true
	}
	if t.open() {
		return t, false
	}
	t.epoch, t.first, t.time = b.ProducerEpoch(), b.BaseOffset(), b.MaxTimestamp()
	return t, true
}

// turn is what a stored batch makes of a producer.
type turn struct {
	producer record.ProducerID
	base     record.Offset // of the batch
	to       transactional
}

// permit lets a producer begin a transaction in the partition. It is the
// coordinator's word that the transaction is open and will be ended here, so it
// counts only while this replica leads in the epoch in which it heard it.
type permit struct {
	epoch record.ProducerEpoch
	term  record.LeaderEpoch
}

// transactions is the state of transactions in a partition. Like producers it
// describes the tail of the log, so that the leader decides on what really is
// there. Replica.mu guards it.
type transactions struct {
	applied map[record.ProducerID]transactional // by the batches that are applied
	open    map[record.ProducerID]bool          // those of applied whose transaction is
	tail    []turn                              // by those that are stored only, in order of the log
	permits map[record.ProducerID]permit
}

func newTransactions() transactions {
	return transactions{
		applied: map[record.ProducerID]transactional{}, open: map[record.ProducerID]bool{}, permits: map[record.ProducerID]permit{},
	}
}

// get returns what the tail of the log says of a producer.
func (t *transactions) get(id record.ProducerID) transactional {
	for _, c := range slices.Backward(t.tail) { // short: only begins and ends on their way
		if c.producer == id {
			return c.to
		}
	}
	return t.whenApplied(id)
}

func (t *transactions) whenApplied(id record.ProducerID) transactional {
	if s, ok := t.applied[id]; ok {
		return s
	}
	return transactional{epoch: -1, first: record.NoOffset, last: record.NoOffset}
}

// check decides on a batch that is no marker, as far as transactions go. term is
// the epoch in which it is to be appended. The caller fills in the partition of
// errors.
func (t *transactions) check(b record.Batch, term record.LeaderEpoch) verdict {
	id, epoch := b.ProducerID(), b.ProducerEpoch()
	if id == record.NoProducerID {
		if b.IsTransactional() {
			return verdict{err: fmt.Errorf("%w: a transactional batch without a producer id", record.ErrInvalid)}
		}
		return verdict{}
	}
	s := t.get(id)
	p, permitted := t.permits[id]
	permitted = permitted && p.epoch == epoch && p.term == term
	switch {
	case epoch < s.epoch:
		return verdict{err: fenced(id, epoch, s.epoch)}
	case b.IsTransactional() && (s.open() && s.epoch == epoch || !s.open() && permitted):
		return verdict{}
	case b.IsTransactional() || s.open():
		return verdict{err: &record.TransactionError{Producer: id, Epoch: epoch, Open: s.open()}}
	}
	return verdict{}
}

// checkMarker decides on a marker. One that comes again is a duplicate.
func (t *transactions) checkMarker(b record.Batch) verdict {
	m, ok, err := record.ParseMarker(b)
	if err != nil {
		return verdict{err: err}
	}
	if !ok {
		return verdict{err: fmt.Errorf("%w: the control batch is no marker", record.ErrInvalid)}
	}
	switch s := t.get(m.Producer); {
	case m.Coordinator < s.coordinator:
		return verdict{err: &record.FencedError{
			What: fmt.Sprintf("coordinator of producer %d", m.Producer), Have: int64(m.Coordinator), Want: int64(s.coordinator),
		}}
	case m.Epoch <= s.epoch: // its transaction has ended here; another one may be open
		return verdict{duplicate: true, offset: s.last}
	}
	return verdict{}
}

func fenced(id record.ProducerID, have, want record.ProducerEpoch) error {
	return &record.FencedError{What: fmt.Sprintf("producer %d", id), Have: int64(have), Want: int64(want)}
}

// add takes in a batch that was stored.
func (t *transactions) add(b record.Batch) {
	if !b.IsTransactional() {
		return
	}
	id := b.ProducerID()
	if to, ok := t.get(id).after(b); ok {
		t.tail = append(t.tail, turn{id, b.BaseOffset(), to})
		if !to.open() {
			delete(t.permits, id)
		}
	}
}

// cut forgets what batches at or above end have changed.
func (t *transactions) cut(end record.Offset) {
	n := len(t.tail)
	for n > 0 && t.tail[n-1].base >= end {
		n--
	}
	t.tail = t.tail[:n]
}

// apply takes in a batch that is committed. If it aborts a transaction, that is
// returned.
func (t *transactions) apply(b record.Batch) (aborted span, ok bool) {
	n := 0
	for n < len(t.tail) && t.tail[n].base <= b.BaseOffset() {
		n++
	}
	t.tail = t.tail[n:]
	if !b.IsTransactional() {
		return span{}, false
	}
	id := b.ProducerID()
	before := t.whenApplied(id)
	after, changed := before.after(b)
	if !changed {
		return span{}, false
	}
	t.applied[id] = after
	if after.open() {
		t.open[id] = true
		return span{}, false
	}
	delete(t.open, id)
	m, _, _ := record.ParseMarker(b) // after has read it
	return span{id, before.first, after.last}, before.open() && !m.Commit
}

// forget drops the producers whose last transaction has ended below offset.
// Nothing is as late as that, and it would need a permit.
func (t *transactions) forget(offset record.Offset) {
	maps.DeleteFunc(t.applied, func(_ record.ProducerID, s transactional) bool { return !s.open() && s.last < offset })
}

// stable returns the last stable offset: the first of the oldest transaction that
// is open by what is applied, else the high watermark.
func (t *transactions) stable(high record.Offset) record.Offset {
	for id := range t.open {
		high = min(high, t.applied[id].first)
	}
	return high
}

// OpenTransaction is a transaction that is open in a partition.
type OpenTransaction struct {
	Producer record.ProducerID
	Epoch    record.ProducerEpoch
	First    record.Offset // of its records
	Time     int64         // of the first batch, as its records have it, ms since 1970
	// Coordinator is the newest epoch of a coordinator that has marked here.
	Coordinator record.LeaderEpoch
}

// OpenTransactions returns the transactions that are open below the high
// watermark, the oldest first: the first one holds the last stable offset back.
func (r *Replica) OpenTransactions() (open []OpenTransaction) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.transactions.open {
		s := r.transactions.applied[id]
		open = append(open, OpenTransaction{id, s.epoch, s.first, s.time, s.coordinator})
	}
	slices.SortFunc(open, func(a, b OpenTransaction) int { return cmp.Compare(a.First, b.First) })
	return open
}

// encode appends the applied state.
func (t *transactions) encode(b []byte) []byte {
	b = putU32(b, uint32(len(t.applied)))
	for _, id := range slices.Sorted(maps.Keys(t.applied)) {
		s := t.applied[id]
		b = putU64(b, uint64(id))
		b = putU32(b, uint32(s.epoch), uint32(s.coordinator))
		b = putU64(b, uint64(s.first), uint64(s.last), uint64(s.time))
	}
	return b
}

func decodeTransactions(d *decoder) transactions {
	t := newTransactions()
	for n := d.u32(); n > 0 && d.err == nil; n-- {
		id := record.ProducerID(d.u64())
		s := transactional{
			epoch: record.ProducerEpoch(d.u32()), coordinator: record.LeaderEpoch(d.u32()),
			first: record.Offset(d.u64()), last: record.Offset(d.u64()), time: int64(d.u64()),
		}
		t.applied[id] = s
		if s.open() {
			t.open[id] = true
		}
	}
	return t
}
