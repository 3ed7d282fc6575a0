package half

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

const (
	doneFor = 24 * time.Hour // what was decided is remembered for so long
	maxPoll = 100            // messages that one poll hands out
)

// errNeedID asks for one more unused producer id.
var errNeedID = errors.New("a producer id is needed")

// decision is one being made: the records that make it so, over what the state holds.
type decision struct {
	s       *state
	group   string
	now     time.Time
	fresh   []record.ProducerID // unused
	lanes   map[record.TopicPartition]lane
	records []record.Record
}

func (s *state) decision(group string, now time.Time, fresh []record.ProducerID) *decision {
	return &decision{s: s, group: group, now: now, fresh: fresh, lanes: map[record.TopicPartition]lane{}}
}

// do returns the answer to a request that was checked. It changes nothing.
func (d *decision) do(req Request) (Response, error) {
	switch req.Op {
	case OpStore:
		return d.store(req)
	case OpDecide:
		return d.decide(req)
	case OpPoll:
		return d.poll()
	case OpList:
		return d.list(), nil
	}
	return Response{}, fmt.Errorf("operation %q: %w", req.Op, record.ErrInvalid)
}

func (d *decision) store(req Request) (Response, error) {
	if m := d.s.groups[d.group][req.ID]; m != nil {
		return Response{Decision: m.Status.decision()}, nil
	}
	r, s := req.Record, req.Schedule
	at := r.Time
	if at.IsZero() {
		at = d.now
	}
	return Response{}, d.put(req.ID, message{
		V: formatVersion, Status: isHalf, Topic: r.Topic, Partition: r.Partition,
		Record: &payload{Key: r.Key, Value: r.Value, Headers: r.Headers, Time: at.UnixMilli()},
		Policy: cmp.Or(s.Policy, RollbackUndecided),
		Due:    d.now.Add(cmp.Or(s.First, 6*time.Second)).UnixMilli(),
		Every:  cmp.Or(s.Every, 30*time.Second).Milliseconds(),
		Most:   cmp.Or(s.Most, 15),
	})
}

func (d *decision) decide(req Request) (Response, error) {
	m := d.s.groups[d.group][req.ID]
	if m == nil {
		return Response{}, fmt.Errorf("%q of %q: %w", req.ID, d.group, ErrGone)
	}
	if was := m.Status.decision(); was != Unknown {
		return Response{Decision: was}, nil
	}
	return Response{Decision: req.Decision}, d.end(req.ID, *m, req.Decision)
}

// end writes a decision down.
func (d *decision) end(id ID, m message, as Decision) error {
	if as == Rollback {
		m.Status = isRolled
		return d.put(id, d.done(m))
	}
	l, err := d.lane(m.target())
	if err != nil {
		return err
	}
	m.Status, m.Sequence = isCommitted, l.Next
	l.Next = l.Next.Add(1)
	if err := d.putLane(m.target(), l); err != nil {
		return err
	}
	return d.put(id, m)
}

// done drops what is not needed of a message that is over.
func (d *decision) done(m message) message {
	return message{V: formatVersion, Status: m.Status, Topic: m.Topic, Partition: m.Partition, Due: d.now.Add(doneFor).UnixMilli()}
}

// poll hands out what is due, and does what the policy says with what has been
// checked often enough.
func (d *decision) poll() (a Response, err error) {
	now := d.now.UnixMilli()
	messages := d.s.groups[d.group]
	for _, id := range slices.SortedFunc(maps.Keys(messages), func(a, b ID) int {
		return cmp.Or(cmp.Compare(messages[a].Due, messages[b].Due), cmp.Compare(a, b))
	}) {
		m := *messages[id]
		switch {
		case m.Status == isParked || m.Status == isCommitted:
			continue
		case m.Due > now:
			if m.Status == isHalf && a.Next == 0 {
				a.Next = time.Duration(m.Due-now) * time.Millisecond
			}
			continue
		case m.Status != isHalf:
			err = d.forget(id)
		case m.Tries >= m.Most:
			err = d.undecided(id, m)
		case len(a.Halves) >= maxPoll:
			a.Next = time.Millisecond // there is more
		default:
			m.Tries++
			m.Due = now + m.Every
			a.Halves = append(a.Halves, Half{ID: id, Tries: m.Tries, Record: m.record()})
			err = d.put(id, m)
		}
		if err != nil {
			return Response{}, err
		}
	}
	if len(a.Halves) > 0 && a.Next == 0 {
		a.Next = time.Second
	}
	return a, nil
}

// undecided does what the policy says.
func (d *decision) undecided(id ID, m message) error {
	switch m.Policy {
	case CommitUndecided:
		return d.end(id, m, Commit)
	case ParkUndecided:
		m.Status = isParked
		return d.put(id, m)
	}
	return d.end(id, m, Rollback)
}

func (d *decision) list() (a Response) {
	messages := d.s.groups[d.group]
	for _, id := range slices.Sorted(maps.Keys(messages)) {
		if m := messages[id]; m.Status.decision() == Unknown {
			a.Halves = append(a.Halves, Half{ID: id, Tries: m.Tries, Record: m.record()})
		}
	}
	return a
}

// lane returns the lane of a partition as it is after what was decided so far.
func (d *decision) lane(tp record.TopicPartition) (lane, error) {
	if l, ok := d.lanes[tp]; ok {
		return l, nil
	}
	if l, ok := d.s.lanes[tp]; ok {
		return l, nil
	}
	return d.newLane()
}

func (d *decision) newLane() (lane, error) {
	if len(d.fresh) == 0 {
		return lane{}, errNeedID
	}
	id := d.fresh[0]
	d.fresh = d.fresh[1:]
	return lane{V: formatVersion, Producer: id}, nil
}

// delivered writes down that messages are in their topic.
func (d *decision) delivered(which []delivery) error {
	for _, v := range which {
		m := d.s.groups[v.group][v.id]
		if m == nil || m.Status != isCommitted {
			continue
		}
		d.group = v.group
		over := *m
		over.Status = isDelivered
		if err := d.put(v.id, d.done(over)); err != nil {
			return err
		}
	}
	return nil
}

// relane gives what waits for a partition to a new producer, in its order.
func (d *decision) relane(tp record.TopicPartition, from record.ProducerID) error {
	if d.s.lanes[tp].Producer != from {
		return nil
	}
	l, err := d.newLane()
	if err != nil {
		return err
	}
	for _, v := range d.s.waiting()[tp] {
		m := *v.message
		m.Sequence = l.Next
		l.Next = l.Next.Add(1)
		d.group = v.group
		if err := d.put(v.id, m); err != nil {
			return err
		}
	}
	return d.putLane(tp, l)
}

func (d *decision) put(id ID, m message) error {
	return d.write(key{Kind: kindHalf, Group: d.group, ID: id}, m)
}

func (d *decision) forget(id ID) error {
	return d.write(key{Kind: kindHalf, Group: d.group, ID: id}, nil)
}

func (d *decision) putLane(tp record.TopicPartition, l lane) error {
	d.lanes[tp] = l
	return d.write(key{Kind: kindLane, Topic: tp.Topic, Partition: tp.Partition}, l)
}

func (d *decision) write(k key, value any) error {
	r, err := encode(d.now, k, value)
	if err == nil {
		d.records = append(d.records, r)
	}
	return err
}

// delivery is a committed message on its way to its topic.
type delivery struct {
	group   string
	id      ID
	message *message
}

// waiting returns the committed messages of each partition, in their order.
func (s *state) waiting() map[record.TopicPartition][]delivery {
	all := map[record.TopicPartition][]delivery{}
	for group, messages := range s.groups {
		for id, m := range messages {
			if m.Status == isCommitted {
				all[m.target()] = append(all[m.target()], delivery{group, id, m})
			}
		}
	}
	for _, vs := range all {
		slices.SortFunc(vs, func(a, b delivery) int {
			ahead := (int64(a.message.Sequence) - int64(b.message.Sequence)) & (1<<31 - 1)
			if ahead >= 1<<30 { // sequences wrap
				ahead -= 1 << 31
			}
			return cmp.Compare(ahead, 0)
		})
	}
	return all
}
