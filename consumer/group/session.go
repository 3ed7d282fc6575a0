package group

import (
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// sessions are the deadlines of all members, known to the leader alone. The
// fold's lock guards them: only decisions touch them.
type sessions struct {
	standard  time.Duration // of a member that names none
	epoch     record.LeaderEpoch
	deadlines map[memberKey]time.Time
	timer     *time.Timer // fires at armed, or a little before the first deadline
	armed     time.Time   // zero when the timer need not fire any more
	heard     time.Time   // when this leader last decided anything
}

type memberKey struct{ group, member string }

// begin gives every member a fresh session if the epoch is new: what was heard
// of them in an earlier one says nothing. Unless this node led in the one before
// too, as when a quiet partition slept and wakes up to end a session: then nobody
// else has heard of them, and only the time does not count in which it led not.
func (s *sessions) begin(epoch record.LeaderEpoch, state *State, now time.Time) {
	deaf := now.Sub(s.heard)
	s.heard = now
	if epoch == s.epoch {
		return
	}
	if s.epoch == 0 || epoch != s.epoch+1 {
		clear(s.deadlines)
	}
	s.epoch = epoch
	s.disarm()
	for name, g := range state.groups {
		for id, m := range g.members {
			k := memberKey{name, id}
			if deadline, ok := s.deadlines[k]; ok {
				s.deadlines[k] = deadline.Add(deaf)
				s.arm(s.deadlines[k], now)
			} else {
				s.touch(k, m.session, now)
			}
		}
	}
}

// touch begins a member's session anew.
func (s *sessions) touch(k memberKey, timeout time.Duration, now time.Time) {
	if timeout == 0 {
		timeout = s.standard
	}
	deadline := now.Add(timeout)
	s.deadlines[k] = deadline
	s.arm(deadline, now) // a no-op for all but the shortest sessions
}

// arm makes sure that the timer fires at t or before.
func (s *sessions) arm(t, now time.Time) {
	if s.armed.IsZero() || t.Before(s.armed) {
		s.armed = t
		s.timer.Reset(t.Sub(now))
	}
}

func (s *sessions) disarm() {
	s.armed = time.Time{}
	s.timer.Stop()
}

// expired returns the members of each group whose session is over, and sets the
// timer for the next one.
func (s *sessions) expired(state *State, now time.Time) map[string][]string {
	s.disarm()
	over := map[string][]string{}
	for name, g := range state.groups {
		for id := range g.members {
			deadline := s.deadlines[memberKey{name, id}] // each has one, from begin or its join
			if deadline.After(now) {
				s.arm(deadline, now)
			} else {
				over[name] = append(over[name], id)
			}
		}
	}
	for k := range s.deadlines {
		if g := state.groups[k.group]; g == nil {
			delete(s.deadlines, k)
		} else if _, ok := g.members[k.member]; !ok {
			delete(s.deadlines, k)
		}
	}
	return over
}
