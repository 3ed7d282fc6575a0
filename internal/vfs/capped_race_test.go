package vfs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
)

// unsynced is the machine's file system without the wait for its disk.
type unsynced struct{ vfs.FS }

func (u unsynced) Create(name string) (vfs.File, error) {
	f, err := u.FS.Create(name)
	if err != nil {
		return nil, err
	}
	return unsyncedFile{f}, nil
}

func (u unsynced) Open(name string) (vfs.File, error) {
	f, err := u.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return unsyncedFile{f}, nil
}

type unsyncedFile struct{ vfs.File }

func (unsyncedFile) Sync() error { return nil }

func (unsynced) SyncDir(string) error { return nil }

// onCappedUnsynced is onCapped without the wait.
func onCappedUnsynced(t *testing.T, test func(t *testing.T, fsys *vfs.Capped, dir string)) {
	t.Run("OS", func(t *testing.T) { test(t, vfs.NewCapped(unsynced{vfs.OS}, 3), filepath.ToSlash(t.TempDir())) })
	t.Run("Mem", func(t *testing.T) { test(t, vfs.NewCapped(vfs.NewMem(), 3), "") })
}

// TestFiveHundredPartitionsOfFiveSegments uses 2,500 files through 256 handles,
// from many goroutines: readers of everything, and writers with files of their own.
func TestFiveHundredPartitionsOfFiveSegments(t *testing.T) {
	const partitions, segments, limit, workers = 500, 5, 256, 8
	seed := randomSeed(t)
	run := func(t *testing.T, fsys vfs.FS, dir string) {
		m := newMachine(t, fsys)
		c := vfs.NewCapped(m, limit)
		var files [partitions * segments]struct {
			vfs.File
			records atomic.Int64
		}
		const record = 64
		line := func(file int, i int64) []byte { return fmt.Appendf(nil, "%*d", record, int64(file)<<20|i) }
		for i := range files {
			partition := fmt.Sprintf("%s/p%d", dir, i/segments)
			require.NoError(t, fsys.MkdirAll(partition))
			f, err := c.Create(fmt.Sprintf("%s/%d.log", partition, i%segments))
			require.NoError(t, err)
			files[i].File = f
		}
		var wg sync.WaitGroup
		for w := range workers {
			rng := rand.New(rand.NewPCG(seed, uint64(w)))
			wg.Go(func() {
				for range 2500 {
					i := rng.IntN(len(files))
					f := &files[i]
					if n := f.records.Load(); n > 0 {
						n, b := rng.Int64N(n), make([]byte, record)
						if _, err := f.ReadAt(b, n*record); err != nil || string(b) != string(line(i, n)) {
							t.Errorf("record %d of file %d is %q: %v", n, i, b, err)
							return
						}
					}
					if i%workers != w {
						continue
					}
					n := f.records.Load()
					_, err := f.WriteAt(line(i, n), n*record)
					if err == nil {
						err = f.Sync()
					}
					if err != nil {
						t.Errorf("file %d: %v", i, err)
						return
					}
					f.records.Add(1)
				}
			})
		}
		wg.Wait()
		require.LessOrEqual(t, m.atMost.Load(), int64(limit))
		got := c.Handles()
		require.Zero(t, got.Exceeded)
		require.Greater(t, got.Reopened, int64(limit))
		for i := range files {
			require.NoError(t, files[i].Close())
		}
	}
	t.Run("OS", func(t *testing.T) { run(t, unsynced{vfs.OS}, filepath.ToSlash(t.TempDir())) })
	t.Run("Mem", func(t *testing.T) { run(t, vfs.NewMem(), "") })
}

// TestReadersRaceEvictionRemovalAndRenames moves, replaces and removes files
// under readers that hold them. Each must read its own file's bytes to the end.
func TestReadersRaceEvictionRemovalAndRenames(t *testing.T) {
	onCappedUnsynced(t, func(t *testing.T, fsys *vfs.Capped, dir string) {
		var wg sync.WaitGroup
		for w := range 4 {
			a, b := fmt.Sprintf("%s/a%d", dir, w), fmt.Sprintf("%s/b%d", dir, w)
			wg.Go(func() {
				for round := range 60 {
					text := fmt.Sprintf("worker %d, round %d", w, round)
					if err := replaceUnderReaders(fsys, a, b, text); err != nil {
						t.Errorf("%s: %v", text, err)
						return
					}
				}
			})
		}
		wg.Wait()
		require.LessOrEqual(t, fsys.Handles().Open, 3)
	})
}

// replaceUnderReaders makes a file a, makes it b instead of the old b, and
// removes b, each while two goroutines read the file.
func replaceUnderReaders(fsys vfs.FS, a, b, text string) error {
	f, err := fsys.Create(a)
	if err != nil {
		return err
	}
	old, err := fsys.Create(b)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(text), 0)
	if err = errors.Join(err, f.Sync(), fsys.SyncDir(filepath.ToSlash(filepath.Dir(a)))); err != nil {
		return err
	}
	stop := make(chan struct{})
	var errs [2]error
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			got := make([]byte, len(text))
			for done := false; !done && errs[i] == nil; {
				select {
				case <-stop:
					done = true // once more, after everything
				default:
				}
				if _, err := f.ReadAt(got, 0); err != nil || string(got) != text {
					errs[i] = fmt.Errorf("read %q: %w", got, err)
				}
				if size, err := old.Size(); err != nil || size != 0 {
					errs[i] = fmt.Errorf("replaced file has %d bytes: %w", size, err)
				}
			}
		})
	}
	err = errors.Join(fsys.Rename(a, b), fsys.Remove(b))
	close(stop)
	wg.Wait()
	return errors.Join(append(errs[:], err, f.Close(), old.Close())...)
}

func TestCloseRacesReaders(t *testing.T) {
	onCappedUnsynced(t, func(t *testing.T, fsys *vfs.Capped, dir string) {
		for round := range 50 {
			var files []vfs.File
			for i := range 5 {
				files = append(files, createSynced(t, fsys, fmt.Sprintf("%s/%d-%d", dir, round, i), "text"))
			}
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					b := make([]byte, 4)
					for _, f := range files {
						if _, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, fs.ErrClosed) || err == nil && string(b) != "text" {
							t.Errorf("%q: %v", b, err)
						}
					}
				})
			}
			for _, f := range files {
				require.NoError(t, f.Close())
			}
			wg.Wait()
		}
		require.Zero(t, fsys.Handles().Open)
	})
}
