package log

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
)

// requirePowerCut takes the power away from a log that holds o, keeps of the
// unsynced what seed says, and returns how many entries are left. They are the
// first ones, unchanged.
func requirePowerCut(t *testing.T, disk *vfs.Mem, l *Log, o oracle, seed uint64) record.EntryNumber {
	t.Helper()
	cfg := l.cfg
	cfg.FS, cfg.Flusher = disk.Reboot(seed), nil
	_ = l.Close() // its disk is gone
	again, err := Open(context.Background(), testDir, cfg)
	require.NoError(t, err)
	next := again.Bounds().Next
	require.LessOrEqual(t, next, o.next())
	requireSame(t, again, o.cut(next), fmt.Sprintf("reboot %d", seed))
	require.NoError(t, again.Close())
	return next
}

func TestAPowerCutTakesNothingThatFlushEachHasAcknowledged(t *testing.T) {
	rng := testRand(t)
	for range 60 {
		disk := vfs.NewMem()
		l := open(t, testConfig(disk))
		o := newOracle()
		for range rng.IntN(20) {
			entries := o.make(t, rng, 1+rng.IntN(3))
			require.NoError(t, l.Append(entries))
			o = o.with(entries...)
		}
		require.Equal(t, o.next(), requirePowerCut(t, disk, l, o, rng.Uint64N(8)))
	}
}

// TestAPowerCutUnderFlushNeverLeavesTheFirstEntries: those of sealed segments for
// certain.
func TestAPowerCutUnderFlushNeverLeavesTheFirstEntries(t *testing.T) {
	rng := testRand(t)
	lost := false
	for range 60 {
		disk := vfs.NewMem()
		cfg := testConfig(disk)
		cfg.Flush = FlushNever
		l := open(t, cfg)
		o := newOracle()
		for range 1 + rng.IntN(20) {
			entries := o.make(t, rng, 1+rng.IntN(3))
			require.NoError(t, l.Append(entries))
			o = o.with(entries...)
		}
		sealed := l.tail.active.seg.BaseEntry
		next := requirePowerCut(t, disk, l, o, rng.Uint64N(8))
		require.GreaterOrEqual(t, next, sealed)
		lost = lost || next < o.next()
	}
	require.True(t, lost, "no life lost anything: the test shows nothing")
}

// TestAPowerCutUnderFlushEveryTakesOnlyTheLastInterval appends at random times,
// and takes the power at another.
func TestAPowerCutUnderFlushEveryTakesOnlyTheLastInterval(t *testing.T) {
	const interval = 100 * time.Millisecond
	rng := testRand(t)
	lost := false
	for life := range 100 {
		synctest.Test(t, func(t *testing.T) {
			disk := vfs.NewMem()
			flusher := NewFlusher()
			defer flusher.Close()
			cfg := testConfig(disk)
			cfg.SegmentBytes = 1 << 20 // a roll would sync
			cfg.Flush, cfg.Flusher = FlushEvery(interval), flusher
			l := open(t, cfg)
			o := newOracle()
			var at []time.Time // of each entry
			for range 1 + rng.IntN(40) {
				entries := o.make(t, rng, 1+rng.IntN(3))
				require.NoError(t, l.Append(entries))
				o = o.with(entries...)
				for range entries {
					at = append(at, time.Now())
				}
				time.Sleep(time.Duration(rng.IntN(40)) * time.Millisecond)
			}
			synctest.Wait()
			old := slices.IndexFunc(at, func(at time.Time) bool { return time.Since(at) < interval })
			if old < 0 {
				old = len(at)
			}
			next := requirePowerCut(t, disk, l, o, uint64(life%4))
			require.GreaterOrEqual(t, next, record.EntryNumber(1+old), "an entry of the interval before the last is gone")
			lost = lost || next < o.next()
		})
	}
	require.True(t, lost, "no life lost anything: the test shows nothing")
}

// TestWhatASyncHasBegunForIsSafeWhenItEnds has a disk that takes a second to sync.
func TestWhatASyncHasBegunForIsSafeWhenItEnds(t *testing.T) {
	const interval = 100 * time.Millisecond
	for _, c := range []struct {
		cut  time.Duration
		left record.EntryNumber
	}{
		{interval - 1, 0}, {interval + time.Second - 1, 0}, {interval + time.Second, 5},
	} {
		synctest.Test(t, func(t *testing.T) {
			disk := vfs.NewMem()
			cfg := testConfig(disk)
			cfg.SegmentBytes = 1 << 20 // a roll would sync
			cfg.Flush = FlushEvery(interval)
			l := open(t, cfg)
			disk.Fail(func(op vfs.Op, name string) error {
				if op == vfs.OpSync {
					time.Sleep(time.Second)
				}
				return nil
			})
			o := newOracle()
			entries := o.make(t, testRand(t), 5)
			require.NoError(t, l.Append(entries))
			time.Sleep(c.cut)
			synctest.Wait()
			rebooted := disk.Reboot(0)
			time.Sleep(time.Second) // a sync under way has the log's lock
			_ = l.Close()           // its disk is gone
			cfg.FS = rebooted
			again := open(t, cfg)
			require.Equal(t, 1+c.left, again.Bounds().Next, "cut after %v", c.cut)
			require.NoError(t, again.Close())
		})
	}
}

// fleet is many logs on one disk with one flusher. It counts syncs.
type fleet struct {
	disk    *vfs.Mem
	flusher *Flusher
	logs    []*Log
	rng     *rand.Rand
	ends    []oracle
	syncs   atomic.Int64
	slow    func(dir string) error // what a sync of a log does before the disk's part
}

func openFleet(t *testing.T, every ...time.Duration) *fleet {
	f := &fleet{disk: vfs.NewMem(), flusher: NewFlusher(), rng: testRand(t)}
	for i, d := range every {
		cfg := testConfig(f.disk)
		cfg.Flush, cfg.Flusher, cfg.SegmentBytes = FlushEvery(d), f.flusher, 1<<20
		l, err := Open(t.Context(), fleetDir(i), cfg)
		require.NoError(t, err)
		f.logs, f.ends = append(f.logs, l), append(f.ends, newOracle())
	}
	f.slow = func(string) error { return nil }
	f.disk.Fail(func(op vfs.Op, name string) error {
		if op != vfs.OpSync || !strings.HasSuffix(name, ".log") {
			return nil
		}
		f.syncs.Add(1)
		return f.slow(name[:strings.LastIndexByte(name, '/')])
	})
	return f
}

func fleetDir(i int) string { return fmt.Sprintf("data/orders-%02d", i) }

func repeat(n int, d time.Duration) []time.Duration { return slices.Repeat([]time.Duration{d}, n) }

func (f *fleet) append(t *testing.T, i int) {
	t.Helper()
	entries := f.ends[i].make(t, f.rng, 1)
	require.NoError(t, f.logs[i].Append(entries))
	f.ends[i] = f.ends[i].with(entries...)
}

// synced returns the logs all of whose entries are on disk.
func (f *fleet) synced() (logs []int) {
	for i, l := range f.logs {
		if l.mu.TryLock() { // else it is syncing
			if l.Durable() == l.tail.active.ext.NextEntry {
				logs = append(logs, i)
			}
			l.mu.Unlock()
		}
	}
	return logs
}

func (f *fleet) close(t *testing.T) {
	for _, l := range f.logs {
		require.NoError(t, l.Close())
	}
	f.flusher.Close()
}

func TestAFlusherSyncsEachLogOnceAnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFleet(t, repeat(20, 100*time.Millisecond)...)
		for range 3 {
			f.syncs.Store(0)
			for range 50 { // within the interval
				for i := range f.logs[:15] {
					f.append(t, i)
				}
				time.Sleep(time.Millisecond)
			}
			require.Zero(t, f.syncs.Load(), "before the interval is over")
			time.Sleep(50 * time.Millisecond)
			synctest.Wait()
			require.EqualValues(t, 15, f.syncs.Load(), "750 appends to 15 of 20 logs")
			require.Len(t, f.synced(), 20)
			time.Sleep(time.Hour)
			synctest.Wait()
			require.EqualValues(t, 15, f.syncs.Load(), "idle")
		}
		f.close(t)
	})
}

func TestAFlusherKeepsToTheIntervalOfEachLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFleet(t, 10*time.Millisecond, time.Second)
		for range 100 {
			f.append(t, 0)
			f.append(t, 1)
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
		}
		require.EqualValues(t, 100+1, f.syncs.Load())
		f.close(t)
	})
}

func TestAFlusherSyncsOnlySoManyLogsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFleet(t, repeat(20, 100*time.Millisecond)...)
		var now, most atomic.Int64
		f.slow = func(string) error {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Second)
			now.Add(-1)
			return nil
		}
		for i := range f.logs {
			f.append(t, i)
		}
		for _, want := range []int{0, 8, 16, 20} {
			time.Sleep(time.Second)
			require.Len(t, f.synced(), want)
		}
		require.EqualValues(t, maxFlushes, most.Load())
		f.close(t)
	})
}

func TestASlowLogDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFleet(t, append(repeat(20, 100*time.Millisecond), repeat(20, 70*time.Millisecond)...)...)
		stuck := make(chan struct{})
		f.slow = func(dir string) error {
			if dir == fleetDir(0) {
				<-stuck
			}
			return nil
		}
		f.append(t, 0)
		for range 10 {
			for i := range f.logs[1:] {
				f.append(t, 1+i)
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			require.Len(t, f.synced(), 39)
		}
		close(stuck)
		synctest.Wait()
		require.Len(t, f.synced(), 40)
		f.close(t)
	})
}

func TestAFailedSyncStopsThatLogAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFleet(t, repeat(5, 100*time.Millisecond)...)
		broken := true
		f.slow = func(dir string) error {
			if broken && dir == fleetDir(2) {
				return syscall.EIO
			}
			return nil
		}
		for i := range f.logs {
			f.append(t, i)
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		broken = false // too late for that log
		require.Equal(t, []int{0, 1, 3, 4}, f.synced())
		for i, l := range f.logs {
			if i != 2 {
				f.append(t, i)
				continue
			}
			err := l.Append(f.ends[i].make(t, f.rng, 1))
			require.ErrorIs(t, err, ErrSync)
			require.ErrorIs(t, err, syscall.EIO)
			requireSame(t, l, f.ends[i], "reads go on")
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, []int{0, 1, 3, 4}, f.synced())
		f.close(t)
	})
}

func TestAClosedFlusherDoesNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFleet(t, append(repeat(10, 100*time.Millisecond), repeat(10, time.Second)...)...)
		f.slow = func(string) error { time.Sleep(time.Second); return nil }
		for i := range f.logs {
			f.append(t, i)
		}
		time.Sleep(200 * time.Millisecond) // eight sync, two wait, ten have time
		begun := time.Now()
		f.flusher.Close()
		require.Equal(t, 900*time.Millisecond, time.Since(begun), "it waits for what is under way")
		f.flusher.Close()
		f.append(t, 0)
		time.Sleep(time.Hour)
		require.EqualValues(t, maxFlushes, f.syncs.Load())
		f.close(t) // which syncs the rest
		require.EqualValues(t, 20+1, f.syncs.Load())
	})
}

// TestAClosedLogLeavesTheFlusher also leaves no timer of a flusher of its own.
func TestAClosedLogLeavesTheFlusher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := openFleet(t, repeat(3, 100*time.Millisecond)...)
		for i := range f.logs {
			f.append(t, i)
		}
		require.NoError(t, f.logs[1].Close())
		f.flusher.mu.Lock()
		require.Equal(t, []*Log{f.logs[0], f.logs[2]}, f.flusher.rounds[100*time.Millisecond].logs)
		f.flusher.mu.Unlock()
		cfg := f.logs[0].cfg
		cfg.Flusher = nil
		own, err := Open(t.Context(), "data/own", cfg)
		require.NoError(t, err)
		require.NoError(t, own.Append(newOracle().make(t, f.rng, 1)))
		require.NoError(t, own.Close())
		require.Empty(t, own.flusher.rounds)
		f.syncs.Store(0)
		time.Sleep(time.Hour)
		require.EqualValues(t, 2, f.syncs.Load(), "those of the logs that are open")
		f.close(t)
	})
}

// TestLogsComeAndGoUnderOneFlusher is for the race detector.
func TestLogsComeAndGoUnderOneFlusher(t *testing.T) {
	disk, flusher := vfs.NewMem(), NewFlusher()
	seed := testRand(t).Uint64()
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			o := newOracle()
			for life := range 5 {
				cfg := testConfig(disk)
				cfg.Flush, cfg.Flusher = FlushEvery(time.Duration(1+i%3)*100*time.Microsecond), flusher
				l, err := Open(context.Background(), fleetDir(i), cfg)
				if err != nil {
					t.Errorf("life %d: %v", life, err)
					return
				}
				if l.Bounds() != o.bounds() {
					t.Errorf("life %d: %+v, want %+v", life, l.Bounds(), o.bounds())
				}
				for range 30 {
					entries := o.make(t, rng, 1)
					if err := l.Append(entries); err != nil {
						t.Error(err)
					}
					o = o.with(entries...)
				}
				if err := errors.Join(l.Close(), l.Close()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	flusher.Close()
	require.Zero(t, flusher.running)
	require.Empty(t, flusher.ready)
}
