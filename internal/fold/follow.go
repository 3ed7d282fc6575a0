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
	var again *rebuild // nil unless a part of the log was missed
	backoff := minBackoff
	for f.life.Err() == nil {
		next := f.position(again)
		fetched, err := f.partition.Fetch(f.life, next, fetchBytes)
		if err == nil {
			if again == nil {
				err = f.fold(&it, fetched.Batches)
			} else if err = again.take(&it, fetched.Batches); err == nil && again.whole {
				f.show(again)
				again = nil
			}
			if err != nil {
				f.stop(err)
				return
			}
			backoff = minBackoff
			continue
		}
		if f.life.Err() != nil {
			return
		}
		if start, ok := f.missed(err); ok {
			again = f.rebuild(start)
			continue
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

// position returns what is to be fetched next.
func (f *Fold) position(again *rebuild) record.Offset {
	if again != nil {
		return again.next
	}
	f.state.RLock()
	defer f.state.RUnlock()
	return f.next
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
