package half

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

const formatVersion = 1

// Kinds of records.
const (
	kindHalf = "half"
	kindLane = "lane"
)

type key struct {
	Kind      string `json:"k"`
	Group     string `json:"g,omitempty"`
	ID        ID     `json:"id,omitempty"`
	Topic     string `json:"t,omitempty"`
	Partition int32  `json:"p,omitempty"`
}

type status string

const (
	isHalf      status = "half"
	isCommitted status = "committed"
	isParked    status = "parked"
	isDelivered status = "delivered"
	isRolled    status = "rolled-back"
)

// decision returns what was decided, Unknown before.
func (s status) decision() Decision {
	switch s {
	case isCommitted, isDelivered:
		return Commit
	case isRolled:
		return Rollback
	}
	return Unknown
}

// payload is a record without its place.
type payload struct {
	Key     []byte          `json:"key"`
	Value   []byte          `json:"value"`
	Headers []record.Header `json:"headers,omitempty"`
	Time    int64           `json:"time"` // ms since 1970
}

// message is the value of a half message. It must not be changed once it is in a
// State.
type message struct {
	V         int             `json:"v"`
	Status    status          `json:"state"`
	Topic     string          `json:"topic"`
	Partition int32           `json:"partition"`
	Record    *payload        `json:"record,omitempty"`
	Policy    Policy          `json:"policy,omitempty"`
	Tries     int             `json:"tries,omitempty"`
	Due       int64           `json:"due"`             // of the next check; of being forgotten, when it is done
	Every     int64           `json:"every,omitempty"` // ms
	Most      int             `json:"most,omitempty"`
	Sequence  record.Sequence `json:"seq,omitempty"`
}

func (m *message) target() record.TopicPartition {
	return record.TopicPartition{Topic: m.Topic, Partition: m.Partition}
}

// record returns the record as it was stored.
func (m *message) record() record.Record {
	return record.Record{
		Topic: m.Topic, Partition: m.Partition, Key: m.Record.Key, Value: m.Record.Value,
		Headers: m.Record.Headers, Time: time.UnixMilli(m.Record.Time),
	}
}

// lane is the producer that appends to a partition.
type lane struct {
	V        int               `json:"v"`
	Producer record.ProducerID `json:"pid"`
	Next     record.Sequence   `json:"next"`
}

// state is what the records of a partition of __half_messages add up to. It is
// pure, and changes only by Apply.
type state struct {
	groups map[string]map[ID]*message
	lanes  map[record.TopicPartition]lane
}

func newState() *state {
	return &state{groups: map[string]map[ID]*message{}, lanes: map[record.TopicPartition]lane{}}
}

// Apply folds one record.
func (s *state) Apply(r record.Record) error {
	var k key
	if err := json.Unmarshal(r.Key, &k); err != nil {
		return fmt.Errorf("key %q: %w", r.Key, err)
	}
	var err error
	switch k.Kind {
	case kindHalf:
		var m *message
		if r.Value != nil {
			m, err = decode[message](r.Value)
		}
		if err == nil {
			s.put(k.Group, k.ID, m)
		}
	case kindLane:
		var l *lane
		if l, err = decode[lane](r.Value); err == nil {
			s.lanes[record.TopicPartition{Topic: k.Topic, Partition: k.Partition}] = *l
		}
	default:
		err = fmt.Errorf("this build does not know the kind")
	}
	if err != nil {
		return fmt.Errorf("record %s: %w", r.Key, err)
	}
	return nil
}

func (s *state) put(group string, id ID, m *message) {
	g := s.groups[group]
	if m == nil {
		delete(g, id)
		if len(g) == 0 {
			delete(s.groups, group)
		}
		return
	}
	if g == nil {
		g = map[ID]*message{}
		s.groups[group] = g
	}
	g[id] = m
}

// Keys returns the keys of the records that the state is made of.
func (s *state) Keys() (keys []any) {
	for group, messages := range s.groups {
		for id := range messages {
			keys = append(keys, key{Kind: kindHalf, Group: group, ID: id})
		}
	}
	for tp := range s.lanes {
		keys = append(keys, key{Kind: kindLane, Topic: tp.Topic, Partition: tp.Partition})
	}
	return keys
}

// Current returns the record that makes a key what it is, false if it is not there.
func (s *state) Current(of any, now time.Time) (r record.Record, ok bool, err error) {
	k := of.(key)
	var value any
	switch k.Kind {
	case kindHalf:
		value, ok = s.groups[k.Group][k.ID]
	case kindLane:
		value, ok = s.lanes[record.TopicPartition{Topic: k.Topic, Partition: k.Partition}]
	}
	if !ok {
		return r, false, nil
	}
	r, err = encode(now, k, value)
	return r, err == nil, err
}

func decode[T any](data []byte) (*T, error) {
	var version struct{ V int }
	if err := json.Unmarshal(data, &version); err != nil {
		return nil, err
	}
	if version.V != formatVersion {
		return nil, fmt.Errorf("version %d is not known, this build knows %d", version.V, formatVersion)
	}
	value := new(T)
	return value, json.Unmarshal(data, value)
}

// encode returns the record that sets k to value, or deletes it if that is nil.
func encode(now time.Time, k key, value any) (r record.Record, err error) {
	r.Time = now
	if r.Key, err = json.Marshal(k); err != nil || value == nil {
		return r, err
	}
	r.Value, err = json.Marshal(value)
	return r, err
}
