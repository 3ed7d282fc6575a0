package vfs

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
)

// ErrCrashed is what every call on a Mem gives from its crash on.
var ErrCrashed = errors.New("the file system has crashed")

// Op is a kind of call on a Mem.
type Op int

// The kinds of calls. Those from OpCreate on are mutating: they are counted, and
// a crash may happen at them.
const (
	OpOpen Op = iota
	OpReadFile
	OpList
	OpRead
	OpSize
	OpCreate
	OpRename
	OpRemove
	OpMkdir
	OpSyncDir
	OpLock
	OpWrite
	OpTruncate
	OpSync
)

var opNames = [...]string{"open", "readfile", "list", "read", "size", "create", "rename", "remove", "mkdir", "syncdir", "lock", "write", "truncate", "sync"}

func (op Op) String() string {
	if op < 0 || int(op) >= len(opNames) {
		return fmt.Sprintf("op %d", int(op))
	}
	return opNames[op]
}

// ShortWrite is what a Fail hook returns for an OpWrite that writes N bytes and
// then fails with Err.
type ShortWrite struct {
	N   int64
	Err error
}

func (e *ShortWrite) Error() string { return fmt.Sprintf("short write of %d bytes: %v", e.N, e.Err) }

// Unwrap returns the cause.
func (e *ShortWrite) Unwrap() error { return e.Err }

// CrashAfter lets n more mutating calls through. The one behind them is the
// crash point: it gives ErrCrashed and may have happened, not at all or, if it
// is a write, in part. Negative means no crash.
func (m *Mem) CrashAfter(n int) { m.faults.arm(func(f *faults) { f.crashIn = n }) }

// Crash is the loss of power, now.
func (m *Mem) Crash() { m.faults.crashed.Store(true) }

// Crashed reports whether the crash has happened.
func (m *Mem) Crashed() bool { return m.faults.crashed.Load() }

// FailAt lets n more mutating calls through and makes the one behind them fail
// with err, once. Negative means none.
func (m *Mem) FailAt(n int, err error) {
	m.faults.arm(func(f *faults) { f.failIn, f.failErr = n, err })
}

// Fail sets a hook that is asked before every call, reads too, and makes it fail
// with the error that it returns. Nil takes the hook away. It runs on the
// caller's goroutine, so maybe more than once at a time, and may call m.
func (m *Mem) Fail(hook func(op Op, name string) error) {
	if hook == nil {
		m.faults.hook.Store(nil)
		return
	}
	m.faults.hook.Store(&hook)
}

// Ops returns how many mutating calls there have been, failed ones included.
func (m *Mem) Ops() int {
	m.faults.mu.Lock()
	defer m.faults.mu.Unlock()
	return m.faults.ops
}

// faults decides about each call whether it fails.
type faults struct {
	crashed atomic.Bool
	hook    atomic.Pointer[func(Op, string) error]

	mu      sync.Mutex // guards what follows
	ops     int
	crashIn int // calls still let through; negative: not armed
	failIn  int
	failErr error
}

func (f *faults) arm(set func(*faults)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	set(f)
}

// ask asks the hook. It runs before any lock is taken.
func (f *faults) ask(op Op, name string) error {
	if f.crashed.Load() {
		return ErrCrashed
	}
	if hook := f.hook.Load(); hook != nil {
		return (*hook)(op, name)
	}
	return nil
}

// admit counts a mutating call and says whether it is the crash point or fails.
// The caller holds Mem.mu, so that Reboot sees an admitted call whole.
func (f *faults) admit(asked error) (crash bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.crashed.Load() {
		return false, ErrCrashed
	}
	f.ops++
	if f.crashIn == 0 {
		f.crashed.Store(true)
		return true, nil
	}
	fail := f.failIn == 0
	f.crashIn, f.failIn = max(f.crashIn-1, -1), max(f.failIn-1, -1)
	if fail && asked == nil {
		return false, f.failErr
	}
	return false, asked
}

// Unlimited is the capacity of a Mem that has none set.
const Unlimited int64 = math.MaxInt64

// SetCapacity sets how many bytes the files may have together. A write beyond it
// is short and fails with ErrNoSpace; no file shrinks.
func (m *Mem) SetCapacity(bytes int64) {
	m.space.mu.Lock()
	defer m.space.mu.Unlock()
	m.space.capacity = bytes
}

// Used returns how many bytes all files have, removed ones too while they are
// open. Holes count.
func (m *Mem) Used() int64 {
	m.space.mu.Lock()
	defer m.space.mu.Unlock()
	return m.space.used
}

// space is the bytes that a Mem's files share.
type space struct {
	mu             sync.Mutex
	used, capacity int64
}

// extend takes what there is of the space that a file needs to grow from size to
// end, and returns how far it may grow. Nothing is taken if that is not past off.
func (s *space) extend(size, off, end int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	end = min(end, size+max(s.capacity-s.used, 0))
	if end > size && end > off {
		s.used += end - size
	}
	return end
}

func (s *space) release(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= bytes
}
