package log

import (
	"context"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/segment"
)

// counted counts what is read and written in a file system, by file.
type counted struct {
	vfs.FS
	mu            sync.Mutex
	read, written map[string]int64
}

func newCounted(fsys vfs.FS) *counted {
	return &counted{FS: fsys, read: map[string]int64{}, written: map[string]int64{}}
}

func (c *counted) add(to map[string]int64, name string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to[path.Base(name)] += int64(n)
}

func (c *counted) Open(name string) (vfs.File, error) {
	f, err := c.FS.Open(name)
	return &countedFile{File: f, c: c, name: name}, err
}

func (c *counted) ReadFile(name string) ([]byte, error) {
	b, err := c.FS.ReadFile(name)
	c.add(c.read, name, len(b))
	return b, err
}

type countedFile struct {
	vfs.File
	c    *counted
	name string
}

func (f *countedFile) ReadAt(b []byte, pos int64) (int, error) {
	n, err := f.File.ReadAt(b, pos)
	if err == nil || err == io.EOF {
		f.c.add(f.c.read, f.name, n)
	}
	return n, err
}

func (f *countedFile) WriteAt(b []byte, pos int64) (int, error) {
	n, err := f.File.WriteAt(b, pos)
	f.c.add(f.c.written, f.name, n)
	return n, err
}

// fill appends until the log has so many sealed segments, and some entries more.
func fill(t testing.TB, l *Log, o oracle, sealed int) oracle {
	rng := testRand(t)
	for len(l.view.Load().sealed) < sealed || l.Bounds().Next < l.view.Load().active.seg.BaseEntry+5 {
		e := o.make(t, rng, 20)
		require.NoError(t, l.Append(e))
		o = o.with(e...)
	}
	return o
}

// TestAReopenReadsOnlyHeadersIndexesAndTheUnsyncedTail counts bytes, once after a
// clean Close and once after appends behind that which were not closed.
func TestAReopenReadsOnlyHeadersIndexesAndTheUnsyncedTail(t *testing.T) {
	disk := vfs.NewMem()
	cfg := testConfig(disk)
	cfg.SegmentBytes, cfg.IndexBytes = 64<<10, 4<<10
	l := open(t, cfg)
	o := fill(t, l, newOracle(), 40)
	require.NoError(t, l.Close())

	c := newCounted(disk)
	cfg.FS = c
	l = open(t, cfg)
	sealed := l.view.Load().sealed
	for _, p := range sealed {
		require.EqualValues(t, segment.HeaderSize, c.read[path.Base(p.seg.File())], p.seg.File())
	}
	active := l.view.Load().active
	name := path.Base(active.seg.File())
	last, _ := active.ext.Index.Last()
	tail := active.ext.Size - last.Position
	require.LessOrEqual(t, c.read[name], segment.HeaderSize+tail+4<<10, "from the last slot of the index on, and a page")
	require.Empty(t, c.written)
	r := l.Recovery()
	require.Zero(t, r.ScannedBytes+r.RewrittenBytes+r.CutBytes+r.RemovedBytes)
	require.Empty(t, r.RebuiltIndexes)
	require.Positive(t, r.Duration)
	requireSame(t, l, o, "clean")

	more := o.make(t, testRand(t), 10)
	require.NoError(t, l.Append(more))
	o = o.with(more...)
	now := l.view.Load().active
	require.NoError(t, l.release()) // the process ends
	c = newCounted(disk)
	cfg.FS = c
	l = open(t, cfg)
	requireBounds(t, l, o)
	if now.seg.File() == active.seg.File() {
		behind := now.ext.Size - active.ext.Size
		require.Equal(t, behind, l.Recovery().ScannedBytes)
		require.Equal(t, behind, l.Recovery().RewrittenBytes)
		require.Equal(t, map[string]int64{name: behind}, c.written)
		require.LessOrEqual(t, c.read[name], segment.HeaderSize+tail+2*behind+8<<10)
	}
	requireSame(t, l, o, "not closed")
	require.NoError(t, l.Close())
}

// TestWhatRecoveryShowsIsDurableAfterAFailedSync lets the sync of each append, in
// turn, fail: the disk forgets the pages it should have written, but they can
// still be read. The log is opened again without a reboot, and then the power goes.
func TestWhatRecoveryShowsIsDurableAfterAFailedSync(t *testing.T) {
	for _, closed := range []bool{false, true} { // before, so that there is an index
		for point := range 8 {
			msg := fmt.Sprintf("closed %v, append %d", closed, point)
			disk := vfs.NewMem()
			cfg := testConfig(disk)
			cfg.SegmentBytes = 1 << 20
			rng := testRand(t)
			l := open(t, cfg)
			o := newOracle()
			for i := range point {
				e := o.make(t, rng, 5)
				require.NoError(t, l.Append(e))
				o = o.with(e...)
				if closed && i == point/2 {
					require.NoError(t, l.Close())
					l = open(t, cfg)
				}
			}
			e := o.make(t, rng, 5)
			disk.Fail(func(op vfs.Op, name string) error {
				if op == vfs.OpSync || op == vfs.OpTruncate { // so that it cannot be taken back
					return syscall.EIO
				}
				return nil
			})
			require.ErrorIs(t, l.Append(e), ErrSync, msg)
			disk.Fail(nil)
			require.NoError(t, l.Close())

			l = open(t, cfg)
			shown := o.with(e...).cut(l.Bounds().Next)
			require.GreaterOrEqual(t, shown.next(), o.next(), msg)
			requireSame(t, l, shown, msg)
			require.NoError(t, l.release())
			cfg.FS = disk.Reboot(0)
			l = open(t, cfg)
			requireSame(t, l, shown, msg+", after the power went")
			require.NoError(t, l.Close())
		}
	}
}

// TestWhatRecoveryShowsIsDurableAfterAProcessEndedAtAnyCall ends the process, not
// the machine, at each call of a story; opens the log; appends to it; and then
// takes the power. Names of files, too, may have been waiting for their sync.
func TestWhatRecoveryShowsIsDurableAfterAProcessEndedAtAnyCall(t *testing.T) {
	seed := testRand(t).Uint64()
	for point := 0; ; point++ {
		disk := vfs.NewMem()
		cfg := testConfig(disk)
		r := newRun(t, seed, cfg)
		calls := 0
		ended := false
		disk.Fail(func(op vfs.Op, name string) error {
			if op < vfs.OpCreate { // as if it ended before it could read on
				return nil
			}
			if calls++; calls > point {
				ended = true
				return vfs.ErrCrashed
			}
			return nil
		})
		err := r.story()
		disk.Fail(nil)
		if !ended {
			require.NoError(t, err)
			t.Logf("%d points", point)
			return
		}
		msg := fmt.Sprintf("call %d", point)
		l := open(t, cfg)
		o := pick(t, l, r.after, msg)
		e := o.make(t, r.rng, 1)
		require.NoError(t, l.Append(e), msg)
		o = o.with(e...)
		require.NoError(t, l.release())
		for _, reboot := range []uint64{0, 2 + uint64(point)} {
			cfg.FS = disk.Reboot(reboot)
			l = open(t, cfg)
			requireSame(t, l, o, msg+", after the power went")
			require.NoError(t, l.Close())
		}
	}
}

// TestRecoveryTellsProgressAndEndsWithItsContext opens a log of one big segment
// without an index on a slow disk.
func TestRecoveryTellsProgressAndEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 40 << 20
		disk := vfs.NewMem()
		cfg := testConfig(disk)
		cfg.SegmentBytes = 64 << 20
		l := open(t, cfg)
		o := newOracle()
		for l.Size() < size {
			e := segment.Entry{Number: o.next(), Term: 1, Kind: segment.KindCommand, Data: make([]byte, 64<<10)}
			require.NoError(t, l.Append([]segment.Entry{e}))
			o = o.with(e)
		}
		require.NoError(t, l.release())
		disk.Fail(func(op vfs.Op, name string) error {
			if op == vfs.OpRead && strings.HasSuffix(name, segment.LogSuffix) {
				time.Sleep(30 * time.Millisecond)
			}
			return nil
		})
		began, last := time.Now(), Progress{}
		var calls int
		cfg.Progress = func(p Progress) {
			calls++
			require.GreaterOrEqual(t, p.Bytes, last.Bytes)
			require.LessOrEqual(t, p.Bytes, p.TotalBytes)
			last = p
		}
		l = open(t, cfg)
		took := time.Since(began)
		require.Equal(t, took, l.Recovery().Duration)
		require.Equal(t, Progress{Segments: 1, TotalSegments: 1, Bytes: l.Size(), TotalBytes: l.Size()}, last)
		require.Greater(t, calls, 5)
		require.LessOrEqual(t, calls, int(took/progressEvery)+1, "at most every 100 ms, and at the end")
		requireBounds(t, l, o)
		require.NoError(t, l.release())

		cfg.Progress = nil
		ctx, cancel := context.WithTimeout(t.Context(), took/4)
		defer cancel()
		_, err := Open(ctx, testDir, cfg)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(began)-took, took/2, "it ends in the middle of the segment")
	})
}

func TestTheReportSaysWhatWasDone(t *testing.T) {
	o, f := smallLog(t)
	f["00000000000000000000.index.tmp"] = make([]byte, 11)
	f["00000000000000000077.index"] = make([]byte, 22)
	var name string
	for n := range f {
		if strings.HasSuffix(n, segment.LogSuffix) && n > name {
			name = n
		}
	}
	size := len(f[name])
	index := strings.TrimSuffix(name, segment.LogSuffix) + segment.IndexSuffix
	delete(f, index)
	f[name] = append(f[name], make([]byte, 33)...)
	cfg := testConfig(f.disk(t, "", nil))
	l := open(t, cfg)
	requireSame(t, l, o, "repaired")
	r := l.Recovery()
	require.Equal(t, len(l.view.Load().sealed)+1, r.Segments)
	require.EqualValues(t, size-segment.HeaderSize, r.ScannedBytes)
	require.EqualValues(t, size-segment.HeaderSize, r.RewrittenBytes)
	require.EqualValues(t, 33, r.CutBytes)
	require.EqualValues(t, 11+22, r.RemovedBytes)
	require.Len(t, r.Removed, 2)
	require.NoError(t, l.Close())
}
