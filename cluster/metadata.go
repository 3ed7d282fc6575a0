package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/quorumlog/quorumlog/record"
)

// Constants of the metadata format.
const (
	metadataVersion   = 1
	keyTopic          = "topic/"
	keyPartition      = "partition/"
	keyNode           = "node/"
	keyProducer       = "producer/"
	keyProducerIDs    = "producer-ids"
	producerBlock     = 1000
	lastProducerEpoch = 32766 // as in Kafka: 2^15-1 is kept for fencing
)

// metadata is what the records of the metadata partition add up to. The
// decisions are functions of it and return the records that make them true;
// fold is the only one to change it.
type metadata struct {
	founders  []string // the nodes while nodes is empty, sorted
	nodes     map[string]NodeState
	topics    map[string]Topic
	made      map[string]record.Offset    // of the records that made them
	deleted   map[record.TopicID]string   // their names
	placed    map[partitionKey]assignment // of all partitions of topics
	nextID    record.ProducerID           // no producer has this id or a higher one
	producers map[string]holder
	next      record.Offset // the first one that is not folded yet
}

func newMetadata() *metadata {
	return &metadata{
		nodes: map[string]NodeState{}, topics: map[string]Topic{}, made: map[string]record.Offset{}, deleted: map[record.TopicID]string{},
		placed: map[partitionKey]assignment{}, producers: map[string]holder{},
	}
}

// identity is what a producer stamps its batches with.
type identity struct {
	ID    record.ProducerID    `json:"id"`
	Epoch record.ProducerEpoch `json:"epoch"`
}

// holder is who has a producer's name. Renewed is the identity that the same
// holder had before, none if it took the name over from another.
type holder struct {
	identity
	Renewed *identity `json:"renewed,omitempty"`
}

// Values of the records. V is their version.
type (
	topicValue struct {
		V     int   `json:"v"`
		Topic Topic `json:"topic"`
	}
	assignmentValue struct {
		V int `json:"v"`
		assignment
	}
	nodeValue struct {
		V     int       `json:"v"`
		State NodeState `json:"state"`
	}
	producerIDsValue struct {
		V    int               `json:"v"`
		Next record.ProducerID `json:"next"`
	}
	producerValue struct {
		V int `json:"v"`
		holder
	}
)

// news is what a record has changed, as far as a node acts on it.
type news struct {
	made, grown, deleted *Topic
	placed               *partitionKey // its assignment is another
	nodes                bool
}

// fold takes in one record.
func (m *metadata) fold(r record.Record) (*news, error) {
	m.next = r.Offset + 1
	key := string(r.Key)
	if name, ok := strings.CutPrefix(key, keyTopic); ok && r.Value == nil {
		return m.foldDeleted(name), nil
	}
	var version struct{ V int }
	if err := json.Unmarshal(r.Value, &version); err != nil {
		return nil, fmt.Errorf("metadata record %q at offset %d: %w", key, r.Offset, err)
	}
	if version.V != metadataVersion {
		return nil, fmt.Errorf("metadata record %q at offset %d has version %d, this build knows %d", key, r.Offset, version.V, metadataVersion)
	}
	var err error
	switch {
	case strings.HasPrefix(key, keyTopic):
		var v topicValue
		if err = json.Unmarshal(r.Value, &v); err == nil {
			if had, ok := m.topics[v.Topic.Name()]; ok && had.ID == v.Topic.ID && had.Partitions() <= v.Topic.Partitions() {
				return m.foldGrown(had, v.Topic), nil
			}
			m.topics[v.Topic.Config.Name] = v.Topic
			m.made[v.Topic.Config.Name] = r.Offset
			for i, replicas := range v.Topic.Placement {
				m.placed[v.Topic.key(int32(i))] = assignment{Replicas: replicas}
			}
			return &news{made: &v.Topic}, nil
		}
	case strings.HasPrefix(key, keyPartition):
		var v assignmentValue
		var k partitionKey
		if err = json.Unmarshal(r.Value, &v); err == nil {
			if k, err = parsePartitionKey(strings.TrimPrefix(key, keyPartition)); err == nil {
				m.foldAssignment(k, v.assignment)
				return &news{placed: &k}, nil
			}
		}
	case strings.HasPrefix(key, keyNode):
		var v nodeValue
		if err = json.Unmarshal(r.Value, &v); err == nil {
			m.nodes[strings.TrimPrefix(key, keyNode)] = v.State
			return &news{nodes: true}, nil
		}
	case strings.HasPrefix(key, keyProducer):
		var v producerValue
		if err = json.Unmarshal(r.Value, &v); err == nil {
			m.producers[strings.TrimPrefix(key, keyProducer)] = v.holder
		}
	case key == keyProducerIDs:
		var v producerIDsValue
		if err = json.Unmarshal(r.Value, &v); err == nil {
			m.nextID = v.Next
		}
	default:
		err = fmt.Errorf("this build does not know the key")
	}
	if err != nil {
		return nil, fmt.Errorf("metadata record %q at offset %d: %w", key, r.Offset, err)
	}
	return &news{}, nil
}

func (m *metadata) foldDeleted(name string) *news {
	t, ok := m.topics[name]
	if !ok {
		return &news{}
	}
	delete(m.topics, name)
	delete(m.made, name)
	m.deleted[t.ID] = name
	for i := range t.Placement {
		delete(m.placed, t.key(int32(i)))
	}
	return &news{deleted: &t}
}

// foldAssignment keeps the topic's placement up to date too. Readers may have the
// topic, so it is changed in a copy.
func (m *metadata) foldAssignment(k partitionKey, a assignment) {
	if _, ok := m.placed[k]; !ok {
		return // deleted
	}
	m.placed[k] = a
	for name, t := range m.topics {
		if t.ID == k.topic {
			t.Placement = slices.Clone(t.Placement)
			t.Placement[k.partition] = a.Replicas
			m.topics[name] = t
		}
	}
}

// createTopic decides on a new topic. id is the caller's choice: when the same
// request comes again, because its first answer was lost, the topic of that id
// is the answer.
func (m *metadata) createTopic(cfg TopicConfig, id record.TopicID, nodes []string) (Topic, []record.Record, error) {
	if t, ok := m.topics[cfg.Name]; ok {
		if t.ID == id {
			return t, nil, nil
		}
		return Topic{}, nil, fmt.Errorf("topic %q: %w", cfg.Name, record.ErrTopicExists)
	}
	cfg = cfg.withDefaults(len(nodes))
	if err := cfg.check(len(nodes)); err != nil {
		return Topic{}, nil, err
	}
	t := Topic{Config: cfg, ID: id, Placement: place(nodes, m.goals(), cfg.Partitions, cfg.Replicas)}
	r, err := metadataRecord(keyTopic+cfg.Name, topicValue{V: metadataVersion, Topic: t})
	return t, []record.Record{r}, err
}

// takeProducerIDs decides on the next count ids, which nobody else gets.
func (m *metadata) takeProducerIDs(count int) (record.ProducerID, []record.Record, error) {
	first := m.nextID
	r, err := metadataRecord(keyProducerIDs, producerIDsValue{V: metadataVersion, Next: first + record.ProducerID(count)})
	return first, []record.Record{r}, err
}

// takeProducerName decides on the identity of the next holder of a name: the
// same id with a higher epoch, so that the holder before is fenced.
func (m *metadata) takeProducerName(name string) (identity, []record.Record, error) {
	return m.nextEpoch(name, nil)
}

// renewProducerName decides on the next identity of the holder that has held,
// unless another has the name by now: *record.FencedError. When the same request
// comes again, because its first answer was lost, that answer stands.
func (m *metadata) renewProducerName(name string, held identity) (identity, []record.Record, error) {
	now, known := m.producers[name]
	switch {
	case known && now.Renewed != nil && *now.Renewed == held:
		return now.identity, nil, nil
	case !known || now.identity != held:
		return identity{}, nil, &record.FencedError{What: fmt.Sprintf("producer %q", name), Have: int64(held.Epoch), Want: int64(now.Epoch)}
	}
	return m.nextEpoch(name, &held)
}

// nextEpoch is the next identity under a name. When the epochs are used up it
// has a new id.
func (m *metadata) nextEpoch(name string, renewed *identity) (identity, []record.Record, error) {
	var records []record.Record
	now, known := m.producers[name]
	who := now.identity
	if known && who.Epoch < lastProducerEpoch {
		who.Epoch++
	} else {
		id, ids, err := m.takeProducerIDs(1)
		if err != nil {
			return identity{}, nil, err
		}
		who, records = identity{ID: id}, ids
	}
	r, err := metadataRecord(keyProducer+name, producerValue{V: metadataVersion, holder: holder{identity: who, Renewed: renewed}})
	return who, append(records, r), err
}

// allTopics returns the topics by name, the cluster's own too.
func (m *metadata) allTopics() (topics []Topic) {
	for _, name := range slices.Sorted(maps.Keys(m.topics)) {
		topics = append(topics, m.topics[name])
	}
	return topics
}

// sortedTopics returns the topics users made, by name.
func (m *metadata) sortedTopics() []Topic {
	return slices.DeleteFunc(m.allTopics(), func(t Topic) bool { return isInternal(t.Name()) })
}

func metadataRecord(key string, value any) (record.Record, error) {
	v, err := json.Marshal(value)
	return record.Record{Key: []byte(key), Value: v}, err
}
