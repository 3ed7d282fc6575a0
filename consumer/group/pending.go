package group

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// endedFor is how long the end of a transaction is remembered, by the times of the
// records: what is late of it must be refused, and nothing is that late.
const endedFor = 24 * time.Hour

// abandonedAfter is how long a transaction's offsets hold others up whose coordinator
// may have forgotten it. It is twice the longest timeout of a transaction.
const abandonedAfter = 30 * time.Minute

// pending is what a transaction has committed here, which counts when it commits.
// It must not be changed.
type pending struct {
	open        bool
	epoch       record.ProducerEpoch // the transaction's, or of the marker that ended it
	coordinator record.LeaderEpoch   // of that marker
	offsets     map[record.TopicPartition]offset
	time        int64 // ms since 1970
}

// pend keeps offsets until the transaction ends. They must come from who owns the
// partitions, as those of a commit.
func (d *decision) pend(req Request) error {
	p, known := d.group.pending[req.Producer]
	switch {
	case known && req.Epoch < p.epoch:
		return &record.FencedError{
			What: fmt.Sprintf("producer %d in group %q", req.Producer, d.name), Have: int64(req.Epoch), Want: int64(p.epoch),
		}
	case known && p.open && req.Epoch > p.epoch:
		return fmt.Errorf("group %q, producer %d epoch %d: %w", d.name, req.Producer, p.epoch, record.ErrPending)
	}
	if err := d.current(req); err != nil {
		return err
	}
	if err := d.mayCommit(req); err != nil {
		return err
	}
	for _, o := range req.Offsets { // if the other aborted, what it has read would be lost
		if err := d.unsettled(o.TopicPartition, req.Producer); err != nil {
			return err
		}
	}
	offsets := map[record.TopicPartition]offset{}
	if p.open {
		maps.Copy(offsets, p.offsets)
	}
	for _, o := range req.Offsets {
		next := offset{topic: o.TopicID, next: o.Offset, metadata: o.Metadata}
		if last, ok := offsets[o.TopicPartition]; !ok || last.topic != next.topic || last.next < next.next || req.Rewind {
			offsets[o.TopicPartition] = next
		}
	}
	return d.putPending(req.Producer, pendingValue{Open: true, Epoch: req.Epoch, Coordinator: p.coordinator}, offsets)
}

// forgettable tells whether nothing that is late of an ended transaction can come.
func (p pending) forgettable(now time.Time) bool {
	return !p.open && now.UnixMilli()-p.time > endedFor.Milliseconds()
}

// settle ends a transaction: its offsets count, or are forgotten. It takes effect
// once, and not on a later transaction.
func (d *decision) settle(req Request) error {
	p, known := d.group.pending[req.Producer]
	switch {
	case known && req.Coordinator < p.coordinator:
		return &record.FencedError{
			What: fmt.Sprintf("coordinator of producer %d", req.Producer), Have: int64(req.Coordinator), Want: int64(p.coordinator),
		}
	case known && req.Epoch <= p.epoch:
		return nil
	}
	if p.open && req.Settle {
		for _, tp := range slices.SortedFunc(maps.Keys(p.offsets), record.TopicPartition.Compare) {
			o := p.offsets[tp]
			last, ok := d.group.offsets[tp]
			if ok && o.topic == last.topic && o.next < last.next {
				continue
			}
			if ok && o.topic != last.topic && last.at.UnixMilli() > p.time { // the topic was made anew meanwhile
				continue
			}
			k := key{Kind: kindOffset, Group: d.name, Topic: tp.Topic, Partition: tp.Partition}
			r, err := encode(d.now, k, o.value())
			if err != nil {
				return err
			}
			d.records = append(d.records, r)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(d.group.pending)) {
		if id != req.Producer && d.group.pending[id].forgettable(d.now) {
			if err := d.putPending(id, pendingValue{}, nil); err != nil {
				return err
			}
		}
	}
	return d.putPending(req.Producer, pendingValue{Epoch: req.Epoch, Coordinator: req.Coordinator}, nil)
}

// putPending decides on what is known of a producer; the zero value forgets it.
func (d *decision) putPending(id record.ProducerID, v pendingValue, offsets map[record.TopicPartition]offset) error {
	k := key{Kind: kindPending, Group: d.name, Producer: &id}
	var value any
	if v != (pendingValue{}) {
		v.V, v.Time = formatVersion, d.now.UnixMilli()
		value = pendingOffsets{pendingValue: v, Offsets: listed(offsets)}
	}
	r, err := encode(d.now, k, value)
	if err == nil {
		d.records = append(d.records, r)
	}
	return err
}

func (g *groupState) applyPending(id record.ProducerID, value []byte) error {
	if value == nil {
		delete(g.pending, id)
		return nil
	}
	v, err := decode[pendingOffsets](value)
	if err != nil {
		return err
	}
	p := pending{open: v.Open, epoch: v.Epoch, coordinator: v.Coordinator, time: v.Time}
	if v.Open {
		p.offsets = map[record.TopicPartition]offset{}
		for _, o := range v.Offsets {
			p.offsets[o.TopicPartition] = offset{topic: o.TopicID, next: o.Offset, metadata: o.Metadata}
		}
	}
	g.pending[id] = p
	return nil
}

// unsettled returns why the committed offset of a partition is not known yet: a
// transaction has one that may count soon. Who begins below it would read again
// what the transaction has read.
func (s *State) unsettled(ru rules, group string, tp record.TopicPartition, now time.Time) error {
	if s.groups[group] == nil {
		return nil
	}
	return s.decision(ru, group, now).unsettled(tp, record.NoProducerID)
}

// unsettled refuses a partition of which another producer's transaction has an offset.
func (d *decision) unsettled(tp record.TopicPartition, but record.ProducerID) error {
	for id, p := range d.group.pending {
		if _, ok := p.offsets[tp]; !ok || id == but {
			continue
		}
		if d.forgetful != nil && d.forgetful() && d.now.UnixMilli()-p.time > abandonedAfter.Milliseconds() {
			continue
		}
		return fmt.Errorf("group %q, %v: offset of producer %d epoch %d: %w", d.name, tp, id, p.epoch, record.ErrPending)
	}
	return nil
}
