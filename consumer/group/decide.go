package group

import (
	"fmt"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// rules are what decisions rest on besides the state.
type rules struct {
	partitions func(topic string) int
	made       func(topic string) record.Offset  // nil: 0
	id         func(topic string) record.TopicID // nil: the zero id
	maxMembers int
	forgetful  func() bool // nil: false
}

// decision is one being made: the group as it is, or, once something was
// written, a draft of what it will be, and the records that make it so.
type decision struct {
	rules
	name    string
	now     time.Time // of the records
	group   *groupState
	drafted bool
	records []record.Record
}

func (s *State) decision(ru rules, name string, now time.Time) *decision {
	g := s.groups[name]
	if g == nil {
		g = newGroupState()
	}
	return &decision{rules: ru, name: name, now: now, group: g}
}

// decide returns the answer to a request that was checked, and the records that
// must be in the log before it is true. It changes nothing. [OpCommitted] is
// not for it: that needs a state no leader can be behind of.
func (s *State) decide(ru rules, name string, req Request, now time.Time) ([]record.Record, Response, error) {
	d := s.decision(ru, name, now)
	var err error
	switch req.Op {
	case OpJoin:
		err = d.join(req)
	case OpHeartbeat:
		err = d.heartbeat(req)
	case OpLeave:
		err = d.leave([]string{req.Member})
	case OpCommit:
		err = d.commit(req)
	case OpPend:
		err = d.pend(req)
	case OpSettle:
		err = d.settle(req)
	default:
		err = fmt.Errorf("operation %q: %w", req.Op, record.ErrInvalid)
	}
	if err != nil {
		return nil, Response{}, err
	}
	answer := Response{Generation: d.group.generation}
	if req.Op == OpJoin || req.Op == OpHeartbeat {
		answer.Assigned = d.group.assigned(req.Member)
	}
	return d.records, answer, nil
}

// expire returns the records that end the memberships of ids.
func (s *State) expire(ru rules, name string, ids []string, now time.Time) ([]record.Record, error) {
	d := s.decision(ru, name, now)
	err := d.leave(ids)
	return d.records, err
}

// put decides on a record: it is written, and true in the draft from now on.
// A nil value deletes k.
func (d *decision) put(k key, value any) error {
	k.Group = d.name
	r, err := encode(d.now, k, value)
	if err != nil {
		return err
	}
	if !d.drafted {
		d.group, d.drafted = d.group.draft(), true
	}
	d.records = append(d.records, r)
	return d.group.apply(k, r.Value, r.Time)
}

// fenced is the answer to a member that does not count any more.
func (d *decision) fenced(req Request, wants record.Generation) error {
	return &record.FencedError{
		What: fmt.Sprintf("member %q of group %q", req.Member, d.name),
		Have: int64(req.Generation),
		Want: int64(wants),
	}
}

// current refuses a request that knows more than this state does: the node was
// replaced as leader and has not noticed yet.
func (d *decision) current(req Request) error {
	if req.Generation > d.group.generation {
		return fmt.Errorf("group %q is at generation %d here, the member has heard of %d: %w",
			d.name, d.group.generation, req.Generation, record.ErrNotLeader)
	}
	return nil
}
