package vfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
)

var errDisk = errors.New("the disk is bad")

// mutatingCalls are one of each kind, on a file a, its open handle f and a
// directory sub.
func mutatingCalls(m *vfs.Mem, f vfs.File) map[vfs.Op]func() error {
	return map[vfs.Op]func() error{
		vfs.OpCreate:   func() error { _, err := m.Create("b"); return err },
		vfs.OpRename:   func() error { return m.Rename("a", "c") },
		vfs.OpRemove:   func() error { return m.Remove("a") },
		vfs.OpMkdir:    func() error { return m.MkdirAll("x/y") },
		vfs.OpSyncDir:  func() error { return m.SyncDir("sub") },
		vfs.OpLock:     func() error { _, err := m.Lock("LOCK", "me"); return err },
		vfs.OpWrite:    func() error { _, err := f.WriteAt([]byte("new"), 0); return err },
		vfs.OpTruncate: func() error { return f.Truncate(1) },
		vfs.OpSync:     func() error { return f.Sync() },
	}
}

func readingCalls(m *vfs.Mem, f vfs.File) map[vfs.Op]func() error {
	return map[vfs.Op]func() error{
		vfs.OpOpen:     func() error { _, err := m.Open("a"); return err },
		vfs.OpReadFile: func() error { _, err := m.ReadFile("a"); return err },
		vfs.OpList:     func() error { _, err := m.List("/"); return err },
		vfs.OpRead:     func() error { _, err := f.ReadAt(make([]byte, 1), 0); return err },
		vfs.OpSize:     func() error { _, err := f.Size(); return err },
	}
}

// newDisk has a file a, which is open and synced, and a directory sub.
func newDisk(t *testing.T) (*vfs.Mem, vfs.File) {
	t.Helper()
	m := vfs.NewMem()
	require.NoError(t, m.MkdirAll("sub"))
	f := create(t, m, "a", "old")
	require.NoError(t, f.Sync())
	require.NoError(t, m.SyncDir("/"))
	return m, f
}

func TestMutatingCallsAreCountedAndOthersAreNot(t *testing.T) {
	m, f := newDisk(t)
	before := m.Ops()
	for op, call := range readingCalls(m, f) {
		require.NoError(t, call(), op)
	}
	require.Equal(t, before, m.Ops())
	for op := range mutatingCalls(m, f) {
		m, f := newDisk(t)
		require.NoError(t, mutatingCalls(m, f)[op](), op)
		require.Equal(t, before+1, m.Ops(), op)
	}
}

func TestFailAtFailsTheChosenCallOnce(t *testing.T) {
	for op := range mutatingCalls(newDisk(t)) {
		m, f := newDisk(t)
		m.FailAt(1, errDisk)
		_, err := f.WriteAt([]byte("old"), 0) // let through
		require.NoError(t, err)
		call := mutatingCalls(m, f)[op]
		err = call()
		require.ErrorIs(t, err, errDisk, op)
		require.ErrorContains(t, err, op.String())
		require.Equal(t, "old", content(t, m, "a"), "%v must do nothing when it fails", op)
		require.NoError(t, call(), op)
	}
}

func TestFailAtIsTakenBack(t *testing.T) {
	m, f := newDisk(t)
	m.FailAt(0, errDisk)
	m.FailAt(-1, nil)
	require.NoError(t, f.Sync())
}

func TestTheHookIsAskedBeforeEveryCall(t *testing.T) {
	m, f := newDisk(t)
	names := map[vfs.Op]string{}
	m.Fail(func(op vfs.Op, name string) error {
		names[op] = name
		return fmt.Errorf("%v: %w", op, errDisk)
	})
	ops := m.Ops()
	for _, calls := range []map[vfs.Op]func() error{mutatingCalls(m, f), readingCalls(m, f)} {
		for op, call := range calls {
			require.ErrorIs(t, call(), errDisk, op)
			require.Contains(t, names, op)
		}
	}
	require.Equal(t, "a", names[vfs.OpWrite])
	require.Equal(t, "sub", names[vfs.OpSyncDir])
	require.Equal(t, ops+len(mutatingCalls(m, f)), m.Ops(), "failed calls count too")
	m.Fail(nil)
	list, err := m.List("/")
	require.NoError(t, err)
	require.Equal(t, []string{"a", "sub"}, list)
	require.Equal(t, "old", content(t, m, "a"))
}

func TestTheHookMayCrashTheDisk(t *testing.T) {
	m, f := newDisk(t)
	m.Fail(func(op vfs.Op, _ string) error {
		if op == vfs.OpSync {
			m.Crash()
		}
		return nil
	})
	_, err := f.WriteAt([]byte("new"), 0)
	require.NoError(t, err)
	require.ErrorIs(t, f.Sync(), vfs.ErrCrashed)
	require.Equal(t, "old", content(t, m.Reboot(0), "a"))
}

func TestAShortWriteWritesWhatItSays(t *testing.T) {
	for n, want := range map[int64]string{-1: "old", 0: "old", 2: "01d", 5: "01234", 100: "0123456789"} {
		m, f := newDisk(t)
		m.Fail(func(op vfs.Op, _ string) error {
			if op == vfs.OpWrite {
				return &vfs.ShortWrite{N: n, Err: syscall.EIO}
			}
			return nil
		})
		written, err := f.WriteVecAt([][]byte{[]byte("012"), nil, []byte("3456789")}, 0)
		require.ErrorIs(t, err, syscall.EIO)
		require.EqualValues(t, min(max(n, 0), 10), written)
		require.Equal(t, want, content(t, m, "a"))
	}
}

func TestAFullDiskTakesWhatFitsAndWorksAgainWithSpace(t *testing.T) {
	m, f := newDisk(t)
	require.EqualValues(t, 3, m.Used())
	m.SetCapacity(8)
	n, err := f.WriteAt([]byte("0123456789"), 0)
	require.ErrorIs(t, err, vfs.ErrNoSpace)
	require.Equal(t, 8, n)
	require.Equal(t, "01234567", content(t, m, "a"))
	require.EqualValues(t, 8, m.Used())

	n, err = f.WriteAt([]byte("x"), 20)
	require.ErrorIs(t, err, vfs.ErrNoSpace)
	require.Zero(t, n)
	require.ErrorIs(t, f.Truncate(9), vfs.ErrNoSpace)
	_, err = f.WriteAt([]byte("XY"), 6)
	require.NoError(t, err, "overwriting needs no space")
	_, err = m.Lock("LOCK", "me")
	require.ErrorIs(t, err, vfs.ErrNoSpace)

	require.NoError(t, f.Truncate(4))
	_, err = f.WriteAt([]byte("abcd"), 4)
	require.NoError(t, err)
	require.Equal(t, "0123abcd", content(t, m, "a"))

	m.SetCapacity(vfs.Unlimited)
	_, err = f.WriteAt([]byte("more"), 8)
	require.NoError(t, err)
	require.EqualValues(t, 12, m.Used())
	require.EqualValues(t, 12, m.Reboot(1).Used())
}

func TestRemovedFilesUseSpaceUntilTheyAreClosed(t *testing.T) {
	m, f := newDisk(t)
	require.NoError(t, create(t, m, "b", "12345").Close())
	require.EqualValues(t, 8, m.Used())
	require.NoError(t, m.Rename("b", "a"))
	require.EqualValues(t, 8, m.Used(), "the old a is open")
	require.NoError(t, f.Close())
	require.EqualValues(t, 5, m.Used())
	require.NoError(t, m.Remove("a"))
	require.Zero(t, m.Used())
}

func TestAFileDoesNotGrowBeyondReason(t *testing.T) {
	_, f := newDisk(t)
	require.ErrorIs(t, f.Truncate(1<<60), syscall.EFBIG)
	_, err := f.WriteAt([]byte("x"), 1<<60)
	require.ErrorIs(t, err, syscall.EFBIG)
}

func TestAfterTheCrashEverythingFails(t *testing.T) {
	for op := range mutatingCalls(newDisk(t)) {
		m, f := newDisk(t)
		mutating, reading := mutatingCalls(m, f), readingCalls(m, f)
		m.CrashAfter(1)
		require.NoError(t, f.Sync())
		require.False(t, m.Crashed())
		require.ErrorIs(t, mutating[op](), vfs.ErrCrashed, "the crash point")
		require.True(t, m.Crashed())
		ops := m.Ops()
		for _, calls := range []map[vfs.Op]func() error{mutating, reading} {
			for after, call := range calls {
				require.ErrorIs(t, call(), vfs.ErrCrashed, after)
			}
		}
		require.Equal(t, ops, m.Ops())
		require.NoError(t, f.Close())
	}
}

func TestCrashAfterIsTakenBack(t *testing.T) {
	m, f := newDisk(t)
	m.CrashAfter(0)
	m.CrashAfter(-1)
	require.NoError(t, f.Sync())
	require.False(t, m.Crashed())
}

func TestALockEndsWithTheMachine(t *testing.T) {
	m, _ := newDisk(t)
	held, err := m.Lock("LOCK", "me")
	require.NoError(t, err)
	next := m.Reboot(1)
	_, err = next.Lock("LOCK", "me again")
	require.NoError(t, err)
	require.NoError(t, held.Close())
	_, err = next.Lock("LOCK", "third")
	require.ErrorIs(t, err, vfs.ErrLocked)
}

func TestManyUseOneMemAtOnce(t *testing.T) {
	m := vfs.NewMem()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			dir := fmt.Sprintf("p/%d", i%4) // two to a directory
			name, want := fmt.Sprintf("%s/%d", dir, i), bytes.Repeat([]byte{byte(i)}, 5000)
			for range 20 {
				if err := errors.Join(m.MkdirAll(dir), vfs.WriteFile(m, name, want)); err != nil {
					t.Error(err)
					return
				}
				if got, err := m.ReadFile(name); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s: %v, %d bytes", name, err, len(got))
				}
				if _, err := m.List("p"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 8*5000, m.Used())
	_, err := m.Open("p/9")
	require.ErrorIs(t, err, fs.ErrNotExist)
}
