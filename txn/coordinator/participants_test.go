package coordinator

import (
	"context"
	"fmt"
	"sync"

	"github.com/quorumlog/quorumlog/record"
)

// world is all partitions and groups, which keep the rules that real ones keep.
type world struct {
	mu     sync.Mutex
	places map[string]*place
	nextID record.ProducerID
	// fail is asked before each call and may refuse it; lose, after it, may lose
	// the answer. Both may be nil.
	fail, lose func(what string) error
}

// place is one partition or group.
type place struct {
	fence  map[record.ProducerID]record.ProducerEpoch // epochs below are over
	open   map[record.ProducerID]record.ProducerEpoch
	coord  record.LeaderEpoch
	events []string // what took effect
}

func newWorld() *world { return &world{places: map[string]*place{}} }

func (w *world) newProducerID(context.Context) (record.ProducerID, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nextID++
	return w.nextID, nil
}

// at does fn at a place.
func (w *world) at(name, what string, fn func(p *place) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fail != nil {
		if err := w.fail(what); err != nil {
			return err
		}
	}
	p := w.places[name]
	if p == nil {
		p = &place{fence: map[record.ProducerID]record.ProducerEpoch{}, open: map[record.ProducerID]record.ProducerEpoch{}}
		w.places[name] = p
	}
	if err := fn(p); err != nil {
		return err
	}
	if w.lose != nil {
		return w.lose(what)
	}
	return nil
}

func (w *world) Open(_ context.Context, tp record.TopicPartition, id record.ProducerID, epoch record.ProducerEpoch) error {
	return w.at(tp.String(), "open", func(p *place) error {
		if epoch < p.fence[id] {
			return &record.FencedError{What: "producer", Have: int64(epoch), Want: int64(p.fence[id])}
		}
		if _, ok := p.open[id]; !ok {
			p.events = append(p.events, fmt.Sprintf("open %d/%d", id, epoch))
		}
		p.open[id] = epoch
		return nil
	})
}

func (w *world) Mark(_ context.Context, tp record.TopicPartition, m record.Marker) error {
	return w.mark(tp.String(), m)
}

func (w *world) Settle(_ context.Context, group string, m record.Marker) error {
	return w.mark("group "+group, m)
}

func (w *world) mark(name string, m record.Marker) error {
	return w.at(name, "mark", func(p *place) error {
		if m.Coordinator < p.coord {
			return &record.FencedError{What: "coordinator", Have: int64(m.Coordinator), Want: int64(p.coord)}
		}
		p.coord = m.Coordinator
		if m.Epoch <= p.fence[m.Producer] {
			return nil
		}
		p.fence[m.Producer] = m.Epoch
		delete(p.open, m.Producer)
		verdict := "abort"
		if m.Commit {
			verdict = "commit"
		}
		p.events = append(p.events, fmt.Sprintf("%s %d/%d", verdict, m.Producer, m.Epoch-1))
		return nil
	})
}

// events returns what took effect at a place.
func (w *world) events(name string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.places[name]; p != nil {
		return append([]string{}, p.events...)
	}
	return nil
}
