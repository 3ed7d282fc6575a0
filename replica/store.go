package replica

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

// store is the partition's log as Raft sees it: the Raft index is the entry
// number, and there is no second copy. Raft's main goroutine alone calls
// StoreLogs and DeleteRange; GetLog may be called by any.
type store struct {
	rep     *Replica
	log     *log.Log
	booting atomic.Bool // until NewRaft has returned: batches are not needed, only their kinds

	met       error           // what NewRaft met, on its goroutine
	entries   []segment.Entry // scratch of StoreLogs
	proposals []*proposal     // the same
	alone     bool            // StoreLogs must sync; see mayOverlap

	synced signal // more is durable than before

	mu        sync.Mutex // guards what follows
	ring      ring
	gone      uint64      // Raft believes in entries up to it, from the log's end on, that were cut off or that an install replaced, until it has stored others
	installed bool        // a snapshot was installed; Raft asks once to delete what was before
	syncing   bool        // syncBehind runs
	unsynced  []*proposal // with AckLeader: stored, not durable yet
}

var (
	_ raft.LogStore          = (*store)(nil)
	_ raft.MonotonicLogStore = (*store)(nil)
)

// IsMonotonic implements raft.MonotonicLogStore: the log takes no gaps.
func (s *store) IsMonotonic() bool { return true }

// FirstIndex implements raft.LogStore; 0 for an empty log.
func (s *store) FirstIndex() (uint64, error) {
	b := s.log.Bounds()
	if b.First == b.Next {
		return 0, nil
	}
	return uint64(b.First), nil
}

// LastIndex implements raft.LogStore; 0 for an empty log.
func (s *store) LastIndex() (uint64, error) {
	b := s.log.Bounds()
	if b.First == b.Next {
		return 0, nil
	}
	return uint64(b.Next) - 1, nil
}

// GetLog implements raft.LogStore. Raft panics when a committed entry cannot be
// read, so on damage the replica is shut down and the caller's goroutine ends.
func (s *store) GetLog(index uint64, l *raft.Log) error {
	if s.recent(index, l) {
		return nil
	}
	e, err := s.read(record.EntryNumber(index))
	switch {
	case errors.Is(err, log.ErrNoEntry):
		return raft.ErrLogNotFound // compared by identity
	case errors.Is(err, record.ErrCorrupt) && s.rep.single():
		e = s.hole(record.EntryNumber(index))
	case err != nil && s.booting.Load():
		s.met = err
		return err
	case err != nil:
		s.rep.failInRaft(err)
	}
	*l = raft.Log{Index: index, Term: e.Term, Type: logType(e.Kind), Data: e.Data}
	return nil
}

// recent answers what needs no file. Two answers are not entries of the log.
// The entry before the first one: Raft asks for its term when a follower goes on
// from an anchor. And those that a longer log had before a snapshot replaced it:
// Raft still believes in them, takes the term 0 for a conflict, has them cut off, and
// goes on.
func (s *store) recent(index uint64, l *raft.Log) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	cached, ok := s.ring.get(index)
	if ok {
		*l = cached
		return true
	}
	b := s.log.Bounds()
	switch {
	case b.First > 2 && index == uint64(b.First)-1:
		*l = raft.Log{Index: index, Term: b.PrevTerm, Type: raft.LogNoop}
	case index >= uint64(b.Next) && index <= s.gone:
		*l = raft.Log{Index: index, Type: raft.LogNoop}
	default:
		return false
	}
	return true
}

func (s *store) read(n record.EntryNumber) (segment.Entry, error) {
	if s.booting.Load() {
		if e, err := s.log.ReadEntryHeader(n); err != nil || e.Kind == segment.KindBatch {
			return e, err
		}
	}
	return s.log.ReadEntry(n)
}

// StoreLog implements raft.LogStore.
func (s *store) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore. Here the order of the log is fixed, so
// here, on the leader, a proposed batch is checked against the producers of the
// log's tail, and either gets its offset and epoch or becomes a no-op without
// offsets. What is stored is what the followers get. All or nothing: on an
// error log and producers are as before.
func (s *store) StoreLogs(logs []*raft.Log) error {
	start := s.log.Bounds().End
	overlap := s.mayOverlap(logs)
	err := s.stage(logs, start)
	proposals := s.proposals
	defer clear(proposals)
	switch {
	case err != nil:
	case overlap:
		err = s.log.Write(s.entries)
	default:
		err = s.log.Append(s.entries)
	}
	clear(s.entries) // they pin batches
	if err != nil {
		lost := errors.Is(err, log.ErrSync)
		s.rep.unstage(start, proposals, lost)
		switch {
		case lost:
			s.rep.fail(err) // what is on disk is unknown until the log is opened again
		case s.misled():
			s.rep.fail(fmt.Errorf("%w: what another leader has cannot take the place of what was cut off: %w", ErrReopen, err))
		}
		return err
	}
	applied, leads := s.rep.applied.Load(), s.leads()
	s.mu.Lock()
	for _, l := range logs {
		s.ring.add(l, applied, leads)
	}
	s.gone, s.installed = 0, false
	s.mu.Unlock()
	s.rep.use()
	if overlap {
		s.syncLater(proposals)
	} else {
		s.rep.stored(proposals)
	}
	return nil
}

// leads tells whether Raft stores as the leader.
func (s *store) leads() bool {
	e := s.rep.raft()
	return e != nil && e.State() == raft.Leader
}

// rest forgets what only Raft needs, while there is none.
func (s *store) rest() {
	s.entries, s.proposals = nil, nil
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ring.clear()
	s.gone, s.installed = 0, false
}

// ErrReopen says that a replica has stopped though it and its disk are well: it
// goes on when it is opened again.
var ErrReopen = errors.New("the replica must be opened again")

// misled tells whether Raft believes in entries that are not there any more, and
// that nothing took the place of: hashicorp/raft 1.7.3 (appendEntries) notes where
// its log ends only when it has stored something. It would refuse all that its
// leader sends, for ever, and vote and stand for election as one that has them.
func (s *store) misled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone >= uint64(s.log.Bounds().Next)
}

// stage turns logs into entries from offset end on, deciding on what is proposed here.
func (s *store) stage(logs []*raft.Log, end record.Offset) error {
	r := s.rep
	s.entries, s.proposals = s.entries[:0], s.proposals[:0]
	term := s.log.Bounds().LastTerm
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range logs {
		if l.Term > term {
			term = l.Term
			r.since.Store(int64(end))
		}
		if l.Term > math.MaxInt32 {
			return fmt.Errorf("%v: term %d is above the largest leader epoch", r.cfg.TopicPartition, l.Term)
		}
		epoch := record.LeaderEpoch(l.Term)
		if p := r.takeProposal(l.Extensions); p != nil {
			l.Extensions = nil
			p.entry = l.Index
			s.proposals = append(s.proposals, p)
			r.decide(p, epoch, end)
			if !p.verdict.accepted() {
				l.Type, l.Data = raft.LogNoop, nil
			}
		} else if l.Type == raft.LogCommand {
			if err := verify(l.Data, end, epoch); err != nil {
				return fmt.Errorf("%v: entry %d: %w", r.cfg.TopicPartition, l.Index, err)
			}
		}
		e := segment.Entry{Number: record.EntryNumber(l.Index), Term: l.Term, Kind: kind(l), Offset: end, Data: l.Data}
		if e.Kind == segment.KindBatch {
			r.remember(l.Data)
			end = e.Next()
		}
		s.entries = append(s.entries, e)
	}
	return nil
}

// verify checks a batch or command that another node's leader has placed.
func verify(data []byte, end record.Offset, epoch record.LeaderEpoch) error {
	if isCommand(data) {
		_, err := decodeCommand(data)
		return err
	}
	b := record.Batch(data)
	if err := b.CheckHeader(); err != nil { // the checksum is looked at once, by log.Append, before anything is written
		return err
	}
	if b.BaseOffset() != end || b.LeaderEpoch() != epoch {
		return fmt.Errorf("it has offset %d and epoch %d, want %d and %d: the replicas differ", b.BaseOffset(), b.LeaderEpoch(), end, epoch)
	}
	return nil
}

// DeleteRange implements raft.LogStore. Only a suffix above the high watermark
// is ever deleted; prefixes are retention's, and Raft is told nothing of it.
func (s *store) DeleteRange(min, max uint64) error {
	b := s.log.Bounds()
	if max+1 < uint64(b.Next) || s.afterInstall() {
		return nil
	}
	if applied := s.rep.applied.Load(); min <= applied {
		err := fmt.Errorf("%v: asked to cut the log at entry %d, but %d is committed: the replicas differ", s.rep.cfg.TopicPartition, min, applied)
		s.rep.fail(err)
		return err
	}
	if err := s.log.TruncateTo(record.EntryNumber(min)); err != nil {
		s.rep.fail(err)
		return err
	}
	s.mu.Lock()
	s.ring.cut(min)
	s.gone = max
	s.mu.Unlock()
	s.rep.unstage(s.log.Bounds().End, nil, false)
	return nil
}

// afterInstall tells whether a deletion is the one by which Raft would clear the
// log after a snapshot. install has done what was needed.
func (s *store) afterInstall() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.installed
	s.installed = false
	return was && s.gone == 0
}

// install makes the log begin behind an anchor, unless it holds that entry
// already: then everything it has is right.
func (s *store) install(at state) error {
	b := s.log.Bounds()
	if s.holds(at.entry, at.term) {
		s.mu.Lock()
		s.installed = true
		s.mu.Unlock()
		return nil
	}
	if err := s.log.Reset(record.EntryNumber(at.entry)+1, at.term, at.high); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ring.clear()
	s.gone = max(s.gone, uint64(b.Next)-1)
	return nil
}

// holds tells whether the log has that entry with that term, or begins behind it.
func (s *store) holds(entry, term uint64) bool {
	b := s.log.Bounds()
	if entry+1 == uint64(b.First) {
		return term == b.PrevTerm
	}
	e, err := s.log.ReadEntryHeader(record.EntryNumber(entry))
	return err == nil && e.Term == term
}

// offsetBehind returns the offset that follows an entry; the log start offset
// when the log does not go back that far.
func (s *store) offsetBehind(entry uint64) record.Offset {
	b := s.log.Bounds()
	if entry+1 >= uint64(b.Next) {
		return b.End
	}
	e, err := s.log.ReadEntryHeader(record.EntryNumber(entry) + 1)
	if err != nil {
		return b.Start
	}
	return e.Offset
}

func kind(l *raft.Log) segment.Kind {
	switch l.Type {
	case raft.LogCommand:
		if isCommand(l.Data) {
			return segment.KindCommand
		}
		return segment.KindBatch
	case raft.LogBarrier:
		return segment.KindBarrier
	case raft.LogConfiguration:
		return segment.KindConfiguration
	default:
		return segment.KindNoop
	}
}

func logType(k segment.Kind) raft.LogType {
	switch k {
	case segment.KindBatch, segment.KindCommand:
		return raft.LogCommand
	case segment.KindBarrier:
		return raft.LogBarrier
	case segment.KindConfiguration:
		return raft.LogConfiguration
	default:
		return raft.LogNoop
	}
}
