package replica

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// ReadIndex returns the epoch this replica leads in and a high watermark that has
// passed all that was committed when it was called. Unlike Barrier it writes
// nothing: a quorum confirms by a heartbeat that it still follows (Raft thesis,
// 6.4). A leader that does not yet know all that older epochs committed falls back
// to Barrier. *record.NotLeaderError if it does not lead, or no longer. A partition
// that sleeps sleeps on if a quorum confirms it.
func (r *Replica) ReadIndex(ctx context.Context) (record.LeaderEpoch, record.Offset, error) {
	if n := r.nap.Load(); r.confirmed(ctx, n) {
		return n.epoch, record.Offset(r.high.Load()), nil
	}
	release, err := r.stayAwake(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer release()
	e := r.raft()
	term := e.CurrentTerm()
	if !r.leads() {
		return 0, 0, r.notLeader()
	}
	if !r.CaughtUp() {
		return r.Barrier(ctx)
	}
	committed := r.store.offsetBehind(e.CommitIndex()) // before the quorum is asked
	if err := r.verify(ctx, e); err != nil {
		return 0, 0, err
	}
	if !r.leads() || r.raft().CurrentTerm() != term {
		return 0, 0, r.notLeader()
	}
	if err := r.Wait(ctx, committed-1); err != nil { // applied, too
		return 0, 0, err
	}
	return record.LeaderEpoch(term), record.Offset(r.high.Load()), nil
}

// verify returns when a quorum has confirmed that it follows this leader. Raft
// answers at the latest when leadership is lost or it ends.
func (r *Replica) verify(ctx context.Context, e *engine) error {
	e.transport.urgent.Add(1) // heartbeats do not wait for other groups'
	began, term := time.Now(), e.CurrentTerm()
	return r.awaitAll(ctx, func() error {
		defer e.transport.urgent.Add(-1)
		// Raft counts an answer to a heartbeat that it sent before it was asked, too:
		// by now who gave it may follow somebody else. So ask until a quorum has
		// accepted what was sent afterwards. ctx is for the caller's wait alone, so
		// that this does not go on for ever.
		err := e.answers().wait(e.VerifyLeader())
		for err == nil && ctx.Err() == nil && !r.following.quorum(term, r.Members().Voters, r.cfg.Node, began) {
			err = e.answers().wait(e.VerifyLeader())
		}
		return err
	})
}

// following is when the followers were last known to follow, in one term.
type following struct {
	mu   sync.Mutex
	term uint64
	when map[string]time.Time // of sending what each has accepted
}

func (f *following) note(term uint64, node string, when time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if term > f.term {
		f.term, f.when = term, map[string]time.Time{}
	}
	if term == f.term && when.After(f.when[node]) {
		f.when[node] = when
	}
}

// quorum tells whether a quorum of voters, self among them, followed since then.
func (f *following) quorum(term uint64, voters []string, self string, then time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	count := 0
	for _, node := range voters {
		if node == self || term == f.term && !f.when[node].Before(then) {
			count++
		}
	}
	return count > len(voters)/2 && slices.Contains(voters, self)
}
