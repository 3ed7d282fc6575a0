package group

import (
	"fmt"

	"github.com/quorumlog/quorumlog/record"
)

// commit stores offsets, all or none. They must come from who owns the
// partitions, and has done so without a break since the generation it names. A rewind
// waits for a transaction that has a later one, which would undo it.
func (d *decision) commit(req Request) error {
	if err := d.current(req); err != nil {
		return err
	}
	if err := d.mayCommit(req); err != nil {
		return err
	}
	for _, o := range req.Offsets {
		if req.Rewind {
			if err := d.unsettled(o.TopicPartition, record.NoProducerID); err != nil {
				return err
			}
		}
		next := offset{topic: o.TopicID, next: o.Offset, metadata: o.Metadata}
		last, ok := d.group.offsets[o.TopicPartition]
		if ok && next.topic == last.topic && (next.next == last.next && next.metadata == last.metadata || next.next < last.next && !req.Rewind) {
			continue
		}
		k := key{Kind: kindOffset, Group: d.name, Topic: o.Topic, Partition: o.Partition}
		r, err := encode(d.now, k, offsetValue{V: formatVersion, TopicID: o.TopicID, Offset: o.Offset, Metadata: o.Metadata})
		if err != nil {
			return err
		}
		d.records = append(d.records, r)
	}
	return nil
}

func (d *decision) mayCommit(req Request) error {
	if req.Member == "" {
		if n := len(d.group.members); n > 0 {
			return &record.FencedError{
				What: fmt.Sprintf("commit without a member to group %q, which has %d,", d.name, n),
				Have: int64(req.Generation), Want: int64(d.group.generation),
			}
		}
		return nil
	}
	for _, o := range req.Offsets {
		own, ok := d.group.owners[o.TopicPartition]
		switch {
		case !ok || own.member != req.Member:
			return fmt.Errorf("commit of %v: %w", o.TopicPartition, d.fenced(req, d.group.generation))
		case req.Generation < own.since:
			return fmt.Errorf("commit of %v: %w", o.TopicPartition, d.fenced(req, own.since))
		}
	}
	return nil
}
