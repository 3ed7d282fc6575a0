package coordinator

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// formatVersion is the version of every value.
const formatVersion = 1

const kindTxn = "txn"

// Status is where a transactional id stands. The words are part of the format.
type Status string

// States of a transactional id. One that is dead has no record.
const (
	Dead           Status = "dead"
	Empty          Status = "empty"
	Ongoing        Status = "ongoing"
	PrepareCommit  Status = "prepare-commit"
	PrepareAbort   Status = "prepare-abort"
	CompleteCommit Status = "complete-commit"
	CompleteAbort  Status = "complete-abort"
)

func (s Status) prepared() bool { return s == PrepareCommit || s == PrepareAbort }

// complete returns what a prepared state becomes.
func (s Status) complete() Status {
	if s == PrepareCommit {
		return CompleteCommit
	}
	return CompleteAbort
}

type key struct {
	Kind string `json:"k"`
	ID   string `json:"id"`
}

// transaction is the value of a record: all that is known of a transactional id.
// It must not be changed once it is in a State.
type transaction struct {
	V          int                  `json:"v"`
	Status     Status               `json:"state"`
	Producer   record.ProducerID    `json:"pid"`
	Epoch      record.ProducerEpoch `json:"epoch"`
	Holder     string               `json:"holder"`
	Past       []string             `json:"past,omitempty"`  // holders that were replaced, newest last
	Timeout    int64                `json:"timeout"`         // ms
	Start      int64                `json:"start,omitempty"` // of the open transaction, ms since 1970
	Updated    int64                `json:"updated"`         // ms since 1970
	Partitions map[string][]int32   `json:"partitions,omitempty"`
	Groups     []string             `json:"groups,omitempty"`

	LastProducer record.ProducerID    `json:"lastPid"`
	LastEpoch    record.ProducerEpoch `json:"lastEpoch"`
	LastCommit   bool                 `json:"lastCommit"`
}

func (t *transaction) deadline() time.Time { return time.UnixMilli(t.Start + t.Timeout) }

func (t *transaction) has(tp record.TopicPartition) bool {
	return slices.Contains(t.Partitions[tp.Topic], tp.Partition)
}

// sorted returns the partitions in order.
func (t *transaction) sorted() (tps []record.TopicPartition) {
	for _, topic := range slices.Sorted(maps.Keys(t.Partitions)) {
		for _, p := range t.Partitions[topic] {
			tps = append(tps, record.TopicPartition{Topic: topic, Partition: p})
		}
	}
	return tps
}

// State is all transactional ids that the records of a partition of
// __transaction_state add up to. It is pure: it knows no clock and no node, and
// changes only by Apply.
type State struct {
	transactions map[string]*transaction
	forgetful    bool // Config.Forgetful
}

// NewState returns the state of an empty partition.
func NewState() *State { return &State{transactions: map[string]*transaction{}} }

// Apply folds one record. An error means that this build does not understand
// it; the state is as before then.
func (s *State) Apply(r record.Record) error {
	var k key
	if err := json.Unmarshal(r.Key, &k); err != nil {
		return fmt.Errorf("key %q: %w", r.Key, err)
	}
	if k.Kind != kindTxn {
		return fmt.Errorf("record %s: this build does not know the kind", r.Key)
	}
	if r.Value == nil {
		delete(s.transactions, k.ID)
		return nil
	}
	var version struct{ V int }
	if err := json.Unmarshal(r.Value, &version); err != nil {
		return fmt.Errorf("record %s: %w", r.Key, err)
	}
	if version.V != formatVersion {
		return fmt.Errorf("record %s: version %d is not known, this build knows %d", r.Key, version.V, formatVersion)
	}
	t := new(transaction)
	if err := json.Unmarshal(r.Value, t); err != nil {
		return fmt.Errorf("record %s: %w", r.Key, err)
	}
	s.transactions[k.ID] = t
	return nil
}

// encode returns the record that sets id to t, or deletes it if t is nil.
func encode(now time.Time, id string, t *transaction) (r record.Record, err error) {
	r.Time = now
	if r.Key, err = json.Marshal(key{kindTxn, id}); err != nil || t == nil {
		return r, err
	}
	r.Value, err = json.Marshal(t)
	return r, err
}

// Keys returns all ids.
func (s *State) Keys() []any {
	keys := make([]any, 0, len(s.transactions))
	for id := range s.transactions {
		keys = append(keys, id)
	}
	return keys
}

// Current returns the record that makes an id what it is, false if it is dead.
func (s *State) Current(id any, now time.Time) (r record.Record, ok bool, err error) {
	t, ok := s.transactions[id.(string)]
	if !ok {
		return r, false, nil
	}
	r, err = encode(now, id.(string), t)
	return r, err == nil, err
}

// Info is what people want to know of a transactional id.
type Info struct {
	ID       string
	Producer record.ProducerID
	Epoch    record.ProducerEpoch // from prepare on the one of the markers
	Status   Status
	Start    time.Time // of the open transaction; zero when none is
	Timeout  time.Duration

	Partitions []record.TopicPartition // that the open transaction has touched
	Groups     []string
}

// Info returns what is known of id.
func (s *State) Info(id string) Info {
	t := s.transactions[id]
	if t == nil {
		return Info{ID: id, Producer: record.NoProducerID, Status: Dead}
	}
	info := Info{
		ID: id, Producer: t.Producer, Epoch: t.Epoch, Status: t.Status,
		Timeout:    time.Duration(t.Timeout) * time.Millisecond,
		Partitions: t.sorted(), Groups: slices.Clone(t.Groups),
	}
	if t.Start > 0 {
		info.Start = time.UnixMilli(t.Start)
	}
	return info
}

// Open returns the transactions that have not ended everywhere, by id.
func (s *State) Open() (open []Info) {
	for _, id := range slices.Sorted(maps.Keys(s.transactions)) {
		if t := s.transactions[id]; t.Status == Ongoing || t.Status.prepared() {
			open = append(open, s.Info(id))
		}
	}
	return open
}
