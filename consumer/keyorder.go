package consumer

import (
	"context"
	"fmt"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// keyID is a key at its origin.
type keyID struct {
	origin record.TopicPartition
	key    string
}

func keyOf(f *Failure, key []byte) keyID { return keyID{f.Origin, string(key)} }

// keys knows the keys that have records in the retry topics: from reading what
// of these topics the group has not committed, and from what this member moves.
//
// It may take a key for waiting that is not any more, and then a record goes
// the long way round, in order. It never misses one: whoever handled a stage's
// records before this member has stopped when the stage is read, and what it
// has moved on was appended before it was committed, so that reading after
// looking up the commit finds it.
type keys struct {
	g  *Group
	mu chan struct{} // capacity 1: held while the rest is used, over fetches too

	waiting map[keyID]map[int]placed // by stage: the last record of the key there
	read    map[record.TopicPartition]record.Offset
	looked  time.Time // when the topics were read last
}

// placed is where a record is.
type placed struct {
	tp     record.TopicPartition
	offset record.Offset
}

func newKeys(g *Group) *keys {
	return &keys{
		g: g, mu: make(chan struct{}, 1),
		waiting: map[keyID]map[int]placed{},
		read:    map[record.TopicPartition]record.Offset{},
	}
}

// stageOf returns the first stage behind the given one that holds records of the
// key, 0 if there is none. c is the claim of who asks.
func (k *keys) stageOf(ctx context.Context, c *claim, id keyID, stage int) (int, error) {
	k.mu <- struct{}{}
	defer func() { <-k.mu }()
	first := func() int {
		best := 0
		for s := range k.waiting[id] {
			if s > stage && (best == 0 || s < best) {
				best = s
			}
		}
		return best
	}
	// Before the first record of a claim, what its last owner has left; and
	// whether a key that waited still does.
	if !c.keysRead || first() > 0 && time.Since(k.looked) >= k.g.cfg.HeartbeatInterval {
		ctx, cancel := context.WithTimeout(ctx, moveTimeout)
		defer cancel()
		if err := k.refresh(ctx); err != nil {
			return 0, fmt.Errorf("keys that are tried again: %w", err)
		}
		c.keysRead = true
	}
	return first(), nil
}

// unread has the topics read again before the next record of a claim.
func (k *keys) unread(c *claim) {
	k.mu <- struct{}{}
	defer func() { <-k.mu }()
	c.keysRead = false
}

// moved notes that this member has moved a record of the key to a stage.
func (k *keys) moved(id keyID, stage int, tp record.TopicPartition, offset record.Offset) {
	k.mu <- struct{}{}
	defer func() { <-k.mu }()
	k.note(id, stage, placed{tp, offset})
}

func (k *keys) note(id keyID, stage int, at placed) {
	if k.waiting[id] == nil {
		k.waiting[id] = map[int]placed{}
	}
	if last, ok := k.waiting[id][stage]; !ok || at.offset > last.offset {
		k.waiting[id][stage] = at
	}
}

// refresh looks up what is committed of the retry topics, then reads what is new
// in them, and forgets the keys whose records are handled.
func (k *keys) refresh(ctx context.Context) error {
	var tps []record.TopicPartition
	for topic, stage := range k.g.stages.entered {
		if stage == 0 {
			continue // redriven records follow nobody
		}
		n, err := k.g.src.Partitions(ctx, topic)
		if err != nil {
			return err
		}
		for p := range int32(n) {
			tps = append(tps, record.TopicPartition{Topic: topic, Partition: p})
		}
	}
	committed, err := k.g.Committed(ctx, tps)
	if err != nil {
		return err
	}
	for _, tp := range tps {
		if err := k.scan(ctx, tp, committed[tp]); err != nil {
			return err
		}
	}
	for id, stages := range k.waiting {
		for stage, at := range stages {
			if at.offset < committed[at.tp] {
				delete(stages, stage)
			}
		}
		if len(stages) == 0 {
			delete(k.waiting, id)
		}
	}
	k.looked = time.Now()
	return nil
}

// scan reads one partition of a retry topic from where it was read last, or
// from what is committed, to its end. A move that the group knows to be committed
// may be open there for a moment yet; so what is open counts, too.
func (k *keys) scan(ctx context.Context, tp record.TopicPartition, committed record.Offset) error {
	start, high, err := k.g.src.Offsets(ctx, tp, record.ReadUncommitted)
	if err != nil {
		return err
	}
	from := max(start, committed, k.read[tp])
	if from >= high {
		return nil
	}
	for r, err := range Read(ctx, k.g.src, tp.Topic, Partition(tp.Partition), FromOffset(from), UntilEnd(), Isolation(record.ReadUncommitted)) {
		if err != nil {
			return err
		}
		if f, ok := FailureOf(r); ok && r.Key != nil {
			k.note(keyOf(&f, r.Key), k.g.stages.entered[tp.Topic], placed{tp, r.Offset})
		}
	}
	k.read[tp] = high
	return nil
}
