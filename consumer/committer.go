package consumer

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/record"
)

// commitPause is the time between two commits of a member that runs: a fast
// handler costs its coordinator no more than a hundred commits a second.
const commitPause = 10 * time.Millisecond

// saving is an offset to commit for a claim, unless a seek moves it before.
type saving struct {
	claim  *claim
	offset record.Offset
	era    int
}

// commits commits when it is time to, until the workers have ended.
func (r *runner) commits() {
	var tick <-chan time.Time
	if r.g.cfg.Commit == OnTimer {
		t := time.NewTicker(r.g.cfg.CommitInterval)
		defer t.Stop()
		tick = t.C
	}
	for {
		all := r.g.cfg.Commit == AfterHandler
		select {
		case <-tick:
			all = true
		case <-r.dirty:
		case <-r.endCommit:
			return
		}
		if err := r.commitAll(all); err != nil {
			r.end(err)
			return
		}
		pause := time.NewTimer(commitPause)
		select {
		case <-pause.C:
		case <-r.endCommit:
			pause.Stop()
			return
		}
	}
}

// commitAll commits what is finished: of every claim, or of those alone that
// are to be given up.
func (r *runner) commitAll(all bool) error {
	r.unsaved.Store(false) // what is finished from here on signals again
	defer signal(r.g.tidy)
	switch r.g.cfg.Commit {
	case ByHand:
		return nil
	case OnReceipt:
		return r.save(r.unhandled(), true)
	}
	return r.save(r.g.finished(func(c *claim) bool { return all || !c.wanted.Load() }), false)
}

// commitOf commits what is finished of one claim.
func (r *runner) commitOf(c *claim) error {
	return r.save(r.g.finished(func(o *claim) bool { return o == c }), false)
}

// save is Group.save, tried for a ProgressTimeout at the most.
func (r *runner) save(savings []saving, rewind bool) error {
	ctx, cancel := context.WithTimeout(r.store, r.g.cfg.ProgressTimeout)
	defer cancel()
	return r.g.save(ctx, savings, rewind)
}

// unhandled returns what is to be taken back of what was committed on receipt:
// where nothing is under way any more and nothing more will be.
func (r *runner) unhandled() (s []saving) {
	r.g.mu.Lock()
	defer r.g.mu.Unlock()
	for _, c := range r.g.ring {
		if w := c.win; w != nil && w.running == 0 && (r.stopping || !c.wanted.Load()) {
			r.g.recycle(w.settle())
			if c.done < c.stored && !c.fenced {
				s = append(s, saving{c, c.done, c.era})
			}
		}
	}
	return s
}

// finished returns what there is to commit of the claims that which names.
func (g *Group) finished(which func(*claim) bool) (s []saving) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.ring {
		if !which(c) {
			continue
		}
		if c.win != nil {
			g.recycle(c.win.settle())
		}
		if c.done > c.stored && !c.fenced {
			s = append(s, saving{c, c.done, c.era})
		}
	}
	return s
}

// recycle gives the memory of batches that are through to the feeds. Handlers
// got copies of the records.
func (g *Group) recycle(through []*flight) {
	for _, f := range through {
		select {
		case g.spare <- f.batch.Records[:0]:
		default:
		}
	}
}

// save commits the offsets: in one request, or one by one when somebody else
// has taken a partition. That a partition is lost is no error: its records are
// handled again by who has it.
func (g *Group) save(ctx context.Context, savings []saving, rewind bool) error {
	if len(savings) == 0 {
		return nil
	}
	g.saving <- struct{}{} // a commit must not overtake a seek
	defer func() { <-g.saving }()
	err := g.send(ctx, savings, rewind)
	if len(savings) > 1 && errors.Is(err, record.ErrFenced) {
		err = nil
		for i := range savings {
			if e := g.send(ctx, savings[i:i+1], rewind); !errors.Is(e, record.ErrFenced) {
				err = errors.Join(err, e)
			}
		}
	}
	if errors.Is(err, record.ErrFenced) {
		return nil
	}
	return err
}

// send commits the offsets in one request.
func (g *Group) send(ctx context.Context, savings []saving, rewind bool) error {
	req := group.Request{Op: group.OpCommit, Rewind: rewind}
	g.mu.Lock()
	req.Generation = g.generation
	savings = slices.DeleteFunc(slices.Clone(savings), func(s saving) bool { // lost, or moved by a seek
		return g.claims[s.claim.tp] != s.claim || s.claim.era != s.era
	})
	g.mu.Unlock()
	if len(savings) == 0 {
		return nil
	}
	for _, s := range savings {
		req.Offsets = append(req.Offsets, group.Offset{TopicPartition: s.claim.tp, Offset: s.offset})
	}
	err := g.commit(ctx, req)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range savings {
		switch {
		case err == nil && rewind:
			s.claim.stored = s.offset
		case err == nil:
			s.claim.stored = max(s.claim.stored, s.offset) // a move may have been faster
		case errors.Is(err, record.ErrFenced) && len(savings) == 1:
			s.claim.fenced = true
			g.logger.Warn("partition lost while its records were handled, they will be handled again",
				"partition", s.claim.tp, "from", s.claim.stored, "to", s.offset, "err", err)
		}
	}
	return err
}

// CommitFinished commits for every partition what the handler of Run has
// finished, up to the first record that is not: with [ByHand] the commit by
// hand, with the other moments a commit ahead of time. It may be called while
// Run is running, by a handler as well, whose own record is not finished then,
// and after Run. Partitions that were lost meanwhile are passed over.
func (g *Group) CommitFinished(ctx context.Context) error {
	return g.save(ctx, g.finished(func(*claim) bool { return true }), false)
}
