package fold

import (
	"errors"
	"fmt"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

const (
	fetchBytes = 1 << 20 // of one fetch
	minBackoff = 10 * time.Millisecond
	maxBackoff = time.Second
)

// follow fetches and folds until Close or an error that ends the fold. It is
// the fold's own goroutine.
func (f *Fold) follow() {
	var it record.Iterator
	backoff := minBackoff
	for f.life.Err() == nil {
		f.state.RLock()
		next := f.next
		f.state.RUnlock()
		fetched, err := f.partition.Fetch(f.life, next, fetchBytes)
		if err == nil {
			if err := f.fold(&it, fetched.Batches); err != nil {
				f.stop(err)
				return
			}
			backoff = minBackoff
			continue
		}
		if f.life.Err() != nil {
			return
		}
		if permanent(err) {
			f.stop(err)
			return
		}
		f.logger.Warn("fetch failed, trying again", "offset", next, "in", backoff, "err", err)
		if !f.pause(backoff) {
			return
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// stop ends folding for good.
func (f *Fold) stop(err error) {
	f.state.Lock()
	f.logger.Error("folding stopped", "offset", f.next, "err", err)
	f.err = fmt.Errorf("fold stopped: %w", err)
	f.state.Unlock()
	f.advanced()
}

// permanent tells errors that asking again does not mend.
func permanent(err error) bool {
	var outside *record.OffsetRangeError
	return errors.Is(err, record.ErrClosed) || errors.Is(err, record.ErrCorrupt) ||
		errors.As(err, &outside) && outside.Offset < outside.Start // what is trimmed never comes back
}

// pause waits for d; false when the fold is closed meanwhile.
func (f *Fold) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-f.life.Done():
		return false
	}
}

// fold takes in the records of batches from next on.
func (f *Fold) fold(it *record.Iterator, batches []record.Batch) error {
	if len(batches) == 0 {
		return nil
	}
	defer f.advanced()
	f.state.Lock()
	defer f.state.Unlock()
	return f.take(it, batches)
}

// foldOwn folds a batch that this node has written, if it comes next: whoever has
// proposed it need not wait until it is fetched.
func (f *Fold) foldOwn(b record.Batch) {
	f.state.Lock()
	defer f.state.Unlock()
	if f.err != nil || f.next != b.BaseOffset() {
		return
	}
	defer f.advanced()
	// A record that is not understood is met again by who follows, and stops it there.
	_ = f.take(new(record.Iterator), []record.Batch{b})
}

// take folds what is not folded yet. f.state is held.
func (f *Fold) take(it *record.Iterator, batches []record.Batch) error {
	for _, b := range batches {
		if b.NextOffset() <= f.next {
			continue
		}
		if err := it.Reset(b); err != nil {
			return err
		}
		var r record.Record
		for it.Next(&r) {
			if r.Offset < f.next { // the first batch may begin below
				continue
			}
			if err := f.apply(r); err != nil {
				return fmt.Errorf("record at offset %d: %w", r.Offset, err)
			}
			f.next = r.Offset + 1
		}
		if err := it.Err(); err != nil {
			return err
		}
		f.next = max(f.next, b.NextOffset())
	}
	return nil
}
