package group

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

// Kinds of records.
const (
	kindGroup   = "group"
	kindMember  = "member"
	kindOwner   = "owner"
	kindOffset  = "offset"
	kindPending = "pending"
)

// key is what a record is about. The order of its fields makes the bytes of a
// key the same wherever they are written, so that compaction can compare them.
type key struct {
	Kind      string             `json:"k"`
	Group     string             `json:"g"`
	Member    string             `json:"m,omitempty"`
	Topic     string             `json:"t,omitempty"`
	Partition int32              `json:"p,omitempty"`
	Producer  *record.ProducerID `json:"pid,omitempty"`
}

func (k key) topicPartition() record.TopicPartition {
	return record.TopicPartition{Topic: k.Topic, Partition: k.Partition}
}

// Values of the records; a deleted thing has none.
type (
	groupValue struct {
		V          int                      `json:"v"`
		Generation record.Generation        `json:"gen"`
		Partitions map[string]int           `json:"topics"`
		Made       map[string]record.Offset `json:"made,omitempty"`
		Target     map[string]byTopic       `json:"target"`
		Empty      int64                    `json:"empty,omitempty"` // when a member went last, ms since 1970; 0 leaves it
	}
	memberValue struct {
		V        int      `json:"v"`
		Client   string   `json:"client,omitempty"`
		Instance string   `json:"instance,omitempty"`
		Topics   []string `json:"topics"`
		Session  int64    `json:"session"` // ms
		Assignor string   `json:"assignor,omitempty"`
	}
	ownerValue struct {
		V      int               `json:"v"`
		Member string            `json:"member"`
		Since  record.Generation `json:"since"`
	}
	offsetValue struct {
		V        int            `json:"v"`
		TopicID  record.TopicID `json:"topicID,omitzero"`
		Offset   record.Offset  `json:"offset"`
		Metadata string         `json:"metadata,omitempty"`
	}
	pendingValue struct {
		V           int                  `json:"v"`
		Open        bool                 `json:"open,omitempty"`
		Epoch       record.ProducerEpoch `json:"epoch"`
		Coordinator record.LeaderEpoch   `json:"coordinator"`
		Time        int64                `json:"time"` // ms since 1970
	}
	pendingOffsets struct {
		pendingValue
		Offsets []Offset `json:"offsets,omitempty"`
	}
	// byTopic is a set of partitions, shorter than a list of pairs.
	byTopic map[string][]int32
)

func newByTopic(tps []record.TopicPartition) byTopic {
	b := byTopic{}
	for _, tp := range tps {
		b[tp.Topic] = append(b[tp.Topic], tp.Partition)
	}
	return b
}

func (b byTopic) sorted() []record.TopicPartition {
	var tps []record.TopicPartition
	for _, topic := range slices.Sorted(maps.Keys(b)) {
		for _, p := range slices.Sorted(slices.Values(b[topic])) {
			tps = append(tps, record.TopicPartition{Topic: topic, Partition: p})
		}
	}
	return tps
}

// encode returns the record that sets k to value, or deletes k if that is nil.
func encode(now time.Time, k key, value any) (r record.Record, err error) {
	r.Time = now
	if r.Key, err = json.Marshal(k); err != nil || value == nil {
		return r, err
	}
	r.Value, err = json.Marshal(value)
	return r, err
}

// decode reads a value of a version that this build knows.
func decode[T any](data []byte) (T, error) {
	var value T
	var version struct{ V int }
	if err := json.Unmarshal(data, &version); err != nil {
		return value, err
	}
	if version.V != formatVersion {
		return value, fmt.Errorf("version %d is not known, this build knows %d", version.V, formatVersion)
	}
	err := json.Unmarshal(data, &value)
	return value, err
}
