package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/replica"
	txn "github.com/quorumlog/quorumlog/txn/coordinator"
	"github.com/quorumlog/quorumlog/txn/half"
)

// What a control request asks for.
const (
	opLeader   = "leader"   // who leads the partition, as far as you know?
	opReady    = "ready"    // do you lead it?
	opStatus   = "status"   // its epoch and offsets, as its leader
	opOffsets  = "offsets"  // the same, certain to be newer than the request
	opTransfer = "transfer" // hand leadership to another replica
	// The offset of the first record of a time or later, NoOffset without one.
	opOffsetForTime = "offset-for-time"
	opGroup         = "group"       // a group's request to its coordinator
	opTransaction   = "transaction" // a transaction's, to its own
	// A transaction's coordinator to the partitions it touches: it is open, it has ended.
	opTransactionOpen = "transaction-open"
	opTransactionMark = "transaction-mark"
	// The transactions that are open in a partition, or that a coordinator keeps.
	opTransactions = "transactions"
	opHalf         = "half" // a producer group's to the coordinator of its half messages
	// What the topic's retention lets go: remove it, or only say what it is.
	opRetain        = "retain"
	opPlanRetention = "plan-retention"
	// From the leader of the metadata partition: who is in your group, or change it.
	opMembers = "members"
	opStep    = "step"
	opKnows   = "knows" // answers when this node has folded the metadata so far
	// To the leader of the metadata partition:
	opSync          = "sync" // how far must one fold to know what is known now?
	opCreateTopic   = "create-topic"
	opDeleteTopic   = "delete-topic"
	opAddPartitions = "add-partitions"
	opReassign      = "reassign"
	opMoves         = "moves"
	opAddNode       = "add-node"
	opDrain         = "drain-node"
	opRemoveNode    = "remove-node"
	opProducerIDs   = "producer-ids"
	opProducerName  = "producer-name"
)

// request is a control request; an op uses only some of its fields.
type request struct {
	Op        string         `json:"op"`
	ID        record.TopicID `json:"id"`
	Partition int32          `json:"partition"`
	Name      string         `json:"name,omitempty"` // of a producer or a group
	Held      *identity      `json:"held,omitempty"` // with opProducerName: only if it still has the name
	Node      string         `json:"node,omitempty"`
	Instead   string         `json:"instead,omitempty"` // with opDrain: of Node
	Itself    bool           `json:"itself,omitempty"`  // with opAddNode: Node asks
	Moves     []Move         `json:"moves,omitempty"`
	Action    action         `json:"action,omitempty"`  // of a step
	Version   int64          `json:"version,omitempty"` // of the assignment that a step is of
	Upto      record.Offset  `json:"upto,omitempty"`    // fold the metadata to here first
	Topic     *TopicConfig   `json:"topic,omitempty"`
	NewID     record.TopicID `json:"newID"`           // of Topic
	Total     int            `json:"total,omitempty"` // partitions
	Time      int64          `json:"time,omitempty"`  // ms since 1970
	Group     *group.Request `json:"group,omitempty"`

	Transaction *txn.Request   `json:"transaction,omitempty"`
	Producer    *identity      `json:"producer,omitempty"` // whose transaction is open
	Half        *half.Request  `json:"half,omitempty"`
	Marker      *record.Marker `json:"marker,omitempty"`
}

// answer is the answer to a control request.
type answer struct {
	Leader    string                  `json:"leader,omitempty"`
	Epoch     record.LeaderEpoch      `json:"epoch,omitempty"`
	Start     record.Offset           `json:"start,omitempty"`
	Stable    record.Offset           `json:"stable,omitempty"`
	High      record.Offset           `json:"high,omitempty"`
	End       record.Offset           `json:"end,omitempty"`
	Replicas  []replica.ReplicaStatus `json:"replicas,omitempty"`  // with opStatus
	StableAge time.Duration           `json:"stableAge,omitempty"` // of the transaction that holds Stable back
	Offset    record.Offset           `json:"offset,omitempty"`
	Upto      record.Offset           `json:"upto,omitempty"` // fold the metadata to here to see what was decided
	Producer  identity                `json:"producer"`
	Topic     *Topic                  `json:"topic,omitempty"`
	Group     *group.Response         `json:"group,omitempty"`
	Plan      *log.Plan               `json:"plan,omitempty"` // of retention

	Transaction *txn.Response             `json:"transaction,omitempty"`
	Open        []replica.OpenTransaction `json:"open,omitempty"` // in a partition
	Half        *half.Response            `json:"half,omitempty"`
	Kept        []txn.Info                `json:"kept,omitempty"` // by a coordinator, open ones

	Members *replica.Members `json:"members,omitempty"`
	Moves   []Move           `json:"moves,omitempty"`
}

// control asks one node, which may be this one, and waits for its answer at
// most for one try.
func (n *Node) control(ctx context.Context, node string, req request) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, n.timeout(req))
	defer cancel()
	if node == n.cfg.ID {
		return n.answerControl(ctx, req)
	}
	type result struct {
		a   answer
		err error
	}
	ch := make(chan result, 1)
	n.sendControl(ctx, node, req, func(a answer, err error) { ch <- result{a, err} })
	r := <-ch // the endpoint ends the wait when ctx ends
	return r.a, r.err
}

// timeout bounds one try of a request.
func (n *Node) timeout(req request) time.Duration {
	switch req.Op {
	case opMembers, opStep, opTransfer: // the leader waits for other replicas
		return n.stepTimeout()
	}
	return n.tryTimeout
}

// sendControl asks another node; done is called once.
func (n *Node) sendControl(ctx context.Context, node string, req request, done func(answer, error)) {
	body, err := json.Marshal(req)
	if err != nil {
		done(answer{}, err)
		return
	}
	n.cfg.Endpoint.Send(ctx, node, serviceControl, [][]byte{body}, func(resp []byte, err error) {
		var a answer
		if err == nil {
			if resp, err = answerBody(resp, 1); err == nil {
				err = json.Unmarshal(resp, &a)
			}
		}
		if err != nil {
			err = fmt.Errorf("node %q: %w", node, err)
		}
		done(a, err)
	})
}

// handleControl is the other side of sendControl.
func (n *Node) handleControl(ctx context.Context, _ string, body []byte, reply func([][]byte, error)) {
	var req request
	if err := json.Unmarshal(body, &req); err != nil {
		reply([][]byte{errorAnswer(err)}, nil)
		return
	}
	started := n.spawn(func(life context.Context) {
		ctx, cancel := context.WithTimeout(ctx, n.timeout(req))
		defer cancel()
		defer context.AfterFunc(life, cancel)()
		a, err := n.answerControl(ctx, req)
		var buf []byte
		if err == nil {
			buf, err = json.Marshal(a)
		}
		if err != nil {
			reply([][]byte{errorAnswer(n.forPeer(err))}, nil)
			return
		}
		reply([][]byte{{answerOK}, buf}, nil)
	})
	if !started {
		reply([][]byte{errorAnswer(n.forPeer(n.closedError()))}, nil)
	}
}

// answerControl does what a request asks for.
func (n *Node) answerControl(ctx context.Context, req request) (answer, error) {
	switch req.Op {
	case opSync, opCreateTopic, opDeleteTopic, opAddPartitions, opProducerIDs, opProducerName, opReassign, opMoves, opAddNode, opDrain, opRemoveNode:
		return n.decide(ctx, req)
	case opKnows:
		return answer{}, n.learned(ctx, "follow the metadata", req.Upto)
	case opLeader:
		p := n.byKey(partitionKey{req.ID, req.Partition})
		if p == nil {
			return answer{}, nil // not heard of it yet
		}
		hint, _ := p.leader()
		return answer{Leader: hint.node, Epoch: hint.epoch}, nil
	}
	p, rep, err := n.leading(partitionKey{req.ID, req.Partition})
	if err != nil {
		return answer{}, err
	}
	var a answer
	switch req.Op {
	case opReady:
		a.Leader = n.cfg.ID
	case opStatus:
		s := rep.Status()
		a = answer{Leader: n.cfg.ID, Epoch: s.Epoch, Start: s.StartOffset, Stable: s.LastStableOffset, High: s.HighWatermark, End: s.EndOffset,
			Replicas: s.Replicas, StableAge: oldest(rep.OpenTransactions(), time.Now())}
	case opOffsets:
		a.Start = rep.Status().StartOffset // first, so that it lies not above the end
		if a.Epoch, a.High, err = rep.ReadIndex(ctx); err == nil {
			a.Stable = min(a.High, rep.Status().LastStableOffset)
		}
	case opOffsetForTime:
		a.Offset, err = answerOffsetForTime(ctx, rep, req.Time)
	case opRetain, opPlanRetention:
		a.Plan, err = n.answerRetention(ctx, p, rep, req.Op)
	case opTransfer:
		err = rep.TransferLeadership(ctx, req.Node)
	case opMembers, opStep:
		a, err = n.answerStep(ctx, p, rep, req)
	case opGroup:
		a, err = n.answerGroup(ctx, p, req)
	case opTransaction:
		a, err = p.answerTransaction(ctx, req)
	case opTransactionOpen, opTransactionMark:
		err = answerParticipant(ctx, rep, req)
	case opHalf:
		a, err = p.answerHalf(ctx, req)
	case opTransactions:
		a, err = p.answerTransactions(ctx, rep)
	default:
		err = fmt.Errorf("%w: request %q is not known here; are the nodes of one version?", record.ErrInvalid, req.Op)
	}
	return a, p.elsewhere(rep, err)
}
