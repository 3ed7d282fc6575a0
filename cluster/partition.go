package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/replica"
)

// partition is what this node knows of one partition: its replica here, if it
// has one, and who leads.
type partition struct {
	self     string // this node
	tp       record.TopicPartition
	key      partitionKey
	made     record.Offset // of the decision in the metadata partition
	stepping chan struct{} // capacity 1: held by a look at the group's members, or a change

	mu      sync.Mutex
	at      assignment       // where it lies
	deleted bool             // its topic is
	rep     *replica.Replica // nil before it is open, or when it is elsewhere
	openErr error            // why it could not be opened
	coord   coordinator      // of a partition of a topic of the cluster's own, beside rep
	hint    leaderHint       // what other nodes said
	seeking bool             // a goroutine is asking the others
	changed chan struct{}    // closed and replaced when rep or hint changes
}

// coordinator decides by what is in a partition: a *group.Coordinator or a
// transaction's.
type coordinator interface{ Close() }

// leaderHint is who leads in the newest epoch heard of. node is "" when that
// one is not known, or did not answer.
type leaderHint struct {
	node  string
	epoch record.LeaderEpoch
}

func newPartition(self string, tp record.TopicPartition, id record.TopicID, nodes []string) *partition {
	return &partition{
		self: self, tp: tp, key: partitionKey{id, tp.Partition}, at: assignment{Replicas: nodes},
		stepping: make(chan struct{}, 1), changed: make(chan struct{}),
	}
}

// assigned returns where the partition lies, as far as this node has folded.
func (p *partition) assigned() assignment {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at
}

// assign takes in a newer decision.
func (p *partition) assign(a assignment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = a
	p.fire()
}

// delete ends the partition for everybody who waits for its leader.
func (p *partition) delete() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deleted = true
	p.fire()
}

// gone is the error of a partition whose topic was deleted, nil otherwise.
func (p *partition) gone() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deleted {
		return &record.UnknownTopicError{Topic: p.tp.Topic, Partition: -1}
	}
	return nil
}

// leader returns who leads as far as is known here, with the replica of this
// node, if any.
func (p *partition) leader() (leaderHint, *replica.Replica) {
	p.mu.Lock()
	hint, rep := p.hint, p.rep
	p.mu.Unlock()
	if rep == nil {
		return hint, nil
	}
	node, epoch := rep.Leader()
	if node != "" && epoch >= hint.epoch || hint.node == "" {
		hint = leaderHint{node, max(epoch, hint.epoch)}
	}
	return hint, rep
}

// notLeader is the answer of a node that cannot do what only the leader can. If
// nobody else can ever lead, it is the reason why this one does not.
func (p *partition) notLeader() error {
	if err := p.gone(); err != nil {
		return err
	}
	if nodes := p.assigned().Replicas; len(nodes) == 1 && nodes[0] == p.self {
		rep, _, err := p.state()
		if rep != nil {
			err = rep.Status().Err
		}
		if err != nil {
			return err
		}
	}
	hint, _ := p.leader()
	if hint.node == p.self { // not any more, or not yet
		hint.node = ""
	}
	return &record.NotLeaderError{TopicPartition: p.tp, Leader: hint.node, Epoch: hint.epoch}
}

// elsewhere is what a caller should make of err, an error of this node's
// replica: one that has stopped for good is not the leader any more.
func (p *partition) elsewhere(rep *replica.Replica, err error) error {
	if err == nil || errors.Is(err, record.ErrOutcomeUnknown) {
		return err
	}
	if errors.Is(err, record.ErrClosed) || rep.Status().Err != nil {
		return p.notLeader() // or, if the topic was deleted, that
	}
	return err
}

// learn takes in what another node said about the leader. That it is this node,
// this node's replica knows better.
func (p *partition) learn(h leaderHint) {
	if h.node == p.self {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if h.epoch > p.hint.epoch || h.epoch == p.hint.epoch && p.hint.node == "" && h.node != "" {
		p.hint = h
		p.fire()
	}
}

// doubt forgets a leader that did not answer.
func (p *partition) doubt(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hint.node == node {
		p.hint.node = ""
	}
}

// fire wakes who waits for a change. p.mu is held.
func (p *partition) fire() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// pause waits for d, or until another leader than the one tried is known.
func (p *partition) pause(ctx context.Context, d time.Duration, tried leaderHint) {
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		here, replica := p.signals() // before looking, so that nothing is missed
		if p.gone() != nil {
			return
		}
		if hint, _ := p.leader(); hint.node != "" && hint != tried {
			return
		}
		select {
		case <-here:
		case <-replica:
		case <-t.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// signals are closed at the next change of what leader returns.
func (p *partition) signals() (here, replica <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rep != nil {
		replica = p.rep.Changed()
	}
	return p.changed, replica
}

// opened keeps what came of opening this node's replica.
func (p *partition) opened(rep *replica.Replica, coord coordinator, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rep, p.coord, p.openErr = rep, coord, err
	p.fire()
}

// take removes the replica, so that it is closed once.
func (p *partition) take() (*replica.Replica, coordinator) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rep, coord := p.rep, p.coord
	p.rep, p.coord = nil, nil
	return rep, coord
}

// state returns the replica and the coordinator of this node, or why there are none.
func (p *partition) state() (*replica.Replica, coordinator, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rep, p.coord, p.openErr
}

// close ends this node's replica, if there is one.
func (p *partition) close() error {
	rep, coord := p.take()
	if rep == nil {
		return nil
	}
	if coord != nil {
		coord.Close()
	}
	if err := rep.Close(); err != nil {
		return fmt.Errorf("close %v: %w", p.tp, err)
	}
	return nil
}
