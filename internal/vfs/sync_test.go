package vfs_test

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
)

func TestManyFilesSyncAtOnce(t *testing.T) {
	o := vfs.NewOS()
	defer o.Close()
	dir := filepath.ToSlash(t.TempDir())
	var wg sync.WaitGroup
	for i := range 300 { // more than the kernel is given at once
		f, err := o.Create(fmt.Sprintf("%s/%d", dir, i))
		require.NoError(t, err)
		wg.Go(func() {
			defer f.Close()
			for n := range 5 {
				if _, err := f.WriteAt([]byte("some bytes"), int64(10*n)); err != nil {
					t.Error(err)
				}
				if err := f.Sync(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i := range 300 {
		require.Len(t, content(t, o, fmt.Sprintf("%s/%d", dir, i)), 50)
	}
}

// TestFilesAndTheFileSystemMayBeClosedWhileTheySync: Sync ends well or says that the
// file is closed, whatever is closed first.
func TestFilesAndTheFileSystemMayBeClosedWhileTheySync(t *testing.T) {
	for round := range 10 {
		o := vfs.NewOS()
		dir := filepath.ToSlash(t.TempDir())
		var wg sync.WaitGroup
		start := make(chan struct{})
		for i := range 20 {
			f, err := o.Create(fmt.Sprintf("%s/%d", dir, i))
			require.NoError(t, err)
			synced := make(chan struct{})
			wg.Go(func() {
				<-start
				for n := range 20 {
					_, writeErr := f.WriteAt([]byte("x"), int64(n))
					for _, err := range []error{writeErr, f.Sync()} {
						if err != nil {
							require.ErrorIs(t, err, fs.ErrClosed)
						}
					}
					if n == i%10 {
						close(synced)
					}
				}
			})
			wg.Go(func() {
				<-synced
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Go(func() {
			<-start
			if err := o.Close(); err != nil {
				t.Error(err)
			}
		})
		close(start)
		wg.Wait()
		require.NoError(t, o.Close(), "round %d, closed twice", round)
	}
}

func TestFilesSyncAfterTheFileSystemIsClosed(t *testing.T) {
	o := vfs.NewOS()
	dir := filepath.ToSlash(t.TempDir())
	a, b := create(t, o, dir+"/a", "x"), create(t, o, dir+"/b", "x")
	require.NoError(t, o.Close())
	var wg sync.WaitGroup
	for _, f := range []vfs.File{a, b} {
		wg.Go(func() {
			for range 50 {
				if err := f.Sync(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkSync has one writer a file, which appends 170 bytes and syncs.
// Compare with -cpu=2: a sync that blocks a thread takes a processor from
// everything else, as the other goroutine's lateness shows.
func BenchmarkSync(b *testing.B) {
	for _, files := range []int{1, 10, 50} {
		b.Run(fmt.Sprintf("OS/files=%d", files), func(b *testing.B) { benchmarkSync(b, vfs.OS, files) })
		b.Run(fmt.Sprintf("NewOS/files=%d", files), func(b *testing.B) {
			o := vfs.NewOS()
			defer o.Close()
			benchmarkSync(b, o, files)
		})
	}
}

func benchmarkSync(b *testing.B, fsys vfs.FS, files int) {
	dir := filepath.ToSlash(b.TempDir())
	var open []vfs.File
	for i := range files {
		f, err := fsys.Create(fmt.Sprintf("%s/%d", dir, i))
		require.NoError(b, err)
		defer f.Close()
		open = append(open, f)
	}
	took := make([][]time.Duration, files)
	turns := make(chan struct{}, b.N)
	for range b.N {
		turns <- struct{}{}
	}
	close(turns)
	late, stop := lateness()
	var wg sync.WaitGroup
	b.ResetTimer()
	for i, f := range open {
		wg.Go(func() {
			record := make([]byte, 170)
			for range turns {
				if _, err := f.WriteAt(record, int64(len(took[i])*len(record))); err != nil {
					b.Error(err)
				}
				at := time.Now()
				if err := f.Sync(); err != nil {
					b.Error(err)
				}
				took[i] = append(took[i], time.Since(at))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	close(stop)
	reportPercentiles(b, "", slices.Concat(took...))
	reportPercentiles(b, "late-", <-late)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "syncs/s")
}

// lateness measures how long a goroutine waits for a processor when its timer fires.
func lateness() (<-chan []time.Duration, chan<- struct{}) {
	result, stop := make(chan []time.Duration, 1), make(chan struct{})
	go func() {
		var late []time.Duration
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				result <- late
				return
			case at := <-tick.C:
				late = append(late, time.Since(at))
			}
		}
	}()
	return result, stop
}

func reportPercentiles(b *testing.B, name string, d []time.Duration) {
	if len(d) == 0 {
		return
	}
	slices.Sort(d)
	b.ReportMetric(float64(d[len(d)/2].Microseconds()), name+"p50-µs")
	b.ReportMetric(float64(d[len(d)*99/100].Microseconds()), name+"p99-µs")
}
