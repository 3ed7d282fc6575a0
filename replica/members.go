package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlog/quorumlog/record"
)

// Membership changes one replica at a time (Ongaro's dissertation, section 4.1).
// A new one joins as a learner, which gets everything and counts for nothing, and
// becomes a voter when it has caught up (section 4.2.1). The configuration in the
// log is the truth; Config.Peers only says how a new partition begins.

// Members are the replicas of a partition, each sorted.
type Members struct {
	Voters   []string // count towards a quorum
	Learners []string // get everything and count for nothing
}

// Has reports whether the node holds a replica of either kind.
func (m Members) Has(node string) bool {
	return slices.Contains(m.Voters, node) || slices.Contains(m.Learners, node)
}

// Members returns the newest membership this replica has heard of, committed or not.
func (r *Replica) Members() Members {
	var m Members
	for _, s := range r.raft().GetConfiguration().Configuration().Servers {
		if s.Suffrage == raft.Voter {
			m.Voters = append(m.Voters, string(s.ID))
		} else {
			m.Learners = append(m.Learners, string(s.ID))
		}
	}
	slices.Sort(m.Voters)
	slices.Sort(m.Learners)
	return m
}

// alone reports whether this replica is the only voter.
func (r *Replica) alone() bool {
	m := r.Members()
	return len(m.Voters) == 1 && m.Voters[0] == r.cfg.Node
}

// ErrUnsafeChange matches, under errors.Is, every *UnsafeChangeError.
var ErrUnsafeChange = errors.New("membership change refused")

// UnsafeChangeError says why a change of a partition's membership was refused:
// it would lose the quorum or the last copy. Nothing was changed.
type UnsafeChangeError struct {
	record.TopicPartition
	Change string // what was asked for
	Reason string // what is wrong with it now, and what to do
}

// Is reports whether target is ErrUnsafeChange.
func (e *UnsafeChangeError) Is(target error) bool { return target == ErrUnsafeChange }

func (e *UnsafeChangeError) Error() string {
	return fmt.Sprintf("%v: %s refused: %s", e.TopicPartition, e.Change, e.Reason)
}

func (r *Replica) unsafe(change, format string, args ...any) error {
	return &UnsafeChangeError{TopicPartition: r.cfg.TopicPartition, Change: change, Reason: fmt.Sprintf(format, args...)}
}

// AddLearner has the partition's leader send everything to a replica on another
// node, which must be opened with Config.Peers that do not name it. A member
// stays what it is. Only the leader changes the membership:
// *record.NotLeaderError. When ctx ends the change may still be made; asking
// again is safe, as it is for Promote and Remove.
func (r *Replica) AddLearner(ctx context.Context, node string) error {
	if node == "" {
		return fmt.Errorf("%v: %w: the node's name is empty", r.cfg.TopicPartition, record.ErrInvalid)
	}
	return r.change(ctx, func(ctx context.Context, m Members) (change, error) {
		if m.Has(node) {
			return nil, nil
		}
		return func(prev uint64, d time.Duration) raft.IndexFuture {
			return r.raft().AddNonvoter(raft.ServerID(node), raft.ServerAddress(node), prev, d)
		}, nil
	})
}

// Promote makes a learner a voter. *UnsafeChangeError unless it has everything
// that the leader had when it was asked, and is in sync: a voter that lags counts
// towards the quorum and holds nothing that a quorum must hold.
func (r *Replica) Promote(ctx context.Context, node string) error {
	what := fmt.Sprintf("promote node %q", node)
	return r.change(ctx, func(ctx context.Context, m Members) (change, error) {
		switch {
		case slices.Contains(m.Voters, node):
			return nil, nil
		case !m.Has(node):
			return nil, r.unsafe(what, "it holds no replica; add it as a learner first")
		case !r.progress.caughtUp(r.raft().CurrentTerm(), node, r.cfg.LagTimeMax, time.Now()) || len(r.reached(ctx, []string{node}, 1)) == 0:
			return nil, r.unsafe(what, "it has not caught up with the leader; wait until it is in sync")
		}
		return func(prev uint64, d time.Duration) raft.IndexFuture {
			return r.raft().AddVoter(raft.ServerID(node), raft.ServerAddress(node), prev, d)
		}, nil
	})
}

// Remove takes a replica out of the membership; the node should then close it
// and delete its directory. *UnsafeChangeError if it is the last voter, or if a
// quorum of the others does not have, within about two election timeouts,
// everything that the leader had when it was asked.
//
// A leader does not remove itself: it hands leadership to another one and
// returns the *record.NotLeaderError that names it. Ask there.
func (r *Replica) Remove(ctx context.Context, node string) error {
	what := fmt.Sprintf("remove node %q", node)
	return r.change(ctx, func(ctx context.Context, m Members) (change, error) {
		if !m.Has(node) {
			return nil, nil
		}
		if slices.Contains(m.Voters, node) {
			rest := slices.DeleteFunc(m.Voters, func(s string) bool { return s == node })
			quorum := len(rest)/2 + 1
			if len(rest) == 0 {
				return nil, r.unsafe(what, "it holds the last copy; add another replica first")
			}
			have := r.reached(ctx, rest, quorum)
			if len(have) < quorum {
				return nil, r.unsafe(what, "of the voters that would remain, %q, only %q have everything, and %d must; bring the others back or add a replica first", rest, have, quorum)
			}
			if node == r.cfg.Node {
				if err := r.TransferLeadership(ctx, have[0]); err != nil {
					return nil, err
				}
				return nil, r.notLeader()
			}
		}
		return func(prev uint64, d time.Duration) raft.IndexFuture {
			return r.raft().RemoveServer(raft.ServerID(node), prev, d)
		}, nil
	})
}

// change is a change of the membership that Raft makes if the newest one is at
// entry prev, and that it takes up within d.
type change func(prev uint64, d time.Duration) raft.IndexFuture

// change makes at most one change, decided on by a leader that has applied all
// that older leaders have decided. Changes are made one after the other.
func (r *Replica) change(ctx context.Context, decide func(ctx context.Context, m Members) (change, error)) error {
	select {
	case r.changing <- struct{}{}:
		defer func() { <-r.changing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	release, err := r.stayAwake(ctx)
	if err != nil {
		return err
	}
	defer release()
	if _, _, err := r.Barrier(ctx); err != nil {
		return err
	}
	prev := r.configured() // before the look at it: a change in between is refused
	do, err := decide(ctx, r.Members())
	if do == nil || err != nil {
		return err
	}
	return r.await(ctx, do(prev, r.patience()), func() {})
}

// configured returns the entry of the newest membership that is applied.
func (r *Replica) configured() uint64 {
	return max(r.configuration.Load(), r.checkpoints.configured())
}

// patience is how long a live replica may take to answer.
func (r *Replica) patience() time.Duration { return 2 * r.cfg.ElectionTimeout }

// reached returns those of nodes that have everything the leader has now. It
// waits until count of them have, for as long as patience lasts. A leader asks.
func (r *Replica) reached(ctx context.Context, nodes []string, count int) []string {
	ctx, cancel := context.WithTimeout(ctx, r.patience())
	defer cancel()
	end, _ := r.store.LastIndex() // it never fails
	for {
		moved := r.progress.moved.wait()
		var have []string
		for _, node := range nodes {
			if node == r.cfg.Node || r.progress.match(node) >= end {
				have = append(have, node)
			}
		}
		if len(have) >= count {
			return have
		}
		select {
		case <-moved:
		case <-r.raft().ended:
			return have
		case <-ctx.Done():
			return have
		}
	}
}

// TransferLeadership hands leadership to the voter on node, or to the one that
// is most up to date if node is "". It returns when somebody else leads.
// *record.NotLeaderError if this replica does not lead, or if another than node
// came to lead; *UnsafeChangeError if node does not have everything the leader has;
// record.ErrUnreachable if nobody took over in time: it leads on, ask again.
func (r *Replica) TransferLeadership(ctx context.Context, node string) error {
	if !r.leads() {
		return r.notLeader()
	}
	if node == r.cfg.Node {
		return nil
	}
	release, err := r.stayAwake(ctx)
	if err != nil {
		return err
	}
	defer release()
	if !r.leads() {
		return r.notLeader()
	}
	future := r.raft().LeadershipTransfer
	if node != "" {
		what := fmt.Sprintf("transfer of leadership to node %q", node)
		if !slices.Contains(r.Members().Voters, node) {
			return r.unsafe(what, "it is no voter of the partition; choose one of %q", r.Members().Voters)
		}
		if len(r.reached(ctx, []string{node}, 1)) == 0 {
			return r.unsafe(what, "it lags behind the leader; wait until it is in sync, or choose another")
		}
		future = func() raft.Future {
			return r.raft().LeadershipTransferToServer(raft.ServerID(node), raft.ServerAddress(node))
		}
	}
	if err := r.await(ctx, future(), func() {}); err != nil {
		if r.leads() && ctx.Err() == nil {
			return fmt.Errorf("%w: nobody took over, node %q leads on: %w", record.ErrUnreachable, r.cfg.Node, err)
		}
		return err
	}
	for { // Raft's word says that this one has stepped down
		changed := r.Changed()
		leader, _ := r.Leader()
		switch {
		case r.leads() || leader != "" && leader != r.cfg.Node && node != "" && leader != node:
			return r.notLeader()
		case leader != "" && leader != r.cfg.Node:
			return nil
		}
		select {
		case <-changed:
		case <-r.raft().ended:
			return record.ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
