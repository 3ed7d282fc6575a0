package vfs_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
)

const (
	page  = 4096
	seeds = 256 // enough that each outcome below is drawn
)

func fill(c byte, n int) string { return strings.Repeat(string(rune(c)), n) }

// runs writes bytes as "o×4096 n×12", with 0 for the zero byte.
func runs(s string) string {
	var parts []string
	for len(s) > 0 {
		rest := strings.TrimLeft(s, s[:1])
		parts = append(parts, fmt.Sprintf("%c×%d", max(s[0], '0'), len(s)-len(rest)))
		s = rest
	}
	return strings.Join(parts, " ")
}

// outcomes reboots with many seeds and returns, sorted, what was seen of a file,
// in runs; "missing" if it was not there.
func outcomes(t *testing.T, m *vfs.Mem, name string) []string {
	t.Helper()
	seen := map[string]bool{}
	for seed := range uint64(seeds) {
		b, err := m.Reboot(seed).ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			seen["missing"] = true
			continue
		}
		require.NoError(t, err)
		seen[runs(string(b))] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

func TestSeedZeroLosesAndSeedOneKeepsAllThatIsNotSynced(t *testing.T) {
	m, f := newDisk(t)
	_, err := f.WriteAt([]byte(fill('n', 3*page)), 0)
	require.NoError(t, err)
	create(t, m, "b", "unsynced")
	require.NoError(t, m.Remove("sub"))

	lost := m.Reboot(0)
	require.Equal(t, "old", content(t, lost, "a"))
	names, err := lost.List("/")
	require.NoError(t, err)
	require.Equal(t, []string{"a", "sub"}, names)

	kept := m.Reboot(1)
	require.Equal(t, fill('n', 3*page), content(t, kept, "a"))
	names, err = kept.List("/")
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, names)
}

func TestTheSameSeedGivesTheSameDisk(t *testing.T) {
	m, f := newDisk(t)
	for i := range 5 {
		_, err := f.WriteAt([]byte(fill('n', 5*page)), int64(i)*7000)
		require.NoError(t, err)
		create(t, m, fmt.Sprint("sub/", i), fill('s', 2*page))
	}
	m.CrashAfter(0)
	_, err := f.WriteAt([]byte(fill('t', 3*page)), 100)
	require.ErrorIs(t, err, vfs.ErrCrashed)
	differ := false
	for seed := range uint64(seeds) {
		first, second := dump(t, m.Reboot(seed)), dump(t, m.Reboot(seed))
		require.Equal(t, first, second, "seed %d", seed)
		differ = differ || seed > 0 && first != dump(t, m.Reboot(seed-1))
	}
	require.True(t, differ)
}

// dump returns all names and bytes of a small disk.
func dump(t *testing.T, m *vfs.Mem) string {
	t.Helper()
	var b strings.Builder
	for _, dir := range []string{"/", "/sub"} {
		names, err := m.List(dir)
		require.NoError(t, err)
		for _, name := range names {
			c, _ := m.ReadFile(dir + "/" + name) // a directory has no bytes
			fmt.Fprintf(&b, "%s/%s %q\n", dir, name, c)
		}
	}
	return b.String()
}

func TestUnsyncedPagesAreKeptDroppedOrZero(t *testing.T) {
	m := vfs.NewMem()
	f := create(t, m, "a", "o")
	require.NoError(t, f.Sync())
	require.NoError(t, m.SyncDir("/"))
	_, err := f.WriteAt([]byte(fill('n', 2*page-1)), 1)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{
		"o×1",               // nothing
		"o×1 n×8191",        // everything
		"o×1 n×4095",        // the tail dropped
		"o×1 n×4095 0×4096", // the length kept, the bytes not
		"o×1 0×4095 n×4096", // a hole, or zeros
		"o×1 0×4095",        // zeros, the tail dropped
		"o×1 0×8191",        // only the length
	}, outcomes(t, m, "a"))
}

func TestAnOverwrittenPageIsTheOldOneOrTheNewOne(t *testing.T) {
	m := vfs.NewMem()
	f := create(t, m, "a", fill('o', 2*page))
	require.NoError(t, f.Sync())
	require.NoError(t, m.SyncDir("/"))
	_, err := f.WriteAt([]byte(fill('n', page)), page/2)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{
		"o×8192", "o×2048 n×4096 o×2048", "o×2048 n×2048 o×4096", "o×4096 n×2048 o×2048",
	}, outcomes(t, m, "a"))
}

func TestTheLastWriteTearsAnywhere(t *testing.T) {
	m := vfs.NewMem()
	f := create(t, m, "a", "oooooo")
	require.NoError(t, f.Sync())
	require.NoError(t, m.SyncDir("/"))
	m.CrashAfter(0)
	_, err := f.WriteVecAt([][]byte{[]byte("n"), []byte("nnn")}, 1)
	require.ErrorIs(t, err, vfs.ErrCrashed)
	require.ElementsMatch(t, []string{
		"o×6", "o×1 n×1 o×4", "o×1 n×2 o×3", "o×1 n×3 o×2", "o×1 n×4 o×1",
	}, outcomes(t, m, "a"))
}

func TestACrashedTruncateHappenedOrNot(t *testing.T) {
	m, f := newDisk(t)
	m.CrashAfter(0)
	require.ErrorIs(t, f.Truncate(1), vfs.ErrCrashed)
	require.ElementsMatch(t, []string{runs("old"), runs("o")}, outcomes(t, m, "a"))
}

func TestACrashedSyncHappenedOrNot(t *testing.T) {
	m, f := newDisk(t)
	_, err := f.WriteAt([]byte("ooo"), 0)
	require.NoError(t, err)
	m.CrashAfter(0)
	require.ErrorIs(t, f.Sync(), vfs.ErrCrashed)
	require.ElementsMatch(t, []string{runs("old"), runs("ooo")}, outcomes(t, m, "a"))

	m = vfs.NewMem()
	require.NoError(t, create(t, m, "a", "new").Sync())
	m.CrashAfter(0)
	require.ErrorIs(t, m.SyncDir("/"), vfs.ErrCrashed)
	require.ElementsMatch(t, []string{"missing", runs("new")}, outcomes(t, m, "a"))
}

func TestWhatIsWrittenBehindATruncateIsNotThereWithoutIt(t *testing.T) {
	m := vfs.NewMem()
	f := create(t, m, "a", fill('o', 3*page))
	require.NoError(t, f.Sync())
	require.NoError(t, m.SyncDir("/"))
	require.NoError(t, f.Truncate(5000))
	_, err := f.WriteAt([]byte(fill('n', 100)), 5000)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{
		"o×12288", "o×5000", "o×5000 n×100", "o×5000 0×100",
	}, outcomes(t, m, "a"))
}

func TestASyncedTruncateHolds(t *testing.T) {
	m := vfs.NewMem()
	f := create(t, m, "a", fill('o', 3*page))
	require.NoError(t, f.Sync())
	require.NoError(t, m.SyncDir("/"))
	require.NoError(t, f.Truncate(5000))
	require.NoError(t, f.Truncate(6000))
	require.NoError(t, f.Sync())
	require.Equal(t, []string{"o×5000 0×1000"}, outcomes(t, m, "a"))
}

func TestASyncThatFailedIsNotMadeGoodByTheNextOne(t *testing.T) {
	for _, again := range []bool{false, true} {
		m, f := newDisk(t)
		_, err := f.WriteAt([]byte(fill('n', page)), page)
		require.NoError(t, err)
		m.FailAt(0, errDisk)
		require.ErrorIs(t, f.Sync(), errDisk)
		if again {
			_, err = f.WriteAt([]byte(fill('n', page)), page)
			require.NoError(t, err)
		}
		require.NoError(t, f.Sync())
		require.Equal(t, fill('n', page), content(t, m, "a")[page:], "it is in the cache")
		survived := strings.Contains(content(t, m.Reboot(0), "a"), "n")
		require.Equal(t, again, survived, "written again: %v", again)
	}
}

func TestACutIsSavedEvenWhereASyncFailed(t *testing.T) {
	m, f := newDisk(t)
	m.FailAt(0, errDisk)
	require.ErrorIs(t, f.Sync(), errDisk)
	require.NoError(t, f.Truncate(0))
	require.NoError(t, f.Truncate(3))
	require.NoError(t, f.Sync())
	require.Equal(t, []string{"0×3"}, outcomes(t, m, "a"))
}

func TestASyncedFileIsLostWithItsUnsyncedName(t *testing.T) {
	m := vfs.NewMem()
	require.NoError(t, create(t, m, "a", "ssss").Sync())
	require.Equal(t, []string{"missing", "s×4"}, outcomes(t, m, "a"))
}

func TestAnUnsyncedRenameShowsTheOldFileOrTheNewOne(t *testing.T) {
	for _, crash := range []bool{false, true} {
		m, _ := newDisk(t)
		require.NoError(t, create(t, m, "a.tmp", "new").Sync())
		if crash {
			m.CrashAfter(0)
			require.ErrorIs(t, m.Rename("a.tmp", "a"), vfs.ErrCrashed)
		} else {
			require.NoError(t, m.Rename("a.tmp", "a"))
		}
		require.ElementsMatch(t, []string{runs("old"), runs("new")}, outcomes(t, m, "a"))
	}
}

func TestUnsyncedNamesSurviveInOrder(t *testing.T) {
	m := vfs.NewMem()
	for _, name := range []string{"1", "2", "3"} {
		create(t, m, name, "")
	}
	require.NoError(t, m.Remove("1"))
	seen := map[string]bool{}
	for seed := range uint64(seeds) {
		names, err := m.Reboot(seed).List("/")
		require.NoError(t, err)
		seen[strings.Join(names, "")] = true
	}
	require.Equal(t, map[string]bool{"": true, "1": true, "12": true, "123": true, "23": true}, seen)
}

func TestDirectoriesAreSyncedOneByOne(t *testing.T) {
	m := vfs.NewMem()
	require.NoError(t, m.MkdirAll("x"))
	require.NoError(t, m.MkdirAll("y"))
	create(t, m, "x/f", "")
	create(t, m, "y/f", "")
	require.NoError(t, m.SyncDir("x"))
	m = m.Reboot(0)
	_, err := m.Open("x/f")
	require.NoError(t, err)
	_, err = m.Open("y/f")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestACrashedMkdirAllLeavesABeginningOfThePath(t *testing.T) {
	m := vfs.NewMem()
	m.CrashAfter(0)
	require.ErrorIs(t, m.MkdirAll("x/y/z"), vfs.ErrCrashed)
	seen := map[int]bool{}
	for seed := range uint64(seeds) {
		next, depth := m.Reboot(seed), 0
		for _, dir := range []string{"x", "x/y", "x/y/z"} {
			if _, err := next.List(dir); err == nil {
				depth++
			}
		}
		seen[depth] = true
		require.NoError(t, next.MkdirAll("x/y/z"))
	}
	require.Equal(t, map[int]bool{0: true, 1: true, 2: true, 3: true}, seen)
}

func TestWriteFileSurvivesACrashAtEveryCall(t *testing.T) {
	for point := 0; ; point++ {
		m := vfs.NewMem()
		require.NoError(t, vfs.WriteFile(m, "a", []byte("old")))
		m.CrashAfter(point)
		if err := vfs.WriteFile(m, "a", []byte("new")); err == nil {
			require.Equal(t, []string{runs("new")}, outcomes(t, m, "a"), "acknowledged is durable")
			return
		}
		require.Subset(t, []string{runs("old"), runs("new")}, outcomes(t, m, "a"), "point %d", point)
	}
}

func TestWhatARebootReturnsIsADiskOfItsOwn(t *testing.T) {
	m, f := newDisk(t)
	_, err := f.WriteAt([]byte("new"), 0)
	require.NoError(t, err)
	next := m.Reboot(1)
	g, err := next.Open("a")
	require.NoError(t, err)
	_, err = g.WriteAt([]byte("later"), 0)
	require.NoError(t, err)
	require.Equal(t, "new", content(t, next.Reboot(0), "a"), "what survived is synced")
	require.Equal(t, "later", content(t, next.Reboot(1), "a"))
	require.Equal(t, "new", content(t, m.Reboot(1), "a"))
}

// TestASyncThatReturnedHoldsWhateverElseRunsAtTheCrash lets writers append and
// sync beside each other until the power goes.
func TestASyncThatReturnedHoldsWhateverElseRunsAtTheCrash(t *testing.T) {
	for point := range 50 {
		m := vfs.NewMem()
		var (
			wg    sync.WaitGroup
			acked [4]int
			files [4]vfs.File
		)
		for i := range files {
			files[i] = create(t, m, fmt.Sprint(i), "")
		}
		require.NoError(t, m.SyncDir("/"))
		m.CrashAfter(point * 3)
		for i, f := range files {
			wg.Go(func() {
				for n := 0; ; n++ {
					b := binary.BigEndian.AppendUint64(nil, uint64(n))
					_, err := f.WriteAt(b, int64(n)*8)
					if errors.Join(err, f.Sync()) != nil {
						return
					}
					acked[i] = n + 1
				}
			})
		}
		next := m.Reboot(0) // beside the writers: power does not wait for them
		wg.Wait()
		for i := range files {
			b := []byte(content(t, next, fmt.Sprint(i)))
			require.GreaterOrEqual(t, len(b), acked[i]*8, "point %d", point)
			for n := range acked[i] {
				require.True(t, bytes.Equal(binary.BigEndian.AppendUint64(nil, uint64(n)), b[n*8:n*8+8]))
			}
		}
	}
}
