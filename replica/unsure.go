package replica

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/log"
)

// A replica that may have forgotten entries it acknowledged is unsure. If it
// voted, a candidate that lacks them too could win, and what is committed would be
// lost. It may have forgotten some when the machine stopped before it was closed
// and its flush policy lets acknowledged entries lie in memory, when a part of its log could
// not be saved from damage, when its log ends before its checkpoint, or when its log is gone. Raft has no word for that,
// so its transport withholds votes, asked for and given, until one of two things:
//
//   - It has all that a leader had when the leader sent it something since: it has
//     caught up. The leader holds all that is committed, since it was elected without
//     this one's vote, and all that this one ever acknowledged to it.
//   - All other voters answer, and none has more than the candidate: whatever is
//     lacking is nowhere. So a cluster that lost power everywhere comes back.
//
// Meanwhile it is given entries and acknowledges those it has stored, which is safe.
//
// A replica without anything is unsure towards candidates that have more than the
// first entry, unless Config.New tells that it is not one whose disk was replaced. What a new disk also forgets is the term: see doc.go.
type unsure uint32

const (
	sure      unsure = iota
	justMade         // nothing but the first entry, maybe because the rest is gone
	forgetful        // may have forgotten something
)

// Keys of a group's marks in the Stable.
const (
	keyUnsure  = "Unsure"
	keyInUse   = "InUse"   // open, in which run of the system, with a policy that does not flush before an ack
	keyAside   = "Aside"   // how many files of the log had been set aside
	keySuspect = "Suspect" // read all when it is opened: there is damage somewhere
)

// doubt finds out, when the replica is opened, whether it is unsure. made says
// that it was never opened before, as far as it knows; forgot, that its log lacks
// what was in it.
func (r *Replica) doubt(made, forgot bool) error {
	was, err := r.stable.GetUint64([]byte(keyUnsure))
	if err != nil {
		return err
	}
	inUse, err := r.stable.GetUint64([]byte(keyInUse))
	if err != nil {
		return err
	}
	term, err := r.stable.GetUint64([]byte(keyTerm))
	if err != nil {
		return err
	}
	b, boot := r.store.log.Bounds(), r.bootMark()
	is := unsure(was)
	switch {
	case r.single():
		is = sure // there is nobody to ask
	case inUse != 0 && inUse != boot, is == forgetful, forgot, b.First == b.Next && term > 1:
		is = forgetful
	case made && !r.cfg.New:
		is = justMade
	}
	if is != unsure(was) {
		if err := r.stable.mark(keyUnsure, uint64(is)); err != nil {
			return err
		}
	}
	r.unsure.Store(uint32(is))
	if is == forgetful {
		r.cfg.Logger.Warn("this replica may have forgotten what it acknowledged; it votes when it has caught up")
	}
	if r.cfg.Flush != log.FlushEach {
		if boot == 0 {
			boot = 1 // no other is
		}
		return r.stable.mark(keyInUse, boot)
	}
	return nil
}

// bootMark is a number for the run of the system, 0 if it cannot be told.
func (r *Replica) bootMark() uint64 {
	name := vfs.Boot(r.cfg.FS)
	if name == "" {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return h.Sum64() | 2         // neither 0 nor 1
}

// single reports whether there is no other copy.
func (r *Replica) single() bool { return len(r.cfg.copies()) == 0 }

// caughtUp is called when this follower has all that its leader had, or when it leads.
func (r *Replica) caughtUp() {
	was := r.unsure.Load()
	if unsure(was) == sure {
		return
	}
	if err := r.stable.mark(keyUnsure, uint64(sure)); err != nil {
		r.cfg.Logger.Warn("it cannot be noted that this replica has caught up", "error", err)
		return
	}
	if r.unsure.CompareAndSwap(was, uint32(sure)) && unsure(was) == forgetful {
		r.cfg.Logger.Info("caught up; this replica votes again")
	}
}

// mayCount tells whether this replica's vote counts, for a candidate whose last
// entry is given; it may be this one. It asks the others if need be.
func (r *Replica) mayCount(ctx context.Context, candidate string, term, last uint64) bool {
	switch is := unsure(r.unsure.Load()); {
	case is == sure, is == justMade && term <= 1:
		return true
	}
	voters := r.cfg.Peers
	if e := r.raft(); e != nil {
		if m := r.Members(); len(m.Voters) > 0 {
			voters = m.Voters
		}
	}
	others := slices.DeleteFunc(slices.Clone(voters), func(s string) bool { return s == r.cfg.Node || s == candidate })
	if len(voters) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, max(r.cfg.ElectionTimeout/2, 10*time.Millisecond))
	defer cancel()
	var behind atomic.Int32
	done := make(chan struct{}, len(others))
	for _, node := range others {
		go func() {
			defer func() { done <- struct{}{} }()
			have, err := r.cfg.Mux.look(ctx, r.id, node, 0, 0)
			if err == nil && (have.lastTerm < term || have.lastTerm == term && have.next <= last+1) {
				behind.Add(1)
			}
		}()
	}
	for range others {
		<-done // look ends with ctx
	}
	return int(behind.Load()) == len(others)
}

// refusal is the answer to a request for a vote that is withheld.
func (t *groupTransport) refusal(kind rpcKind) raft.RPCResponse {
	h := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(t.node), Addr: []byte(t.node)}
	if kind == rpcPreVote {
		return raft.RPCResponse{Response: &raft.RequestPreVoteResponse{RPCHeader: h}}
	}
	return raft.RPCResponse{Response: &raft.RequestVoteResponse{RPCHeader: h}}
}

// errWithheld is what Raft's own request for a vote comes to.
func (t *groupTransport) errWithheld() error {
	return fmt.Errorf("node %q does not stand for election before it has caught up", t.node)
}
