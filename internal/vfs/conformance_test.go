package vfs_test

import (
	"bytes"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
)

// onBoth runs a test on the machine's file system, in both its forms, on one in
// memory, and on both through few handles, in an empty directory of each.
func onBoth(t *testing.T, test func(t *testing.T, fsys vfs.FS, dir string)) {
	t.Run("OS", func(t *testing.T) { test(t, vfs.OS, filepath.ToSlash(t.TempDir())) })
	t.Run("NewOS", func(t *testing.T) {
		o := vfs.NewOS()
		test(t, o, filepath.ToSlash(t.TempDir()))
		require.NoError(t, o.Close())
	})
	t.Run("Mem", func(t *testing.T) {
		m := vfs.NewMem()
		require.NoError(t, m.MkdirAll("/tmp/test"))
		test(t, m, "/tmp/test")
	})
	onCapped(t, test)
}

func create(t *testing.T, fsys vfs.FS, name, content string) vfs.File {
	t.Helper()
	f, err := fsys.Create(name)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() }) // closed twice where the test closes it
	n, err := f.WriteAt([]byte(content), 0)
	require.NoError(t, err)
	require.Equal(t, len(content), n)
	return f
}

func content(t *testing.T, fsys vfs.FS, name string) string {
	t.Helper()
	b, err := fsys.ReadFile(name)
	require.NoError(t, err)
	return string(b)
}

func TestCreateRefusesAnExistingFileAndNamesIt(t *testing.T) {
	onBoth(t, func(t *testing.T, fsys vfs.FS, dir string) {
		create(t, fsys, dir+"/a", "kept")
		_, err := fsys.Create(dir + "/a")
		require.ErrorIs(t, err, fs.ErrExist)
		require.ErrorContains(t, err, dir+"/a")
		require.Equal(t, "kept", content(t, fsys, dir+"/a"))
	})
}

func TestMissingNamesAreErrNotExist(t *testing.T) {
	onBoth(t, func(t *testing.T, fsys vfs.FS, dir string) {
		missing := dir + "/no/such"
		_, createErr := fsys.Create(missing)
		_, openErr := fsys.Open(missing)
		_, readErr := fsys.ReadFile(missing)
		_, listErr := fsys.List(missing)
		_, lockErr := fsys.Lock(missing, "me")
		for _, err := range []error{
			createErr, openErr, readErr, listErr, lockErr,
			fsys.Remove(missing), fsys.Rename(missing, missing+"2"), fsys.SyncDir(missing),
		} {
			require.ErrorIs(t, err, fs.ErrNotExist)
			require.ErrorContains(t, err, missing)
		}
	})
}

func TestADirectoryIsNotOpenedAsAFile(t *testing.T) {
	onBoth(t, func(t *testing.T, fsys vfs.FS, dir string) {
		_, err := fsys.Open(dir)
		require.Error(t, err)
		_, err = fsys.ReadFile(dir)
		require.Error(t, err)
		create(t, fsys, dir+"/file", "")
		require.Error(t, fsys.MkdirAll(dir+"/file/sub"))
		require.Error(t, fsys.MkdirAll(dir+"/file"))
	})
}

func TestReadAtGivesEOFAtTheEnd(t *testing.T) {
	onBoth(t, func(t *testing.T, fsys vfs.FS, dir string) {
		f := create(t, fsys, dir+"/a", "0123456789")
		b := make([]byte, 4)
		n, err := f.ReadAt(b, 3)
		require.NoError(t, err)
		require.Equal(t, "3456", string(b[:n]))

		n, err = f.ReadAt(b, 8)
		require.Equal(t, io.EOF, err)
		require.Equal(t, "89", string(b[:n]))

		n, err = f.ReadAt(b, 10)
		require.Equal(t, io.EOF, err)
		require.Zero(t, n)

		_, err = f.ReadAt(b, -1)
		require.Error(t, err)
	})
}

func TestWritesLandWhereTheyShouldAcrossPages(t *testing.T) {
	onBoth(t, func(t *testing.T, fsys vfs.FS, dir string) {
		f := create(t, fsys, dir+"/a", "")
		want := make([]byte, 20_000)
		write := func(p []byte, off int) {
			_, err := f.WriteAt(p, int64(off))
			require.NoError(t, err)
			copy(want[off:], p)
		}
		write(bytes.Repeat([]byte("a"), 5000), 0)
		write(bytes.Repeat([]byte("b"), 100), 4050)
		write(bytes.Repeat([]byte("c"), 9000), 11_000) // behind a hole
		size, err := f.Size()
		require.NoError(t, err)
		require.EqualValues(t, len(want), size)
		require.True(t, bytes.Equal(want, []byte(content(t, fsys, dir+"/a"))))
	})
}

func TestWriteVecAtWritesAllBuffersInOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, fsys vfs.FS, dir string) {
		f := create(t, fsys, dir+"/a", "head")
		var bufs [][]byte
		want := []byte("head")
		for i := range 3000 { // more than one system call takes
			b := bytes.Repeat([]byte{byte(i)}, i%5) // some are empty
			bufs, want = append(bufs, b), append(want, b...)
		}
		n, err := f.WriteVecAt(bufs, 4)
		require.NoError(t, err)
		require.EqualValues(t, len(want)-4, n)
		require.True(t, bytes.Equal(want, []byte(content(t, fsys, dir+"/a"))))

		for _, none := range [][][]byte{nil, {}, {nil, {}}} {
			n, err = f.WriteVecAt(none, int64(len(want))+10)
			require.NoError(t, err)
			require.Zero(t, n)
		}
		size, err := f.Size()
		require.NoError(t, err)
		require.EqualValues(t, len(want), size, "writing nothing must not grow the file")

		_, err = f.WriteVecAt([][]byte{{1}}, -1)
		require.Error(t, err)
	})
}

func TestTruncateCutsAndWhatItAddsIsZero(t *testing.T) {
	onBoth(t, func(t *testing.T, fsys vfs.FS, dir string) {
		f := create(t, fsys, dir+"/a", string(bytes.Repeat([]byte("x"), 10_000)))
		require.NoError(t, f.Truncate(5000))
		require.NoError(t, f.Truncate(9000))
		want := append(bytes.Repeat([]byte("x"), 5000), make([]byte, 4000)...)
		require.True(t, bytes.Equal(want, []byte(content(t, fsys, dir+"/a"))))
		require.NoError(t, f.Truncate(0))
		require.Empty(t, content(t, fsys, dir+"/a"))
		require.Error(t, f.Truncate(-1))
	})
}

func TestAClosedFileGivesErrClosed(t *testing.T) {
	onBoth(t, func(t *testing.T, fsys vfs.FS, dir string) {
		f := create(t, fsys, dir+"/a", "x")
		require.NoError(t, f.Close())
		_, readErr := f.ReadAt(make([]byte, 1), 0)
		_, writeErr := f.WriteAt([]byte("y"), 0)
		_, vecErr := f.WriteVecAt([][]byte{[]byte("y")}, 0)
		_, sizeErr := f.Size()
		for _, err := range []error{readErr, writeErr, vecErr, sizeErr, f.Truncate(0), f.Sync(), f.Close()} {
			require.ErrorIs(t, err, fs.ErrClosed)
		}
		require.Equal(t, "x", content(t, fsys, dir+"/a"))
	})
}

func TestRenameReplacesTheTarget(t *testing.T) {
	onBoth(t, func(t *testing.T, fsys vfs.FS, dir string) {
		require.NoError(t, create(t, fsys, dir+"/new", "new").Close())
		require.NoError(t, create(t, fsys, dir+"/old", "old").Close())
		require.NoError(t, fsys.Rename(dir+"/new", dir+"/old"))
		require.NoError(t, fsys.Rename(dir+"/old", dir+"/old"))
		names, err := fsys.List(dir)
		require.NoError(t, err)
		require.Equal(t, []string{"old"}, names)
		require.Equal(t, "new", content(t, fsys, dir+"/old"))
	})
}

func TestRenameStaysInOneDirectory(t *testing.T) {
	onBoth(t, func(t *testing.T, fsys vfs.FS, dir string) {
		require.NoError(t, fsys.MkdirAll(dir+"/sub"))
		create(t, fsys, dir+"/a", "x")
		require.ErrorIs(t, fsys.Rename(dir+"/a", dir+"/sub/a"), fs.ErrInvalid)
		require.Equal(t, "x", content(t, fsys, dir+"/a"))
	})
}

func TestADirectoryIsRenamedWithWhatIsInIt(t *testing.T) {
	onBoth(t, func(t *testing.T, fsys vfs.FS, dir string) {
		require.NoError(t, fsys.MkdirAll(dir+"/a"))
		require.NoError(t, create(t, fsys, dir+"/a/f", "x").Close())
		require.NoError(t, fsys.Rename(dir+"/a", dir+"/b"))
		require.Equal(t, "x", content(t, fsys, dir+"/b/f"))
		create(t, fsys, dir+"/file", "")
		require.Error(t, fsys.Rename(dir+"/file", dir+"/b"))
		require.Error(t, fsys.Rename(dir+"/b", dir+"/file"))
	})
}

func TestARemovedFileStaysUsableWhileItIsOpen(t *testing.T) {
	onBoth(t, func(t *testing.T, fsys vfs.FS, dir string) {
		f := create(t, fsys, dir+"/a", "old")
		other, err := fsys.Open(dir + "/a")
		require.NoError(t, err)
		require.NoError(t, fsys.Remove(dir+"/a"))
		create(t, fsys, dir+"/a", "new")

		_, err = f.WriteAt([]byte("er"), 3)
		require.NoError(t, err)
		b := make([]byte, 5)
		_, err = other.ReadAt(b, 0)
		require.NoError(t, err)
		require.Equal(t, "older", string(b))
		require.NoError(t, f.Sync())
		require.NoError(t, other.Close())
		require.Equal(t, "new", content(t, fsys, dir+"/a"))
	})
}

func TestRemoveTakesOnlyEmptyDirectories(t *testing.T) {
	onBoth(t, func(t *testing.T, fsys vfs.FS, dir string) {
		require.NoError(t, fsys.MkdirAll(dir+"/a/b"))
		require.NoError(t, fsys.MkdirAll(dir+"/a/b"), "it may exist already")
		require.Error(t, fsys.Remove(dir+"/a"))
		require.NoError(t, fsys.Remove(dir+"/a/b"))
		require.NoError(t, fsys.Remove(dir+"/a"))
		_, err := fsys.List(dir + "/a")
		require.ErrorIs(t, err, fs.ErrNotExist)
	})
}

func TestListIsSorted(t *testing.T) {
	onBoth(t, func(t *testing.T, fsys vfs.FS, dir string) {
		for _, name := range []string{"c", "a", "d"} {
			create(t, fsys, path.Join(dir, name), "")
		}
		require.NoError(t, fsys.MkdirAll(dir+"/b/sub"))
		names, err := fsys.List(dir)
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b", "c", "d"}, names)
		require.NoError(t, fsys.SyncDir(dir))
	})
}

func TestLockIsHeldByOneAndSaysByWhom(t *testing.T) {
	onBoth(t, func(t *testing.T, fsys vfs.FS, dir string) {
		name := dir + "/LOCK"
		held, err := fsys.Lock(name, "the first one, a long name")
		require.NoError(t, err)
		require.Equal(t, "the first one, a long name", content(t, fsys, name))

		_, err = fsys.Lock(name, "second")
		require.ErrorIs(t, err, vfs.ErrLocked)
		var locked *vfs.LockedError
		require.ErrorAs(t, err, &locked)
		require.Equal(t, vfs.LockedError{Name: name, Owner: "the first one, a long name"}, *locked)
		require.ErrorContains(t, err, "the first one")

		require.NoError(t, held.Close())
		require.Empty(t, content(t, fsys, name))
		again, err := fsys.Lock(name, "second")
		require.NoError(t, err)
		require.NoError(t, held.Close(), "twice; it must not give the second one's lock free")
		_, err = fsys.Lock(name, "third")
		require.ErrorAs(t, err, &locked)
		require.Equal(t, "second", locked.Owner)
		require.NoError(t, again.Close())
	})
}

func TestOneOfManyGetsTheLock(t *testing.T) {
	onBoth(t, func(t *testing.T, fsys vfs.FS, dir string) {
		var (
			locks [8]io.Closer
			errs  [8]error
			wg    sync.WaitGroup
		)
		for i := range locks {
			wg.Go(func() { locks[i], errs[i] = fsys.Lock(dir+"/LOCK", "one") })
		}
		wg.Wait()
		got := 0
		for i, err := range errs {
			if err == nil {
				got++
				require.NoError(t, locks[i].Close())
				continue
			}
			require.ErrorIs(t, err, vfs.ErrLocked)
		}
		require.Equal(t, 1, got)
	})
}

func TestReadersRunBesideTheWriter(t *testing.T) {
	onBoth(t, func(t *testing.T, fsys vfs.FS, dir string) {
		f := create(t, fsys, dir+"/a", "")
		const record, count = 1000, 300
		var wg sync.WaitGroup
		stop := make(chan struct{})
		for range 3 {
			wg.Go(func() {
				b := make([]byte, record)
				for {
					select {
					case <-stop:
						return
					default:
					}
					size, err := f.Size()
					if err != nil || size < record {
						continue
					}
					last := size/record - 1
					if _, err := f.ReadAt(b, last*record); err != nil || b[0] != byte(last) || b[record-1] != byte(last) {
						t.Errorf("record %d: %v, begins with %d, ends with %d", last, err, b[0], b[record-1])
						return
					}
				}
			})
		}
		for i := range count {
			b := bytes.Repeat([]byte{byte(i)}, record/2)
			_, err := f.WriteVecAt([][]byte{b, b}, int64(i)*record)
			require.NoError(t, err)
		}
		close(stop)
		wg.Wait()
	})
}

func TestWriteFileReplacesAndLeavesNothingBehind(t *testing.T) {
	onBoth(t, func(t *testing.T, fsys vfs.FS, dir string) {
		create(t, fsys, dir+"/a.tmp", "of a crash") // left by an earlier one
		for _, want := range []string{"a long first text", "short"} {
			require.NoError(t, vfs.WriteFile(fsys, dir+"/a", []byte(want)))
			require.Equal(t, want, content(t, fsys, dir+"/a"))
		}
		names, err := fsys.List(dir)
		require.NoError(t, err)
		require.Equal(t, []string{"a"}, names)
	})
}
