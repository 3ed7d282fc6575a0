package log

import (
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
)

// TestAFailureAtAnyCallHurtsOnlyThatCall lets each file system call of a run
// fail, one at a time, reads too. What fails is not in the log and never appears later,
// what was there stays readable, and the log goes on, after ErrSync when opened again.
func TestAFailureAtAnyCallHurtsOnlyThatCall(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
	}{
		{"EIO", syscall.EIO},
		{"ENOSPC", vfs.ErrNoSpace},
		{"short write", &vfs.ShortWrite{N: 50, Err: vfs.ErrNoSpace}},
		{"EMFILE", syscall.EMFILE},
		{"EIO and nothing written", &vfs.ShortWrite{N: 0, Err: syscall.EIO}},
		{"EIO and all written", &vfs.ShortWrite{N: 1 << 30, Err: syscall.EIO}},
	} {
		t.Run(c.name, func(t *testing.T) {
			seed := testRand(t).Uint64()
			for point := int64(0); ; point++ {
				if !failAt(t, seed, point, c.err) {
					t.Logf("%d points", point)
					return
				}
			}
		})
	}
}

func failAt(t *testing.T, seed uint64, point int64, fault error) bool {
	disk := vfs.NewMem()
	var calls atomic.Int64
	var failed string
	disk.Fail(func(op vfs.Op, name string) error {
		if calls.Add(1)-1 != point {
			return nil
		}
		failed = fmt.Sprintf("point %d, %v of %s", point, op, name)
		return fault
	})
	r := newRun(t, seed, testConfig(disk))
	r.hit = func(op string, err error) error {
		want := fault
		if short := (*vfs.ShortWrite)(nil); errors.As(fault, &short) {
			want = short.Err
		}
		require.ErrorIs(t, err, want, failed+" in "+op)
		if op == "open" || op == "close" {
			return nil
		}
		if op == "append" {
			requireSame(t, r.l, r.o, failed) // readable, and nothing new
		}
		if errors.Is(err, ErrSync) {
			require.ErrorIs(t, r.l.Append(r.o.make(t, r.rng, 1)), ErrSync, "not sticky: "+failed)
			require.NoError(t, r.l.Close())
			return r.open()
		}
		r.o = pick(t, r.l, r.after, failed) // nothing, or a part of a trim
		r.settle(r.o)
		requireSame(t, r.l, r.o, failed)
		return nil
	}
	require.NoError(t, r.story(), failed)
	disk.Fail(nil)
	require.NoError(t, r.open())
	requireSame(t, r.l, r.o, failed)
	require.NoError(t, r.close())
	return failed != ""
}

func TestAppendsResumeWhenThereIsSpaceAgain(t *testing.T) {
	disk := vfs.NewMem()
	l := open(t, testConfig(disk))
	o := newOracle()
	rng := testRand(t)
	first := o.make(t, rng, 20)
	require.NoError(t, l.Append(first))
	o = o.with(first...)

	disk.SetCapacity(disk.Used() + 100)
	more := o.make(t, rng, 20)
	err := l.Append(more)
	require.ErrorIs(t, err, ErrNoSpace)
	require.NotErrorIs(t, err, ErrSync)
	requireSame(t, l, o, "full")
	require.NoError(t, l.Close())
	disk.SetCapacity(disk.Used())
	l = open(t, testConfig(disk)) // opening needs no space
	requireSame(t, l, o, "opened while full")
	require.ErrorIs(t, l.Append(more), ErrNoSpace)

	disk.SetCapacity(vfs.Unlimited)
	require.NoError(t, l.Append(more))
	requireSame(t, l, o.with(more...), "space again")
	require.NoError(t, l.Close())
}

func TestAnUnwritableDirectoryIsSaidSo(t *testing.T) {
	disk := vfs.NewMem()
	disk.Fail(func(op vfs.Op, name string) error {
		if op == vfs.OpMkdir {
			return fs.ErrPermission
		}
		return nil
	})
	_, err := Open(t.Context(), testDir, testConfig(disk))
	require.ErrorIs(t, err, fs.ErrPermission)
	require.ErrorContains(t, err, testDir)
}
