package replica

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

// DamagedError says that a replica is not opened because its log has holes that
// no other replica could fill yet. Nothing was changed; opening it later, when
// others can be reached, may succeed. It matches record.ErrCorrupt.
type DamagedError struct {
	record.TopicPartition
	Node  string
	Holes []*log.CorruptError // those that are left
	Err   error               // why the first of them was not filled
}

// Unwrap returns why, and the holes.
func (e *DamagedError) Unwrap() []error {
	errs := []error{e.Err}
	for _, h := range e.Holes {
		errs = append(errs, h)
	}
	return errs
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%v on node %q is damaged, and no other replica gave what is missing: %v; first of %d holes: %v",
		e.TopicPartition, e.Node, e.Err, len(e.Holes), e.Holes[0])
}

// mend fills the holes of a log from other replicas. What was there can be told
// without a leader: two logs that have an entry of the same number and term are
// the same up to it (Ongaro and Ousterhout, "Log Matching"), so the entry behind a hole, or
// the term of the last one in it, vouches for another replica's. The holes must
// fit to the byte besides.
//
// A hole at a place where a majority has nothing was never committed, and the
// log is cut there.
//
// What lies below the log start was decided to go. So a hole there goes with its
// segment, and is not asked for; this replica may have to be told by another one
// which log start was decided while it was down. If the segment must stay, or the
// checkpoint would not cover what goes, nobody has what is missing: errTrimmed.
func (r *Replica) mend(ctx context.Context) error {
	l := r.store.log
	covered := r.savedStart()
	if err := r.trimTo(record.Offset(r.start.Load()), covered); err != nil {
		return err
	}
	for i, h := range l.Recovery().Damage {
		if h.FirstEntry == h.NextEntry || r.outside(h) { // nothing that others could give
			continue
		}
		if err := r.fill(ctx, h, covered); err != nil {
			return &DamagedError{TopicPartition: r.cfg.TopicPartition, Node: r.cfg.Node, Holes: l.Recovery().Damage[i:], Err: err}
		}
		r.cfg.Logger.Info("damage mended", "file", h.File, "position", h.Position, "entries", h.NextEntry-h.FirstEntry)
	}
	return nil
}

// errTrimmed says that what is missing was decided to go, and is gone everywhere.
var errTrimmed = errors.New("it lies below the log start, and this replica cannot go on from there")

// outside tells whether the log holds nothing of a hole any more.
func (r *Replica) outside(h *log.CorruptError) bool {
	b := r.store.log.Bounds()
	return h.FirstEntry >= b.Next || h.NextEntry <= b.First
}

// savedStart takes the log start from the checkpoint, and returns the entry up to
// which there is one, 0 without. Even if it is too new for what is left of the log,
// the membership that was written with it counts.
func (r *Replica) savedStart() (covered uint64) {
	c, err := openCheckpoints(r.cfg.FS, r.cfg.Dir, r.store.log)
	if err != nil || c.meta == nil {
		return 0
	}
	if s, err := decodeState(c.state); err == nil {
		r.start.Store(int64(s.start))
	}
	return c.meta.Index
}

// trimTo removes the segments below a log start that was decided, if the checkpoint
// covers them (see trimSegments).
func (r *Replica) trimTo(start record.Offset, covered uint64) error {
	l := r.store.log
	if first := l.FirstAfterTrim(start); first == l.Bounds().First || covered+1 < uint64(first) {
		return nil
	}
	at, err := l.TrimTo(start)
	if err == nil {
		r.cfg.Logger.Info("damaged log trimmed to the log start", "start", start, "offset", at)
	}
	return err
}

// fill fills one hole, or finds that there is nothing to fill.
func (r *Replica) fill(ctx context.Context, h *log.CorruptError, covered uint64) error {
	l := r.store.log
	vouch, term := h.NextEntry, uint64(0) // the entry that vouches, and its term here
	if b := l.Bounds(); h.NextEntry < b.Next {
		e, err := l.ReadEntryHeader(h.NextEntry)
		if err != nil {
			return err
		}
		term = e.Term
	} else {
		vouch, term = h.NextEntry-1, b.LastTerm
	}
	lacking, trimmed := 0, false
	errs := []error{fmt.Errorf("%w: no other replica is known", record.ErrUnreachable)}
	for _, node := range r.cfg.copies() {
		ctx, cancel := context.WithTimeout(ctx, max(time.Second, 4*r.cfg.ElectionTimeout))
		its, err := r.fillFrom(ctx, node, h, vouch, term)
		cancel()
		if err == nil {
			return nil
		}
		if its.next > 0 && its.next <= uint64(h.FirstEntry) {
			lacking++
		}
		if its.first > uint64(h.FirstEntry) && its.start >= h.From {
			trimmed = true
			if err := r.trimTo(its.start, covered); err != nil {
				return err
			}
			if r.outside(h) {
				return nil
			}
		}
		errs = append(errs, fmt.Errorf("node %q: %w", node, err))
	}
	if trimmed {
		return errors.Join(append(errs[1:], errTrimmed)...)
	}
	copies := len(r.cfg.copies()) + 1
	if copies-lacking < copies/2+1 {
		r.cfg.Logger.Warn("damage where the other replicas have nothing; it was never committed, and the log is cut there", "entry", h.FirstEntry)
		return l.TruncateTo(h.FirstEntry)
	}
	return errors.Join(errs[min(1, len(errs)-1):]...)
}

// fillFrom fills a hole from one node, and returns how far that node's log goes.
func (r *Replica) fillFrom(ctx context.Context, node string, h *log.CorruptError, vouch record.EntryNumber, term uint64) (its look, err error) {
	its, err = r.cfg.Mux.look(ctx, r.id, node, uint64(vouch), uint64(vouch)+1)
	switch {
	case err != nil:
		return look{}, err
	case its.next <= uint64(h.FirstEntry):
		return its, fmt.Errorf("its log ends before entry %d", h.FirstEntry)
	case its.first > uint64(h.FirstEntry):
		return its, fmt.Errorf("its log begins at entry %d, behind entry %d", its.first, h.FirstEntry)
	case len(its.entries) == 0:
		return its, fmt.Errorf("its log holds [%d, %d), and not entry %d", its.first, its.next, vouch)
	case its.entries[0].Term != term:
		return its, fmt.Errorf("its entry %d is of term %d, not %d: the logs differ", vouch, its.entries[0].Term, term)
	}
	for next := h.FirstEntry; next < h.NextEntry; {
		part, err := r.cfg.Mux.look(ctx, r.id, node, uint64(next), uint64(h.NextEntry))
		if err != nil {
			return its, err
		}
		if len(part.entries) == 0 {
			return its, fmt.Errorf("it cannot read its entry %d", next)
		}
		if err := r.store.log.Fill(part.entries); err != nil {
			return its, err
		}
		next += record.EntryNumber(len(part.entries))
	}
	return its, nil
}

// damaged tells whether a log has holes where there were entries.
func damaged(l *log.Log) bool {
	for _, h := range l.Recovery().Damage {
		if h.FirstEntry < h.NextEntry {
			return true
		}
	}
	return false
}

// hole answers Raft for an entry that cannot be read, of a partition that has no
// other copy: as if nothing had been there. Raft looks at its term only if it is
// the last one, and at the first one for the membership.
func (s *store) hole(n record.EntryNumber) segment.Entry {
	if n == 1 {
		return s.rep.founding()
	}
	return segment.Entry{Number: n, Term: s.log.Bounds().LastTerm, Kind: segment.KindNoop}
}

// repair deals with the damage that was found when the log was opened, and lets
// other nodes look at it.
func (r *Replica) repair(ctx context.Context) error {
	l := r.store.log
	r.cfg.Mux.show(r)
	report := l.Recovery()
	aside, err := r.stable.GetUint64([]byte(keyAside))
	if err != nil {
		return err
	}
	if n := uint64(len(report.SetAside)); n != aside { // what was at the end may be lost; this may be the second try to note it
		if !r.single() {
			err = r.stable.mark(keyUnsure, uint64(forgetful))
		}
		if err == nil {
			err = r.stable.mark(keyAside, n)
		}
		if err != nil {
			return err
		}
	}
	switch {
	case !damaged(l):
	case r.single():
		r.cfg.Logger.Error("this only copy has damage; what lies around it is served", "holes", len(report.Damage), "first", report.Damage[0])
		return nil
	default:
		err := r.mend(ctx)
		if err != nil && (r.cfg.SetAside || errors.Is(err, errTrimmed)) {
			err = r.startOver(ctx, err)
		}
		if err != nil {
			return err
		}
	}
	suspect, err := r.stable.GetUint64([]byte(keySuspect))
	if err == nil && suspect != 0 { // all was read
		err = r.stable.mark(keySuspect, 0)
	}
	return err
}

// suspect notes, if that is what err is, that the log has damage where its
// indexes may keep Open from looking: the next time all is read.
func (r *Replica) suspect(err error) bool {
	if damage := (*DamagedError)(nil); !errors.Is(err, record.ErrCorrupt) || r.single() || errors.As(err, &damage) {
		return false
	}
	if err := r.stable.mark(keySuspect, 1); err != nil {
		r.cfg.Logger.Error("damage cannot be noted", "error", err)
		return false
	}
	return true
}

// startOver sets the files aside, newest first, and opens an empty log: the
// others have what was in it.
func (r *Replica) startOver(ctx context.Context, why error) error {
	r.cfg.Logger.Error("damaged replica set aside; the others fill a new one", "reason", why)
	if err := r.stable.mark(keyUnsure, uint64(forgetful)); err != nil {
		return err
	}
	r.cfg.Mux.hide(r)
	if err := r.store.log.Close(); err != nil {
		return err
	}
	names, err := r.cfg.FS.List(r.cfg.Dir)
	if err != nil {
		return err
	}
	for _, name := range slices.Backward(names) {
		if name == membersName || strings.HasSuffix(name, ".damaged") {
			continue
		}
		to := name + ".damaged"
		for slices.Contains(names, to) {
			to += ".damaged"
		}
		if err := r.cfg.FS.Rename(path.Join(r.cfg.Dir, name), path.Join(r.cfg.Dir, to)); err != nil {
			return err
		}
	}
	if err := r.cfg.FS.SyncDir(r.cfg.Dir); err != nil {
		return err
	}
	if r.store.log, err = openLog(ctx, r.cfg, false); err != nil {
		return err
	}
	r.cfg.Mux.show(r)
	return nil
}
