package group

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// forgotten returns the offsets of a group that nobody has used for so long. A
// group with members, or with an open transaction, uses all it has.
func (g *groupState) forgotten(keep time.Duration, now time.Time) (tps []record.TopicPartition) {
	if len(g.members) > 0 {
		return nil
	}
	for _, p := range g.pending {
		if p.open {
			return nil
		}
	}
	for tp, o := range g.offsets {
		used := o.at
		if g.empty.After(used) {
			used = g.empty
		}
		if now.Sub(used) >= keep {
			tps = append(tps, tp)
		}
	}
	slices.SortFunc(tps, record.TopicPartition.Compare)
	return tps
}

// forget deletes the offsets that are not needed any more. Where there are
// none, which is nearly always, nothing is proposed.
func (c *Coordinator) forget() {
	found := false
	c.fold.View(func() {
		for _, g := range c.state.groups {
			found = found || len(g.forgotten(c.keep, time.Now())) > 0
		}
	})
	if !found {
		return
	}
	err := c.fold.Propose(c.life, func(record.LeaderEpoch) (records []record.Record, err error) {
		now := time.Now()
		for _, name := range slices.Sorted(maps.Keys(c.state.groups)) {
			for _, tp := range c.state.groups[name].forgotten(c.keep, now) {
				r, err := encode(now, key{Kind: kindOffset, Group: name, Topic: tp.Topic, Partition: tp.Partition}, nil)
				if err != nil {
					return nil, err
				}
				records = append(records, r)
			}
		}
		return records, nil
	})
	switch {
	case err == nil, errors.Is(err, record.ErrNotLeader), errors.Is(err, record.ErrClosed), errors.Is(err, context.Canceled):
	default:
		c.logger.Warn("old offsets could not be forgotten, trying again later", "err", err)
	}
}
