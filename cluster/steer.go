package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/replica"
)

const (
	// metadataVoters is how many nodes elect the leader of the metadata partition,
	// unless the cluster was founded with more. The others follow as learners: they
	// know everything, and cost a decision no time.
	metadataVoters = 5
	// arrivals is how many partitions a node receives at once.
	arrivals = 8
	// steering is how many partitions are worked on at once.
	steering = 16

	firstLook = 20 * time.Millisecond
	lastLook  = 3 * time.Second
)

// errStale is the answer to a step that newer decisions have overtaken.
var errStale = errors.New("overtaken by a newer decision")

// obstacles says why moves wait, as the node that steers them knows. Its methods
// may be called at once.
type obstacles struct {
	mu  sync.Mutex
	why map[partitionKey]string
}

func (o *obstacles) set(k partitionKey, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		delete(o.why, k)
		return
	}
	if o.why == nil {
		o.why = map[partitionKey]string{}
	}
	o.why[k] = err.Error()
}

// keep forgets partitions that have arrived, or are gone.
func (o *obstacles) keep(journeys []journey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.why, func(k partitionKey, _ string) bool {
		return !slices.ContainsFunc(journeys, func(j journey) bool { return j.p.key == k })
	})
}

func (o *obstacles) get(k partitionKey) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.why[k]
}

// steer brings partitions to where the metadata says they should be. Every node
// runs it in a goroutine, and the one that leads the metadata partition acts. All
// it needs to know is in the metadata and in the groups' own memberships, so the
// next leader goes on wherever this one stops. While nothing moves it sleeps.
func (n *Node) steer(life context.Context) {
	look := firstLook
	for {
		led := n.metaReplica.Load().Changed() // before looking
		var again <-chan time.Time
		switch progress, waiting := n.steerAll(life); {
		case progress:
			look = firstLook
			again = time.After(0)
		case waiting:
			again = time.After(look)
			look = min(2*look, lastLook)
		default:
			look = firstLook
		}
		select {
		case <-n.decided:
			look = firstLook
		case <-led:
		case <-again:
		case <-life.Done():
			return
		}
	}
}

// steerAll takes a step with everything that moves. waiting says that something
// does and cannot be told when it may go on.
func (n *Node) steerAll(life context.Context) (progress, waiting bool) {
	if node, _ := n.metaReplica.Load().Leader(); node != n.cfg.ID {
		return false, false
	}
	ctx, cancel := context.WithTimeout(life, 2*n.stepTimeout())
	progress, err := n.steerMetadata(ctx)
	cancel()
	if err != nil {
		n.cfg.Logger.Debug("metadata partition waits", "reason", err)
		waiting = true
	}
	journeys := n.journeys()
	n.obstacles.keep(journeys)
	var stuck atomic.Bool
	var g errgroup.Group
	g.SetLimit(steering)
	for _, j := range journeys {
		progress = true // let those in that had to wait
		g.Go(func() error {
			err := n.steerFar(life, j)
			n.obstacles.set(j.p.key, err)
			if err != nil {
				stuck.Store(true)
			}
			return nil
		})
	}
	_ = g.Wait() // each has its obstacle
	if stuck.Load() {
		return false, true
	}
	return progress, waiting
}

// steerFar brings one partition as far as it goes now, so that one that waits
// holds up no other for longer than it takes to see that. An error says what it
// waits for.
func (n *Node) steerFar(life context.Context, j journey) error {
	for {
		ctx, cancel := context.WithTimeout(life, 2*n.stepTimeout())
		err := n.steerPartition(ctx, j)
		cancel()
		before := j.Version
		n.fold.View(func() { j.assignment, j.upto = n.metadata.placed[j.p.key], n.metadata.next })
		switch {
		case err != nil && (!errors.Is(err, errStale) || j.Version == before): // another may lead the metadata by now
			return err
		case !j.moving():
			return nil
		}
	}
}

// journey is a partition that moves, and the metadata it was seen in.
type journey struct {
	p *partition
	assignment
	upto record.Offset
}

// journeys returns the partitions that move and may take a step: a node that
// receives as many as it should has others wait.
func (n *Node) journeys() (all []journey) {
	n.fold.View(func() {
		for _, p := range n.all() {
			if a := n.metadata.placed[p.key]; a.moving() {
				all = append(all, journey{p, a, n.metadata.next})
			}
		}
	})
	slices.SortFunc(all, func(a, b journey) int { return a.p.tp.Compare(b.p.tp) })
	receives := map[string]int{}
	for _, j := range all {
		for _, node := range j.Replicas {
			if !slices.Contains(j.From, node) {
				receives[node]++
			}
		}
	}
	return slices.DeleteFunc(all, func(j journey) bool {
		for _, node := range j.Target {
			if slices.Contains(j.Replicas, node) {
				continue // stays, or has been let in
			}
			if receives[node]++; receives[node] > arrivals {
				return true
			}
		}
		return false
	})
}

// steerPartition takes the next step with one partition, or says why not.
func (n *Node) steerPartition(ctx context.Context, j journey) error {
	what := fmt.Sprintf("move %v", j.p.tp)
	req := request{Op: opMembers, Version: j.Version, Upto: j.upto}
	a, err := n.ask(ctx, j.p, what, req)
	if err != nil {
		return err
	}
	s := j.next(*a.Members, a.Leader)
	switch s.action {
	case actionNone:
		if first := j.Target[0]; a.Leader != first { // at best; the move is over either way
			_, err := n.ask(ctx, j.p, what, request{Op: opTransfer, Node: first})
			n.cfg.Logger.Debug("leadership after a move", "partition", j.p.tp.String(), "to", first, "error", err)
		}
		fallthrough
	case actionAnnounce, actionForget:
		return n.propose(ctx, func() ([]record.Record, error) { return n.metadata.advance(j.p.key, j.Version, s) })
	}
	req.Op, req.Action = opStep, s.action
	for _, node := range s.nodes {
		req.Node = node
		if _, err = n.ask(ctx, j.p, what, req); err == nil {
			n.cfg.Logger.Info("membership changed", "partition", j.p.tp.String(), "action", string(s.action), "replica", node)
			return nil
		}
	}
	return err
}

// answerStep is the part of the partition's leader. A step of an older decision
// than this node has folded is refused, and once the members were looked at for a
// newer one, none comes late: the two take turns, and a look waits until what
// older leaders have decided is known.
func (n *Node) answerStep(ctx context.Context, p *partition, rep *replica.Replica, req request) (a answer, err error) {
	if err := n.learned(ctx, "take a step", req.Upto); err != nil {
		return a, err
	}
	select {
	case p.stepping <- struct{}{}:
		defer func() { <-p.stepping }()
	case <-ctx.Done():
		return a, ctx.Err()
	}
	if p != n.meta && p.assigned().Version != req.Version {
		return a, errStale
	}
	switch {
	case req.Op == opMembers:
		if a.Epoch, _, err = rep.Barrier(ctx); err == nil {
			m := rep.Members()
			a.Leader, a.Members = n.cfg.ID, &m
		}
	case req.Action == actionJoin:
		err = rep.AddLearner(ctx, req.Node)
	case req.Action == actionPromote:
		err = rep.Promote(ctx, req.Node)
	case req.Action == actionRemove:
		err = rep.Remove(ctx, req.Node)
	default:
		err = fmt.Errorf("%w: step %q is not known here; are the nodes of one version?", record.ErrInvalid, req.Action)
	}
	return a, err
}

// stepTimeout bounds one try of a step, which waits for other replicas.
func (n *Node) stepTimeout() time.Duration { return 3 * n.tryTimeout }

// steerMetadata makes the metadata partition's group follow the nodes. This
// node leads it.
func (n *Node) steerMetadata(ctx context.Context) (moved bool, err error) {
	err = n.fold.Propose(ctx, func(record.LeaderEpoch) ([]record.Record, error) { return n.metadata.found() })
	if err != nil {
		return false, err
	}
	var nodes, active []string
	n.fold.View(func() { nodes, active = n.metadata.members(), n.metadata.members(NodeActive) })
	m := n.metaReplica.Load().Members()
	for _, node := range nodes {
		if !m.Has(node) {
			return true, n.metaReplica.Load().AddLearner(ctx, node)
		}
	}
	var refusal error
	if len(m.Voters) < metadataVoters {
		for _, node := range m.Learners {
			if slices.Contains(active, node) {
				if refusal = n.metaReplica.Load().Promote(ctx, node); refusal == nil {
					return true, nil
				}
			}
		}
	}
	for _, node := range slices.Concat(m.Learners, m.Voters) {
		if slices.Contains(nodes, node) {
			continue
		}
		if err := n.metaReplica.Load().Remove(ctx, node); err == nil {
			return true, nil
		} else if refusal = err; errors.Is(err, record.ErrNotLeader) {
			return false, err
		}
	}
	if !slices.Contains(active, n.cfg.ID) { // being drained, so another should lead
		for _, node := range m.Voters {
			if slices.Contains(active, node) {
				if err := n.metaReplica.Load().TransferLeadership(ctx, node); err == nil {
					return true, nil
				} else {
					refusal = err
				}
			}
		}
	}
	return false, refusal
}
