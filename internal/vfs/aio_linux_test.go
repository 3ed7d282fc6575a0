package vfs

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// engine returns an aio, or skips where there is none.
func engine(t *testing.T) *aio {
	a := newAIO()
	if a == nil {
		t.Skip("the kernel, or a policy, has no aio")
	}
	return a
}

func TestTheKernelsStructsHaveItsLayout(t *testing.T) {
	var r iocb
	require.EqualValues(t, 64, unsafe.Sizeof(r))
	require.EqualValues(t, 16, unsafe.Offsetof(r.opcode))
	require.EqualValues(t, 20, unsafe.Offsetof(r.fd))
	require.EqualValues(t, 56, unsafe.Offsetof(r.flags))
	require.EqualValues(t, 60, unsafe.Offsetof(r.eventFD))
	require.EqualValues(t, 32, unsafe.Sizeof(ioEvent{}))
}

func TestTheKernelSyncsAFile(t *testing.T) {
	a := engine(t)
	f, err := os.Create(filepath.Join(t.TempDir(), "a"))
	require.NoError(t, err)
	defer f.Close()
	var wg sync.WaitGroup
	for range 2 * maxSyncs {
		wg.Go(func() {
			if err := a.sync(f.Fd()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.NoError(t, a.close())
	require.ErrorIs(t, a.sync(f.Fd()), errNotSubmitted)
}

func TestAFailedSyncIsTheCallersError(t *testing.T) {
	s := aioSlot{result: make(chan int64, 1)}
	s.result <- -int64(unix.EIO)
	require.ErrorIs(t, s.wait(), unix.EIO)
	s.result <- 0
	require.NoError(t, s.wait())
}

// TestWhatTheKernelDoesNotTakeIsSyncedByAThread has files that aio refuses: the
// error is the one that fdatasync itself gives.
func TestWhatTheKernelDoesNotTakeIsSyncedByAThread(t *testing.T) {
	a := engine(t)
	s := &syncs{aio: a}
	s.pending.Add(1) // as if another file synced
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	require.ErrorIs(t, a.sync(w.Fd()), errNotSubmitted)
	require.ErrorIs(t, s.sync(w.Fd()), unix.EINVAL)
	require.ErrorIs(t, s.sync(1<<20), unix.EBADF)
	f, err := os.Create(filepath.Join(t.TempDir(), "a"))
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, s.sync(f.Fd()))
	require.NoError(t, a.close())
	require.NoError(t, s.sync(f.Fd()))
}

func TestCloseLeavesNoDescriptorAndNoGoroutine(t *testing.T) {
	count := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(names)
	}
	require.NoError(t, NewOS().Close()) // the runtime's poller has descriptors of its own
	before := count()
	for range 10 {
		o := NewOS()
		require.NoError(t, o.Close()) // which waits for its goroutine
		require.NoError(t, o.Close())
	}
	require.Equal(t, before, count())
}
