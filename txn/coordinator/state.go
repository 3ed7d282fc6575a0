package coordinator

import (
	"maps"
	"slices"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// Status is where a transactional id stands.
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

// transaction is the value of a record: all that is known of a transactional id.
// It must not be changed once it is in a State.
type transaction struct {
	Status     Status
	Producer   record.ProducerID
	Epoch      record.ProducerEpoch
	Holder     string
	Past       []string // holders that were replaced, newest last
	Timeout    int64    // ms
	Start      int64    // of the open transaction, ms since 1970
	Updated    int64    // ms since 1970
	Partitions map[string][]int32
	Groups     []string

	LastProducer record.ProducerID
	LastEpoch    record.ProducerEpoch
	LastCommit   bool
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
	id, t, err := decode(r)
	switch {
	case err != nil:
		return err
	case t == nil:
		delete(s.transactions, id)
	default:
		s.transactions[id] = t
	}
	return nil
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
	return encode(now, id.(string), t), true, nil
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
