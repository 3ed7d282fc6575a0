package log

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
)

// TestEverySyncedEntrySurvivesACrashAtAnyCall crashes the disk at every mutating
// call of a run of appends, rolls, truncations, trims and resets, in turn. What
// was promised must be there after recovery, in order, and nothing unknown.
func TestEverySyncedEntrySurvivesACrashAtAnyCall(t *testing.T) {
	for _, c := range []struct {
		name    string
		flush   FlushPolicy
		segment int64
		scale   int
	}{
		{"each, small segments", FlushEach, minSegmentBytes, 1},
		{"never, small segments", FlushNever, minSegmentBytes, 1},
		{"each, many pages in one append", FlushEach, 48 << 10, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			seed := testRand(t).Uint64()
			for point := 0; ; point++ {
				disk := vfs.NewMem()
				disk.CrashAfter(point)
				cfg := testConfig(disk)
				cfg.Flush, cfg.SegmentBytes = c.flush, c.segment
				r := newRun(t, seed, cfg)
				r.scale = c.scale
				err := r.story()
				if !disk.Crashed() {
					require.NoError(t, err)
					t.Logf("%d crash points", point)
					return // every point has been tried
				}
				if err != nil { // nil: in writing an index, which may fail
					require.ErrorIs(t, err, vfs.ErrCrashed)
				}
				for _, reboot := range []uint64{0, 1, 2 + seed%97, 2 + seed%89, 2 + seed%83} { // 0: all is lost, 1: all is there
					requireRecovers(t, disk.Reboot(reboot), cfg, r.after, fmt.Sprintf("point %d, reboot %d", point, reboot))
				}
				if uint64(point)%4 == seed%4 { // each point would take a minute under the race detector
					requireRecoversFromCrashesInRecovery(t, disk, cfg, r.after, uint64(point))
				}
			}
		})
	}
}

// requireRecovers opens what a crash left, compares it with what is allowed, goes on
// appending, and opens again.
func requireRecovers(t *testing.T, disk *vfs.Mem, cfg Config, after []allowed, msg string) {
	t.Helper()
	cfg.FS = disk
	l, err := Open(context.Background(), testDir, cfg)
	require.NoError(t, err, msg)
	o := pick(t, l, after, msg)
	requireSame(t, l, o, msg)
	require.NoError(t, l.Close())

	l = open(t, cfg)
	requireSame(t, l, o, msg+", opened twice")
	require.Zero(t, l.Recovery().CutBytes, msg)
	more := o.make(t, rand.New(rand.NewPCG(1, 1)), 5)
	require.NoError(t, l.Append(more), msg)
	o = o.with(more...)
	requireSame(t, l, o, msg+", appended to")
	require.NoError(t, l.Sync())

	cfg.FS = disk.Reboot(0) // without Close
	l = open(t, cfg)
	requireSame(t, l, o, msg+", after a second crash")
	require.NoError(t, l.Close())
}

// requireRecoversFromCrashesInRecovery crashes again at each call of Open.
func requireRecoversFromCrashesInRecovery(t *testing.T, disk *vfs.Mem, cfg Config, after []allowed, seed uint64) {
	t.Helper()
	for point := 0; ; point++ {
		again := disk.Reboot(2 + seed%5)
		again.CrashAfter(point)
		cfg.FS = again
		l, err := Open(context.Background(), testDir, cfg)
		if err == nil {
			require.NoError(t, l.release())
			return
		}
		require.ErrorIs(t, err, vfs.ErrCrashed)
		requireRecovers(t, again.Reboot(seed), cfg, after, fmt.Sprintf("seed %d, point %d of recovery", seed, point))
	}
}

// TestFlushPoliciesLoseWhatTheySayAndNoMore takes the power with all unsynced bytes lost.
func TestFlushPoliciesLoseWhatTheySayAndNoMore(t *testing.T) {
	for _, c := range []struct {
		flush FlushPolicy
		sync  bool
		lost  record.EntryNumber
	}{
		{FlushEach, false, 0},
		{FlushNever, false, 3},
		{FlushNever, true, 0},
		{FlushEvery(time.Hour), false, 3},
		{FlushEvery(time.Hour), true, 0},
	} {
		disk := vfs.NewMem()
		cfg := testConfig(disk)
		cfg.Flush = c.flush
		l := open(t, cfg)
		o := newOracle()
		rng := testRand(t)
		for range 3 {
			e := o.make(t, rng, 1)
			e[0].Kind, e[0].Data = 2, []byte{}
			e[0].Offset = 0
			require.NoError(t, l.Append(e))
			o = o.with(e...)
		}
		if c.sync {
			require.NoError(t, l.Sync())
		}
		cfg.FS = disk.Reboot(0)
		again := open(t, cfg)
		require.Equal(t, o.next()-c.lost, again.Bounds().Next, "%v, synced %v", c.flush, c.sync)
		require.NoError(t, again.Close())
		_ = l.Close() // its disk is gone
	}
}

// TestWhatRecoveryShowsIsDurable ends the process, not the power, then opens the log, and
// then takes the power: what the opened log showed may have been counted on.
func TestWhatRecoveryShowsIsDurable(t *testing.T) {
	disk := vfs.NewMem()
	cfg := testConfig(disk)
	cfg.Flush = FlushNever
	o := newOracle()
	l := open(t, cfg)
	entries := o.make(t, testRand(t), 5)
	require.NoError(t, l.Append(entries))
	o = o.with(entries...)
	require.NoError(t, l.release()) // not Close, which syncs
	l = open(t, cfg)
	requireSame(t, l, o, "after the process ended")
	cfg.FS = disk.Reboot(0)
	require.NoError(t, l.release())
	l = open(t, cfg)
	requireSame(t, l, o, "after the power went")
	require.NoError(t, l.Close())
}
