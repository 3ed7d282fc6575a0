package group

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// forgotten returns the keys of what nobody has used for so long: offsets, and when
// none is left, the group itself (KIP-211). A group with members, or with an open
// transaction, uses all it has.
func (g *groupState) forgotten(name string, keep time.Duration, now time.Time) (keys []key) {
	if len(g.members) > 0 {
		return nil
	}
	dead := now.Sub(g.empty) >= keep
	for _, p := range g.pending {
		if p.open {
			return nil
		}
		dead = dead && p.forgettable(now)
	}
	for _, tp := range slices.SortedFunc(maps.Keys(g.offsets), record.TopicPartition.Compare) {
		used := g.offsets[tp].at
		if g.empty.After(used) {
			used = g.empty
		}
		if now.Sub(used) >= keep {
			keys = append(keys, key{Kind: kindOffset, Group: name, Topic: tp.Topic, Partition: tp.Partition})
		} else {
			dead = false
		}
	}
	if !dead {
		return keys
	}
	for _, id := range slices.Sorted(maps.Keys(g.pending)) {
		keys = append(keys, key{Kind: kindPending, Group: name, Producer: &id})
	}
	if g.generation > 0 {
		keys = append(keys, key{Kind: kindGroup, Group: name})
	}
	return keys
}

// forget deletes the offsets and groups that are not needed any more. Where there
// are none, which is nearly always, nothing is proposed.
func (c *Coordinator) forget() {
	found := false
	c.fold.View(func() {
		for name, g := range c.state.groups {
			found = found || len(g.forgotten(name, c.keep, time.Now())) > 0
		}
	})
	if !found {
		return
	}
	err := c.fold.Propose(c.life, func(record.LeaderEpoch) (records []record.Record, err error) {
		now := time.Now()
		for _, name := range slices.Sorted(maps.Keys(c.state.groups)) {
			for _, k := range c.state.groups[name].forgotten(name, c.keep, now) {
				r, err := encode(now, k, nil)
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
		c.logger.Warn("old offsets and groups could not be forgotten, trying again later", "err", err)
	}
}
