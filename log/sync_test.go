package log

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

// hung has a log of one entry whose disk hangs in a Sync of it; end lets that end
// with err. The later syncs are well.
func hung(t *testing.T, segmentBytes int64) (l *Log, rng *rand.Rand, o oracle, end func(err error) error) {
	t.Helper()
	disk := vfs.NewMem()
	cfg := testConfig(disk)
	cfg.SegmentBytes = segmentBytes
	l, rng, o = open(t, cfg), testRand(t), newOracle()
	hangs, answer := make(chan struct{}), make(chan error)
	disk.Fail(func(op vfs.Op, name string) error {
		if op != vfs.OpSync || !strings.HasSuffix(name, ".log") {
			return nil
		}
		disk.Fail(nil)
		close(hangs)
		return <-answer
	})
	entries := o.make(t, rng, 1)
	require.NoError(t, l.Write(entries))
	require.EqualValues(t, 1, l.Durable())
	o = o.with(entries...)
	synced := make(chan error)
	go func() { synced <- l.Sync() }()
	<-hangs
	return l, rng, o, func(err error) error {
		answer <- err
		return <-synced
	}
}

func TestWritesGoOnWhileASyncIsUnderWay(t *testing.T) {
	l, rng, o, end := hung(t, 1<<20)
	entries := o.make(t, rng, 3)
	require.NoError(t, l.Write(entries))
	o = o.with(entries...)
	requireSame(t, l, o, "while it hangs")
	require.EqualValues(t, 1, l.Durable())
	require.NoError(t, end(nil))
	require.EqualValues(t, 2, l.Durable(), "what was written before it")
	require.NoError(t, l.Sync())
	require.Equal(t, o.next(), l.Durable())
	require.NoError(t, l.Close())
}

// TestAFailedSyncIsToldToWhoSyncsBesideIt: the system would tell the second one that
// all is well.
func TestAFailedSyncIsToldToWhoSyncsBesideIt(t *testing.T) {
	beside := map[string]func(l *Log, entries []segment.Entry) error{
		"append":   func(l *Log, entries []segment.Entry) error { return l.Append(entries) },
		"sync":     func(l *Log, _ []segment.Entry) error { return l.Sync() },
		"truncate": func(l *Log, entries []segment.Entry) error { return l.TruncateTo(1) },
	}
	for name, do := range beside {
		t.Run(name, func(t *testing.T) {
			l, rng, o, end := hung(t, 1<<20)
			other := make(chan error)
			entries := o.make(t, rng, 1)
			go func() { other <- do(l, entries) }()
			if name == "append" { // what it writes is seen before it waits
				for size := l.Size(); fileSize(t, l) == size; {
					runtime.Gosched()
				}
			}
			require.ErrorIs(t, end(syscall.EIO), ErrSync)
			require.ErrorIs(t, <-other, ErrSync)
			require.EqualValues(t, 1, l.Durable())
			require.ErrorIs(t, l.Append(entries), ErrSync)
			require.NoError(t, l.Close())
		})
	}
}

func fileSize(t *testing.T, l *Log) int64 {
	size, err := l.view.Load().active.seg.Size()
	require.NoError(t, err)
	return size
}

func TestASyncOfWhatIsCutMeanwhileMakesNothingDurable(t *testing.T) {
	l, rng, o, end := hung(t, 1<<20)
	cut := make(chan error)
	go func() { cut <- l.TruncateTo(1) }()
	for l.Bounds().Next != 1 { // told to readers before it waits for the sync
		runtime.Gosched()
	}
	require.NoError(t, end(nil))
	require.NoError(t, <-cut)
	require.EqualValues(t, 1, l.Durable())
	entries := newOracle().make(t, rng, 1)
	require.NoError(t, l.Write(entries))
	require.EqualValues(t, 1, l.Durable())
	require.NoError(t, l.Sync())
	require.Equal(t, o.next(), l.Durable())
	require.NoError(t, l.Close())
	require.True(t, errors.Is(l.Sync(), record.ErrClosed))
}
