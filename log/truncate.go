package log

import (
	"fmt"

	"github.com/quorumlog/quorumlog/record"
)

// TruncateTo removes entry n and all later ones, durably. n may be First, which
// leaves none, or Next, which does nothing; else *EntryRangeError. After an
// error while files are changed the log takes no more writes.
func (l *Log) TruncateTo(n record.EntryNumber) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	b := l.tail.bounds()
	if n == b.Next {
		return nil
	}
	if n < b.First || n > b.Next {
		return &EntryRangeError{Number: n, First: b.First, Next: b.Next}
	}
	i := l.tail.searchEntry(n)
	p := l.tail.at(i)
	ext, err := p.seg.Before(p.ext, n)
	if err != nil {
		return fmt.Errorf("truncate to entry %d: %w", n, err)
	}
	to := view{sealed: l.tail.sealed[:i], active: part{seg: p.seg, ext: ext}, cuts: l.tail.cuts + 1}
	// Readers learn of it first: who still has the old view when bytes change
	// sees afterwards that it must read again.
	l.view.Store(&to)
	if err := l.rewind(to); err != nil {
		return fmt.Errorf("truncate to entry %d: %w", n, l.fail(p.seg.File(), err))
	}
	return nil
}

// rewind brings the files from what they hold back to what they held at to,
// newest first, so that a crash leaves a log that ends somewhere in between.
func (l *Log) rewind(to view) error {
	for l.tail.active.seg != to.active.seg {
		dropped := l.tail.active.seg
		if err := dropped.Remove(); err != nil {
			return err
		}
		last := len(l.tail.sealed) - 1
		l.tail.active, l.tail.sealed = l.tail.sealed[last], l.tail.sealed[:last]
		if err := dropped.Release(); err != nil {
			return err
		}
	}
	if err := l.alone(func() error { return to.active.seg.Cut(to.active.ext) }); err != nil {
		return err
	}
	l.tail = to
	l.durable.Store(uint64(to.active.ext.NextEntry))
	return nil
}
