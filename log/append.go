package log

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

// Append writes entries, whose numbers, terms and offsets continue the log, and
// returns when they are as durable as the flush policy says. On an error
// nothing of them is in the log: *SyncError means that the log takes no more
// writes, and that some of them may be there when it is opened again; ErrNoSpace
// that the same call may succeed later; entries that do not
// fit match record.ErrInvalid, record.ErrCorrupt or record.ErrTooLarge. Data is
// only read, and not kept.
func (l *Log) Append(entries []segment.Entry) error {
	return l.append(entries, l.cfg.Flush == FlushEach)
}

// Write is Append that never syncs: with FlushEach the caller sees to it that
// Sync is called soon, and takes for durable only what lies below Durable.
func (l *Log) Write(entries []segment.Entry) error { return l.append(entries, false) }

func (l *Log) append(entries []segment.Entry, durably bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	if len(entries) == 0 {
		return nil
	}
	if err := l.check(entries); err != nil {
		return err
	}
	before := l.tail
	err := l.write(entries)
	if err == nil && durably {
		err = l.sync()
	}
	if err != nil {
		return fmt.Errorf("append entry %d: %w", entries[0].Number, l.undo(before, err))
	}
	l.publish()
	if l.cfg.Flush > 0 && !l.unsynced {
		l.unsynced = true
		l.flusher.add(l)
	}
	return nil
}

// Sync makes all that was appended before durable. Others append meanwhile.
func (l *Log) Sync() error {
	l.mu.Lock()
	p, cuts, err := l.tail.active, l.tail.cuts, l.writable()
	if err != nil || l.Durable() == p.ext.NextEntry || !p.seg.Acquire() {
		l.mu.Unlock()
		return err
	}
	l.mu.Unlock()
	err = l.alone(p.seg.Sync)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		err = l.fail(p.seg.File(), err)
	case l.tail.cuts == cuts && p.ext.NextEntry > l.Durable(): // else somebody has seen to it, or it is gone
		l.durable.Store(uint64(p.ext.NextEntry))
	}
	return errors.Join(err, p.seg.Release())
}

// sync is Sync for who holds l.mu.
func (l *Log) sync() error {
	p := l.tail.active
	if l.Durable() == p.ext.NextEntry {
		return nil
	}
	if err := l.alone(p.seg.Sync); err != nil {
		return l.fail(p.seg.File(), err)
	}
	l.durable.Store(uint64(p.ext.NextEntry))
	return nil
}

// alone runs sync, which syncs the active segment, when nobody else does. A system
// tells only once of a page that it could not write, so from then on all fail.
func (l *Log) alone(sync func() error) error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if err := sync(); l.syncErr == nil {
		l.syncErr = err
	}
	return l.syncErr
}

// check refuses what could not be read back, before anything is written.
func (l *Log) check(entries []segment.Entry) error {
	x := l.tail.active.ext
	number, offset, term := x.NextEntry, x.NextOffset, x.LastTerm
	for i := range entries {
		e := &entries[i]
		if e.Number != number || e.Offset != offset || e.Term < term {
			return fmt.Errorf("%w: entry %d with offset %d and term %d where entry %d with offset %d and term %d or more must follow",
				record.ErrInvalid, e.Number, e.Offset, e.Term, number, offset, term)
		}
		if err := e.Check(); err != nil {
			return err
		}
		number, offset, term = number+1, e.Next(), e.Term
	}
	return nil
}

// write appends to the active segment, and rolls as often as it must.
func (l *Log) write(entries []segment.Entry) error {
	if l.old() {
		if err := l.roll(); err != nil {
			return err
		}
	}
	for len(entries) > 0 {
		n := l.fit(entries)
		if n == 0 {
			if err := l.roll(); err != nil {
				return err
			}
			continue
		}
		p := &l.tail.active
		ext, err := p.seg.Append(&l.writer, p.ext, entries[:n], l.Durable())
		if err != nil {
			return err
		}
		p.ext = ext
		entries = entries[n:]
	}
	return nil
}

// fit returns how many of entries go into the active segment. All do as long as
// it holds no offset: the next one would have the same name.
func (l *Log) fit(entries []segment.Entry) int {
	h, size, next := l.tail.active.seg.Header, l.tail.active.ext.Size, l.tail.active.ext.NextOffset
	for i := range entries {
		e := &entries[i]
		size += e.Size()
		end := e.Next()
		if next > h.BaseOffset && (size > l.cfg.SegmentBytes ||
			uint64(end-h.BaseOffset) > math.MaxUint32 || uint64(e.Number-h.BaseEntry) > math.MaxUint32) {
			return i
		}
		next = end
	}
	return len(entries)
}

// old reports whether the active segment has reached SegmentAge. One without an
// offset never has: the next one would have the same name.
func (l *Log) old() bool {
	p := l.tail.active
	age := l.cfg.Now().Sub(time.UnixMilli(p.seg.Created))
	return p.ext.NextOffset > p.seg.BaseOffset && age.Abs() >= l.cfg.SegmentAge
}

// undo takes back what a failed call has written since before, which is what
// readers see, and returns the error of the call. If taking back fails too, that
// is a *SyncError: the log takes no more writes, and may hold any of it when it
// is opened again.
func (l *Log) undo(before view, cause error) error {
	if err := l.rewind(before); err != nil {
		return l.fail(before.active.seg.File(), fmt.Errorf("%w; and taking it back: %w", cause, err))
	}
	return cause
}
