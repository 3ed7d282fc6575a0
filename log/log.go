package log

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

// Log is one partition's log on one node. See the package comment for who may
// call what at once. With FlushEvery it owns a Flusher if it was given none,
// which Close ends.
type Log struct {
	cfg    Config
	dir    string
	report RecoveryReport

	view   atomic.Pointer[view] // the newest published one
	closed atomic.Bool
	places places

	flusher *Flusher // the log's own, or shared
	watch   *watch   // of retention

	syncing sync.Mutex // held by whoever syncs the active segment; taken behind mu, guards syncErr
	syncErr error      // why a sync failed: the next one of the file would not say so

	durable atomic.Uint64 // entries below it are known to be on disk; stored with mu held

	mu       sync.Mutex // held by whoever writes; guards what follows
	tail     view       // what is in the files; published when all of a call is done
	unsynced bool       // the flusher knows of entries above
	writer   segment.Writer
	failed   error // sticky: why the log takes no more writes
}

// Bounds says what a log holds. It has no entries when First == Next, no
// records when Start == End.
type Bounds struct {
	First, Next record.EntryNumber // entries [First, Next)
	PrevTerm    uint64             // term of entry First-1, 0 when there was none
	LastTerm    uint64             // term of entry Next-1
	Start, End  record.Offset      // offsets [Start, End)
}

// Open opens the log in dir and repairs what a crash has left, or makes it. The
// directory is made if it is missing; only one Log may have it open. Damage that
// no crash explains does not keep it from opening: Recovery tells of it. ctx ends a
// long recovery.
func Open(ctx context.Context, dir string, cfg Config) (*Log, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("log in %s: %w", dir, err)
	}
	cfg = cfg.withDefaults()
	l := &Log{cfg: cfg, dir: dir, flusher: cmp.Or(cfg.Flusher, NewFlusher()), watch: newWatch(cfg.Now)}
	began := time.Now()
	if err := l.recover(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open log in %s: %w", dir, err), l.release())
	}
	l.report.Duration = time.Since(began)
	l.watch.floor = time.UnixMilli(l.tail.active.seg.Latest)
	l.durable.Store(uint64(l.tail.active.ext.NextEntry))
	l.publish()
	return l, nil
}

// Recovery returns what Open found and did.
func (l *Log) Recovery() RecoveryReport { return l.report }

// Bounds returns what the log holds.
func (l *Log) Bounds() Bounds { return l.view.Load().bounds() }

// Durable returns the entry below which all are known to be on disk.
func (l *Log) Durable() record.EntryNumber { return record.EntryNumber(l.durable.Load()) }

// Size returns the bytes of all segment files.
func (l *Log) Size() int64 {
	var n int64
	for p := range l.view.Load().parts {
		n += p.ext.Size
	}
	return n
}

// Close makes what was appended durable and closes the files; reads that are
// under way end well. It may be called twice. Other calls return
// record.ErrClosed from then on, but for Bounds and Size.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed.Swap(true) {
		l.mu.Unlock()
		return nil
	}
	var err error
	if l.failed == nil {
		err = l.seal()
	}
	err = errors.Join(err, l.release())
	l.mu.Unlock()
	l.flusher.forget(l)
	if l.cfg.Flusher == nil {
		l.flusher.Close()
	}
	return err
}

// publish shows readers what the writer has done.
func (l *Log) publish() {
	v := l.tail
	l.view.Store(&v)
}

// release gives up the log's own reference to each segment.
func (l *Log) release() error {
	var errs []error
	for p := range l.tail.parts {
		if p.seg != nil { // nil when recovery did not get that far
			errs = append(errs, p.seg.Release())
		}
	}
	return errors.Join(errs...)
}

// writable says why nothing can be written, nil if it can. The caller holds l.mu.
func (l *Log) writable() error {
	if l.closed.Load() {
		return record.ErrClosed
	}
	return l.failed
}

// fail makes the log read-only, because what is on disk is not known any more.
func (l *Log) fail(file string, err error) error {
	if l.failed == nil {
		l.failed = &SyncError{File: file, Err: err}
		l.cfg.Logger.Error("log takes no more writes until it is opened again", "file", file, "error", err)
	}
	return l.failed
}
