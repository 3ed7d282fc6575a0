package replica

import (
	"context"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
)

// A leader sends entries to its followers while its own disk syncs them, as section
// 10.2.1 of Ongaro's dissertation on Raft allows: with fsync, a record takes the time
// of one sync and not of two. Raft itself counts the leader's own copy as soon as
// StoreLogs has returned, though. So what a follower says it has is passed on to
// Raft only when that much is durable here too (AppendEntries in call.go). Nothing is
// committed without a follower's word where there is more than one voter, so
// nothing is before a majority has it on disk, this replica among it.
//
// The other rule: who has been leader, and follows now, may have a tail that is not
// durable and that its leader sends again. It says that it has entries only when
// they are durable (serve in serve.go).
//
// What a leader loses when its power fails is then as if it had never been stored:
// nobody was told that it was.

// mayOverlap tells whether logs need not be durable when StoreLogs returns. The
// first entries of a term and changes of membership are, together with all before
// them: so the voters of now count, of whom there is more than one, for all that is
// not durable yet.
func (s *store) mayOverlap(logs []*raft.Log) bool {
	if s.rep.cfg.Flush != log.FlushEach {
		return false
	}
	changes := slices.ContainsFunc(logs, func(l *raft.Log) bool { return l.Type == raft.LogConfiguration })
	if changes || logs[0].Term != s.log.Bounds().LastTerm {
		s.alone = true
		return false
	}
	if !s.leads() {
		return false
	}
	if s.alone { // Raft takes a new membership for valid when it is stored
		s.alone = len(s.rep.Members().Voters) < 2
	}
	return !s.alone
}

// syncLater sees to it that what was stored becomes durable, and that those are
// answered then who asked for no more.
func (s *store) syncLater(proposals []*proposal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range proposals {
		if p.opt.Acks == record.AckLeader {
			s.unsynced = append(s.unsynced, p)
		}
	}
	if !s.syncing {
		s.syncing = true
		s.rep.wg.Go(s.syncBehind) // Close waits, once Raft has ended
	}
}

// syncBehind syncs as long as there is something to.
func (s *store) syncBehind() {
	for again := true; again; {
		err := s.log.Sync()
		if err != nil {
			s.rep.fail(err) // what is on disk is unknown until the log is opened again
		}
		s.synced.fire()
		durable := uint64(s.log.Durable())
		s.mu.Lock()
		n := 0
		for n < len(s.unsynced) && s.unsynced[n].entry < durable {
			n++
		}
		done := s.unsynced[:n:n]
		s.unsynced = s.unsynced[n:]
		again = err == nil && s.log.Durable() < s.log.Bounds().Next
		s.syncing = again
		s.mu.Unlock()
		s.rep.stored(done)
	}
}

// awaitDurable returns when all entries up to one are as durable as the flush policy
// says; false if ctx ends before.
func (s *store) awaitDurable(ctx context.Context, entry uint64) bool {
	if s.rep.cfg.Flush != log.FlushEach {
		return true
	}
	for uint64(s.log.Durable()) <= entry {
		synced := s.synced.wait()
		if uint64(s.log.Durable()) > entry {
			break
		}
		select {
		case <-synced:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
