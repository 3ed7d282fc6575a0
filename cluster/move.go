package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlog/quorumlog/record"
)

// Progress is how far a call has come that moves partitions.
type Progress struct {
	Done, Total int    // moves
	Left        []Move // that are not done, with what they wait for
}

// Moves returns what is under way between nodes, and what it waits for, as the
// leader of the metadata partition knows it.
func (n *Node) Moves(ctx context.Context) ([]Move, error) {
	ctx, leave, err := n.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	a, err := n.ask(ctx, n.meta, "look at the moves", request{Op: opMoves})
	return a.Moves, err
}

// answerMoves is the part of the metadata leader.
func (n *Node) answerMoves() (moves []Move) {
	n.fold.View(func() {
		for _, t := range n.metadata.allTopics() {
			for i := range t.Placement {
				k := t.key(int32(i))
				if a := n.metadata.placed[k]; a.moving() {
					moves = append(moves, Move{Partition: t.part(i), From: a.From, To: a.Target, Waiting: n.obstacles.get(k)})
				}
			}
		}
	})
	return moves
}

// Reassign moves partitions to other nodes and waits until they are there: the
// new replicas join as learners, become voters when they have caught up, and the
// old ones leave. Writes and reads go on meanwhile. progress, which may be nil, is
// called on the caller's goroutine after each change. When ctx ends the moves go
// on; Moves shows them, and another Reassign turns them around.
//
// *RefusedError for a move that makes no sense or loses the last copy: nothing is
// moved then. A step that would lose the quorum waits, and Moves says for what.
func (n *Node) Reassign(ctx context.Context, moves []Move, progress func(Progress)) error {
	ctx, leave, err := n.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	for _, mv := range moves {
		if _, err := n.find(ctx, mv.Partition); err != nil {
			return err
		}
	}
	if err := n.awaitGroups(ctx, moves); err != nil {
		return err
	}
	what := fmt.Sprintf("reassign %d partitions", len(moves))
	a, err := n.ask(ctx, n.meta, what, request{Op: opReassign, Moves: moves})
	if err != nil {
		return err
	}
	return n.awaitMoves(ctx, what, a.Upto, moves, progress)
}

// MoveReplica moves one replica of a partition from a node to another, as
// Reassign does. The order stays: if from should lead, then to should.
func (n *Node) MoveReplica(ctx context.Context, tp record.TopicPartition, from, to string) error {
	ctx, leave, err := n.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	p, err := n.find(ctx, tp)
	if err != nil {
		return err
	}
	target := slices.Clone(p.assigned().goal())
	i := slices.Index(target, from)
	if i < 0 {
		return refused(fmt.Sprintf("move of %v from %q", tp, from), "it lies on %q; name one of them", target)
	}
	target[i] = to
	return n.Reassign(ctx, []Move{{Partition: tp, To: target}}, nil)
}

// DrainNode moves everything away from a node that should go: replicas, and with
// them leaderships. Each goes to the active node that holds least and not this
// partition. No new partition is placed on the node; AddNode takes that back. The
// node goes on to serve; RemoveNode takes it out of the cluster. progress as for
// Reassign. *RefusedError if there is no room.
func (n *Node) DrainNode(ctx context.Context, id string, progress func(Progress)) error {
	return n.drain(ctx, fmt.Sprintf("drain node %q", id), id, "", progress)
}

// ReplaceNode moves everything from a node, which may be dead, to another one,
// and takes the old one out of the cluster. What the new one holds already goes to
// other nodes. The new one must have joined. progress as for Reassign.
func (n *Node) ReplaceNode(ctx context.Context, old, new string, progress func(Progress)) error {
	what := fmt.Sprintf("replace node %q by %q", old, new)
	switch {
	case old == new || new == "":
		return fmt.Errorf("%s: %w: name another node", what, record.ErrInvalid)
	case old == n.cfg.ID:
		return refused(what, "a node does not remove itself; ask another one")
	}
	if err := n.drain(ctx, what, old, new, progress); err != nil {
		return err
	}
	return n.RemoveNode(ctx, old)
}

func (n *Node) drain(ctx context.Context, what, id, instead string, progress func(Progress)) error {
	ctx, leave, err := n.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	var moves []Move
	if err := n.follow(ctx, what); err != nil {
		return err
	}
	n.fold.View(func() { moves, _, _ = n.metadata.drainNode(id, instead) }) // decided again by the leader
	if err := n.awaitGroups(ctx, moves); err != nil {
		return err
	}
	a, err := n.ask(ctx, n.meta, what, request{Op: opDrain, Node: id, Instead: instead})
	if err != nil {
		return err
	}
	if err := n.awaitMoves(ctx, what, a.Upto, a.Moves, progress); err != nil {
		return err
	}
	return n.repeat(ctx, what, func(ctx context.Context) error {
		a, err := n.ask(ctx, n.meta, what, request{Op: opMembers})
		if err == nil && a.Leader == id {
			err = fmt.Errorf("it still leads the metadata partition: %w", record.ErrOverloaded)
		}
		return err
	})
}

// awaitGroups returns when the partitions that are to move have leaders. One
// that was only just made must exist before it can change: who joins later waits
// to be told what there is.
func (n *Node) awaitGroups(ctx context.Context, moves []Move) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(64)
	for _, mv := range moves {
		p, err := n.known(mv.Partition)
		if err != nil {
			continue // gone; the decision will say so
		}
		g.Go(func() error {
			_, err := n.ask(ctx, p, fmt.Sprintf("wait for a leader of %v before it moves", p.tp), request{Op: opReady})
			return err
		})
	}
	return g.Wait()
}

// awaitMoves returns when nothing of moves is under way any more. A partition
// that was deleted meanwhile counts as done.
func (n *Node) awaitMoves(ctx context.Context, what string, upto record.Offset, moves []Move, progress func(Progress)) error {
	var parts []*partition
	if err := n.learned(ctx, what, upto); err != nil {
		return err
	}
	for _, mv := range moves {
		if p, err := n.known(mv.Partition); err == nil {
			parts = append(parts, p)
		}
	}
	told := -1
	for {
		var next record.Offset
		left := 0
		n.fold.View(func() {
			next = n.metadata.next
			for _, p := range parts {
				if n.metadata.placed[p.key].moving() {
					left++
				}
			}
		})
		if progress != nil && left != told {
			told = left
			progress(Progress{Done: len(parts) - left, Total: len(parts), Left: n.waiting(ctx, parts)})
		}
		if left == 0 {
			return n.arrived(what, moves)
		}
		if err := n.learned(ctx, what, next+1); err != nil {
			if left := n.waitingFor(parts); ctx.Err() != nil && len(left) > 0 {
				return gaveUp(ctx, what, errors.New(left[0].String()))
			}
			return err
		}
	}
}

// waiting asks what the moves of parts wait for.
func (n *Node) waiting(ctx context.Context, parts []*partition) []Move {
	ctx, cancel := context.WithTimeout(ctx, n.tryTimeout)
	defer cancel()
	a, err := n.ask(ctx, n.meta, "look at the moves", request{Op: opMoves})
	if err != nil {
		return n.waitingFor(parts)
	}
	return slices.DeleteFunc(a.Moves, func(mv Move) bool {
		return !slices.ContainsFunc(parts, func(p *partition) bool { return p.tp == mv.Partition })
	})
}

// waitingFor is waiting as far as this node knows.
func (n *Node) waitingFor(parts []*partition) (moves []Move) {
	for _, p := range parts {
		if a := p.assigned(); a.moving() {
			moves = append(moves, Move{Partition: p.tp, From: a.From, To: a.Target, Waiting: n.obstacles.get(p.key)})
		}
	}
	return moves
}

// arrived reports moves that ended elsewhere, because somebody has turned them.
func (n *Node) arrived(what string, moves []Move) error {
	for _, mv := range moves {
		if p, err := n.known(mv.Partition); err == nil && !slices.Equal(p.assigned().Replicas, mv.To) {
			return refused(what, "%v was moved to %q meanwhile; look at its Status, and try again", mv.Partition, p.assigned().Replicas)
		}
	}
	return nil
}
