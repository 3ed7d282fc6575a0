package txn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/txn/coordinator"
)

// addTimeout bounds one try to add a partition: the batch that waits for it has a
// deadline of its own.
const addTimeout = 5 * time.Second

// members are the partitions and groups that are in the open transaction. What is
// asked for while a request is on its way goes with the next one.
type members struct {
	client *Client

	mu      sync.Mutex
	tx      *Tx
	added   map[record.TopicPartition]bool
	groups  map[string]bool
	asked   bool // the coordinator may have heard of the transaction
	waiting []*addition
	busy    bool
}

// addition is one who waits until something is in the transaction.
type addition struct {
	tx    *Tx
	tp    *record.TopicPartition
	group string
	done  func(error)
}

// begin forgets the transaction before.
func (m *members) begin(tx *Tx) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tx, m.asked = tx, false
	m.added, m.groups = map[record.TopicPartition]bool{}, map[string]bool{}
}

// any reports whether the coordinator may have heard of the transaction.
func (m *members) any() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked
}

// add returns when a partition or a group is in the transaction.
func (m *members) add(ctx context.Context, tp *record.TopicPartition, group string) error {
	ch := make(chan error, 1)
	m.want(tp, group, func(err error) { ch <- err })
	select {
	case err := <-ch:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// want calls done when a partition or a group is in the transaction; at once if it
// is already.
func (m *members) want(tp *record.TopicPartition, group string, done func(error)) {
	m.mu.Lock()
	if tp != nil && m.added[*tp] || tp == nil && m.groups[group] {
		m.mu.Unlock()
		done(nil)
		return
	}
	m.asked = true
	m.waiting = append(m.waiting, &addition{m.tx, tp, group, done})
	start := !m.busy
	m.busy = true
	m.mu.Unlock()
	if start && !m.client.spawn(m.ask) {
		m.ask() // closed: its requests fail at once
	}
}

// forget makes the next batch of tp ask again.
func (m *members) forget(tp record.TopicPartition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.added, tp)
}

// ask sends requests until nobody waits.
func (m *members) ask() {
	for {
		m.mu.Lock()
		all := m.waiting
		m.waiting = nil
		if len(all) == 0 {
			m.busy = false
			m.mu.Unlock()
			return
		}
		m.mu.Unlock()
		tx := all[0].tx // all are of one: the next begins when nothing is in flight
		req := coordinator.Request{Op: coordinator.OpAdd, Producer: tx.who.Producer, Epoch: tx.who.Epoch}
		for _, a := range all {
			if a.tp == nil {
				req.Groups = append(req.Groups, a.group)
			} else if !slices.Contains(req.Partitions, *a.tp) {
				req.Partitions = append(req.Partitions, *a.tp)
			}
		}
		ctx, cancel := context.WithTimeout(m.client.life, addTimeout)
		_, err := m.client.ask(ctx, req)
		cancel()
		m.mu.Lock()
		if err == nil && m.tx == tx {
			for _, a := range all {
				if a.tp == nil {
					m.groups[a.group] = true
				} else {
					m.added[*a.tp] = true
				}
			}
		}
		m.mu.Unlock()
		if errors.Is(err, record.ErrFenced) || errors.Is(err, coordinator.ErrEnded) || errors.Is(err, record.ErrInvalid) {
			tx.fail(err)
		}
		for _, a := range all {
			a.done(err)
		}
	}
}

// joined is the cluster as the producer of a transaction sees it: a batch is
// appended when its partition is in the transaction. The producer sends the first
// batch of a partition alone, so those that wait stay in order.
type joined struct {
	producer.Cluster
	members *members
}

// Append implements producer.Cluster.
func (j joined) Append(ctx context.Context, id record.TopicID, tp record.TopicPartition, b record.Batch, acks record.Acks, done func(record.Appended, error)) {
	j.members.want(&tp, "", func(err error) {
		switch {
		case err == nil:
		case errors.Is(err, record.ErrFenced), errors.Is(err, coordinator.ErrEnded), errors.Is(err, record.ErrInvalid):
			done(record.Appended{}, fmt.Errorf("%w: %v", record.ErrFenced, err)) // the end of all its records
			return
		default:
			done(record.Appended{}, fmt.Errorf("%v is not in the transaction yet: %w: %v", tp, record.ErrUnreachable, err))
			return
		}
		if ctx.Err() != nil {
			done(record.Appended{}, fmt.Errorf("%v: %w", tp, record.ErrUnreachable))
			return
		}
		j.Cluster.Append(ctx, id, tp, b, acks, func(a record.Appended, err error) {
			if errors.Is(err, record.ErrNotInTransaction) && !errors.Is(err, record.ErrOutcomeUnknown) {
				// A new leader has not heard of the transaction.
				j.members.forget(tp)
				err = fmt.Errorf("%w: %v", record.ErrUnreachable, err)
			}
			done(a, err)
		})
	})
}
