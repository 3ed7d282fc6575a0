package replica

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// Watch yields the status of every replica on this node, and again whenever its
// leader or epoch, its log start, its health (Err) or, where it leads, the in-sync
// replicas have changed; a last time, with record.ErrClosed in Err, when it is
// closed. Offsets are those of the moment, but records written are no change.
//
// Who takes long over one status is given the newest of each replica next, not
// each in between, and holds up nobody. It ends with ctx's error, or with
// record.ErrClosed when the node is closed. Any number may watch at once.
func (m *Mux) Watch(ctx context.Context) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		shown := map[groupID]Status{}
		for {
			news := m.news.wait()
			changes, again := m.changes(shown)
			for _, s := range changes {
				if !yield(s, nil) {
					return
				}
			}
			timer := time.NewTimer(again)
			var err error
			select {
			case <-news:
			case <-timer.C:
			case <-ctx.Done():
				err = ctx.Err()
			case <-m.life.Done():
				err = fmt.Errorf("watch: %w", record.ErrClosed)
			}
			timer.Stop()
			if err != nil {
				yield(Status{}, err)
				return
			}
		}
	}
}

// changes returns what is not as shown, and shows it; and when to look again: that
// a follower has fallen out of sync, nobody tells.
func (m *Mux) changes(shown map[groupID]Status) (changes []Status, again time.Duration) {
	again = time.Hour
	open := map[groupID]bool{}
	for _, r := range m.watch.all() {
		s := r.Status()
		open[r.id] = true
		if before, ok := shown[r.id]; !ok || !before.like(s) {
			shown[r.id] = s
			changes = append(changes, s)
		}
		if len(s.Replicas) > 1 {
			again = min(again, r.cfg.LagTimeMax/4)
		}
	}
	for id, s := range shown {
		if !open[id] {
			delete(shown, id)
			s.Err = fmt.Errorf("%v on node %q: %w", s.TopicPartition, s.Node, record.ErrClosed)
			changes = append(changes, s)
		}
	}
	return changes, again
}

// like tells whether two statuses of a replica differ in nothing but how far it got.
func (s Status) like(o Status) bool {
	return s.Leader == o.Leader && s.Epoch == o.Epoch && s.StartOffset == o.StartOffset && s.Err == o.Err &&
		slices.EqualFunc(s.Replicas, o.Replicas, func(a, b ReplicaStatus) bool { return a.Node == b.Node && a.InSync == b.InSync })
}

// announce wakes those who wait for another leader, and those who watch.
func (r *Replica) announce() {
	r.changed.fire()
	r.cfg.Mux.news.fire()
}
