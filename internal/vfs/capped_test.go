package vfs_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
)

// onCapped runs a test through three handles over the machine's file system and
// over one in memory, in an empty directory of each.
func onCapped(t *testing.T, test func(t *testing.T, fsys vfs.FS, dir string)) {
	t.Run("Capped OS", func(t *testing.T) { test(t, vfs.NewCapped(vfs.OS, 3), filepath.ToSlash(t.TempDir())) })
	t.Run("Capped Mem", func(t *testing.T) {
		m := vfs.NewMem()
		require.NoError(t, m.MkdirAll("/tmp/test"))
		test(t, vfs.NewCapped(m, 3), "/tmp/test")
	})
}

// machine counts the handles that are open in the file system below, and has
// descriptors for so many.
type machine struct {
	vfs.FS
	descriptors  int64
	opened       []string // names in the order of opening; only where one goroutine opens
	open, atMost atomic.Int64
	mu           sync.Mutex
	failSync     error
	beside       func() // runs while a Sync does
}

func newMachine(t *testing.T, fsys vfs.FS) *machine {
	m := &machine{FS: fsys, descriptors: 1 << 40}
	t.Cleanup(func() { require.Zero(t, m.open.Load(), "handles left open") })
	return m
}

func (m *machine) take(name string) error {
	n := m.open.Add(1)
	if n > m.descriptors {
		m.open.Add(-1)
		return &fs.PathError{Op: "open", Path: name, Err: syscall.EMFILE}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.atMost.Store(max(m.atMost.Load(), n))
	m.opened = append(m.opened, name)
	return nil
}

func (m *machine) handle(name string, open func(string) (vfs.File, error)) (vfs.File, error) {
	if err := m.take(name); err != nil {
		return nil, err
	}
	f, err := open(name)
	if err != nil {
		m.open.Add(-1)
		return nil, err
	}
	return &machineFile{File: f, m: m}, nil
}

func (m *machine) Create(name string) (vfs.File, error) { return m.handle(name, m.FS.Create) }
func (m *machine) Open(name string) (vfs.File, error)   { return m.handle(name, m.FS.Open) }

// briefly is a call that needs a descriptor while it runs.
func (m *machine) briefly(name string, call func() error) error {
	if err := m.take(name); err != nil {
		return err
	}
	defer m.open.Add(-1)
	return call()
}

func (m *machine) ReadFile(name string) (b []byte, err error) {
	err = m.briefly(name, func() error { b, err = m.FS.ReadFile(name); return err })
	return b, err
}

func (m *machine) List(dir string) (names []string, err error) {
	err = m.briefly(dir, func() error { names, err = m.FS.List(dir); return err })
	return names, err
}

func (m *machine) SyncDir(dir string) error {
	return m.briefly(dir, func() error { return m.FS.SyncDir(dir) })
}

func (m *machine) Lock(name, owner string) (l io.Closer, err error) {
	err = m.briefly(name, func() error { l, err = m.FS.Lock(name, owner); return err })
	return l, err
}

type machineFile struct {
	vfs.File
	m      *machine
	closed atomic.Bool
}

func (f *machineFile) Close() error {
	if !f.closed.Swap(true) {
		f.m.open.Add(-1)
	}
	return f.File.Close()
}

func (f *machineFile) Sync() error {
	if f.m.failSync != nil {
		return f.m.failSync
	}
	err := f.File.Sync()
	if f.m.beside != nil {
		f.m.beside()
	}
	return err
}

// createSynced makes a file whose handle may be closed to make room.
func createSynced(t *testing.T, fsys vfs.FS, name, content string) vfs.File {
	t.Helper()
	f := create(t, fsys, name, content)
	require.NoError(t, f.Sync())
	return f
}

func read(t *testing.T, f vfs.File) string {
	t.Helper()
	b := make([]byte, 100)
	n, err := f.ReadAt(b, 0)
	require.Equal(t, io.EOF, err)
	return string(b[:n])
}

func TestHandlesStayBelowTheLimit(t *testing.T) {
	m := newMachine(t, vfs.NewMem())
	c := vfs.NewCapped(m, 3)
	var files []vfs.File
	for i := range 10 {
		files = append(files, createSynced(t, c, fmt.Sprint("f", i), fmt.Sprint("content ", i)))
	}
	for i, f := range files {
		require.Equal(t, fmt.Sprint("content ", i), read(t, f))
		size, err := f.Size()
		require.NoError(t, err)
		require.EqualValues(t, len("content 0"), size)
	}
	require.EqualValues(t, 3, m.atMost.Load())
	require.Equal(t, vfs.HandleStats{Limit: 3, Open: 3, Reopened: 10}, c.Handles())

	for _, f := range files {
		require.NoError(t, f.Close())
		_, err := f.ReadAt(make([]byte, 1), 0)
		require.ErrorIs(t, err, fs.ErrClosed)
		require.ErrorIs(t, f.Close(), fs.ErrClosed)
	}
	require.Zero(t, c.Handles().Open)
}

func TestTheHandleNotUsedForLongestIsClosed(t *testing.T) {
	m := newMachine(t, vfs.NewMem())
	c := vfs.NewCapped(m, 3)
	files := map[string]vfs.File{}
	for _, name := range []string{"a", "b", "c"} {
		files[name] = createSynced(t, c, name, name)
	}
	files["d"] = createSynced(t, c, "d", "d") // all are used alike: the oldest one, a, goes
	require.Equal(t, "b", read(t, files["b"]))
	m.opened = nil
	require.Equal(t, "a", read(t, files["a"])) // c goes
	for _, name := range []string{"b", "d", "a"} {
		require.Equal(t, name, read(t, files[name]))
	}
	require.Equal(t, []string{"a"}, m.opened)
	for _, f := range files {
		require.NoError(t, f.Close())
	}
}

func TestFilesReadOnceDoNotTakeTheHandlesOfBusyOnes(t *testing.T) {
	m := newMachine(t, vfs.NewMem())
	c := vfs.NewCapped(m, 3)
	var once []vfs.File
	for i := range 10 {
		once = append(once, createSynced(t, c, fmt.Sprint("once", i), "once"))
	}
	busy := []vfs.File{createSynced(t, c, "busy0", "busy"), createSynced(t, c, "busy1", "busy")}
	_ = read(t, once[0]) // the last of those before loses its handle
	m.opened = nil
	for _, f := range once[1:] {
		for _, b := range busy {
			require.Equal(t, "busy", read(t, b))
		}
		require.Equal(t, "once", read(t, f))
	}
	require.Len(t, m.opened, len(once)-1)
	require.NotContains(t, m.opened, "busy0")
	require.NotContains(t, m.opened, "busy1")
}

func TestAHandleWithSomethingToSyncIsKept(t *testing.T) {
	changes := map[string]func(f vfs.File) error{
		"write":    func(f vfs.File) error { _, err := f.WriteAt([]byte("x"), 0); return err },
		"writevec": func(f vfs.File) error { _, err := f.WriteVecAt([][]byte{{'x'}}, 0); return err },
		"truncate": func(f vfs.File) error { return f.Truncate(1) },
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, vfs.NewMem())
			c := vfs.NewCapped(m, 2)
			var files []vfs.File
			for i := range 6 {
				files = append(files, createSynced(t, c, fmt.Sprint("f", i), "yy"))
			}
			for _, f := range files {
				require.NoError(t, change(f))
			}
			require.EqualValues(t, 6, m.open.Load())
			require.Equal(t, vfs.HandleStats{Limit: 2, Open: 6, Reopened: 6, Exceeded: 4}, c.Handles())

			m.opened = nil
			for _, f := range files {
				require.NoError(t, f.Sync())
			}
			require.Empty(t, m.opened)
			require.EqualValues(t, 2, m.open.Load(), "back at the limit once all is synced")
		})
	}
}

func TestAHandleWrittenToWhileItIsSyncedIsKept(t *testing.T) {
	m := newMachine(t, vfs.NewMem())
	c := vfs.NewCapped(m, 1)
	f := create(t, c, "a", "first")
	m.beside = func() {
		var writer sync.WaitGroup
		writer.Go(func() {
			_, err := f.WriteAt([]byte("later"), 0)
			require.NoError(t, err)
		})
		writer.Wait()
	}
	require.NoError(t, f.Sync())
	m.beside = nil
	other := createSynced(t, c, "other", "")
	m.opened = nil
	require.NoError(t, f.Sync())
	require.Empty(t, m.opened, "the first sync did not see what was written beside it")
	require.NoError(t, errors.Join(f.Close(), other.Close()))
}

func TestAFailedSyncIsRememberedAndKeepsTheHandle(t *testing.T) {
	m := newMachine(t, vfs.NewMem())
	c := vfs.NewCapped(m, 1)
	f := create(t, c, "a", "lost")
	m.failSync = syscall.EIO
	require.ErrorIs(t, f.Sync(), syscall.EIO)
	m.failSync = nil
	for i := range 3 {
		createSynced(t, c, fmt.Sprint("other", i), "")
	}
	m.opened = nil
	require.Equal(t, "lost", read(t, f))
	require.Empty(t, m.opened)
	_, err := f.WriteAt([]byte("again"), 0)
	require.NoError(t, err)
	require.ErrorIs(t, f.Sync(), syscall.EIO)
	require.NoError(t, f.Close())
	again, err := c.Open("a")
	require.NoError(t, err)
	require.NoError(t, again.Sync(), "it is that File's error")
	require.NoError(t, again.Close())
}

func TestReadersOfARemovedFileReadOn(t *testing.T) {
	onCapped(t, func(t *testing.T, fsys vfs.FS, dir string) {
		f := createSynced(t, fsys, dir+"/a", "old")
		other, err := fsys.Open(dir + "/../" + filepath.Base(dir) + "/a") // the same name
		require.NoError(t, err)
		crowd(t, fsys, dir)
		require.NoError(t, fsys.Remove(dir+"/a"))
		createSynced(t, fsys, dir+"/a", "new")
		crowd(t, fsys, dir)
		require.Equal(t, "old", read(t, f))
		require.Equal(t, "old", read(t, other))
		_, err = f.WriteAt([]byte("er"), 3)
		require.NoError(t, err)
		require.NoError(t, f.Sync())
		crowd(t, fsys, dir)
		require.Equal(t, "older", read(t, other))
		require.NoError(t, other.Close())
		require.NoError(t, f.Close())
		require.Equal(t, "new", content(t, fsys, dir+"/a"))
	})
}

func TestFilesFollowARenameAndReplacedOnesKeepTheirs(t *testing.T) {
	onCapped(t, func(t *testing.T, fsys vfs.FS, dir string) {
		a := createSynced(t, fsys, dir+"/a", "text of a")
		b := createSynced(t, fsys, dir+"/b", "text of b")
		for range 2 {
			crowd(t, fsys, dir)
			require.NoError(t, fsys.Rename(dir+"/a", dir+"/a"))
			require.Equal(t, "text of a", read(t, a))
		}
		require.NoError(t, fsys.Rename(dir+"/a", dir+"/b"))
		createSynced(t, fsys, dir+"/a", "new")
		crowd(t, fsys, dir)
		require.Equal(t, "text of a", read(t, a))
		require.Equal(t, "text of b", read(t, b))
		require.NoError(t, fsys.Rename(dir+"/b", dir+"/c"))
		createSynced(t, fsys, dir+"/b", "new")
		crowd(t, fsys, dir)
		require.Equal(t, "text of a", read(t, a))
		require.Equal(t, "text of b", read(t, b))
		require.NoError(t, fsys.Remove(dir+"/c"))
		require.Equal(t, "text of a", read(t, a))
	})
}

func TestFilesFollowTheirDirectory(t *testing.T) {
	onCapped(t, func(t *testing.T, fsys vfs.FS, dir string) {
		require.NoError(t, fsys.MkdirAll(dir+"/x/sub"))
		inside := createSynced(t, fsys, dir+"/x/f", "inside")
		deep := createSynced(t, fsys, dir+"/x/sub/f", "deep")
		beside := createSynced(t, fsys, dir+"/xx", "beside")
		for _, move := range [][2]string{{"/x", "/y"}, {"/y/sub", "/y/bus"}, {"/y", "/z"}} {
			crowd(t, fsys, dir)
			require.NoError(t, fsys.Rename(dir+move[0], dir+move[1]))
			require.Equal(t, "inside", read(t, inside))
			require.Equal(t, "deep", read(t, deep))
			require.Equal(t, "beside", read(t, beside))
		}
		crowd(t, fsys, dir)
		require.NoError(t, fsys.Remove(dir+"/z/bus/f"))
		require.NoError(t, fsys.Remove(dir+"/z/bus"))
		require.Equal(t, "deep", read(t, deep))
	})
}

// crowd takes the handles of all that may lose theirs.
func crowd(t *testing.T, fsys vfs.FS, dir string) {
	t.Helper()
	for i := range 6 {
		name := fmt.Sprintf("%s/crowd%d", dir, i)
		f, err := fsys.Create(name)
		if errors.Is(err, fs.ErrExist) {
			f, err = fsys.Open(name)
		}
		require.NoError(t, err)
		_, err = f.Size()
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, f.Close()) })
	}
}

func TestAFailedRenameLeavesFilesUnderTheirNames(t *testing.T) {
	m := vfs.NewMem()
	c := vfs.NewCapped(m, 2)
	a, b := createSynced(t, c, "a", "text of a"), createSynced(t, c, "b", "text of b")
	for op, call := range map[vfs.Op]func() error{
		vfs.OpRename: func() error { return c.Rename("a", "b") },
		vfs.OpRemove: func() error { return c.Remove("a") },
	} {
		m.Fail(func(o vfs.Op, _ string) error {
			if o == op {
				return syscall.EIO
			}
			return nil
		})
		require.ErrorIs(t, call(), syscall.EIO)
		m.Fail(nil)
	}
	crowd(t, c, "/")
	require.NoError(t, c.Rename("a", "c"))
	require.Equal(t, "text of a", read(t, a))
	require.Equal(t, "text of b", read(t, b))
}

func TestWithoutDescriptorsIdleHandlesAreClosed(t *testing.T) {
	m := newMachine(t, vfs.NewMem())
	c := vfs.NewCapped(m, 100)
	var files []vfs.File
	for i := range 8 {
		files = append(files, createSynced(t, c, fmt.Sprint("/f", i), fmt.Sprint(i)))
	}
	m.descriptors = 8 // less than the limit: others in the process have the rest
	calls := map[string]func() error{
		"create":   func() error { f, err := c.Create("/new"); return errors.Join(err, f.Close()) },
		"open":     func() error { f, err := c.Open("/f0"); return errors.Join(err, f.Close()) },
		"readfile": func() error { _, err := c.ReadFile("/f0"); return err },
		"list":     func() error { _, err := c.List("/"); return err },
		"syncdir":  func() error { return c.SyncDir("/") },
		"lock":     func() error { l, err := c.Lock("/LOCK", "me"); return errors.Join(err, l.Close()) },
	}
	for name, call := range calls {
		for i, f := range files { // all descriptors are taken again
			require.Equal(t, fmt.Sprint(i), read(t, f), name)
		}
		require.EqualValues(t, 8, m.open.Load(), name)
		require.NoError(t, call(), name)
	}

	for _, f := range files { // now none is idle
		_, err := f.WriteAt([]byte("x"), 0)
		require.NoError(t, err)
	}
	f, err := c.Open("/f0")
	require.ErrorIs(t, err, syscall.EMFILE)
	require.Nil(t, f)
	_, err = c.Create("/newer")
	require.ErrorIs(t, err, syscall.EMFILE)
	_, err = c.ReadFile("/f0")
	require.ErrorIs(t, err, syscall.EMFILE)
	require.Equal(t, 8, c.Handles().Open, "failed calls hold nothing")
	require.NoError(t, files[0].Sync())
	f, err = c.Open("/f1")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.Equal(t, "x", read(t, files[0]))
}

func TestAFileWithoutHandleFailsForDescriptorsAndWorksAgain(t *testing.T) {
	m := newMachine(t, vfs.NewMem())
	c := vfs.NewCapped(m, 1)
	f := createSynced(t, c, "f", "text")
	createSynced(t, c, "other", "")
	require.NoError(t, f.Sync(), "f has it")
	other, err := c.Open("other")
	require.NoError(t, err)
	_, err = other.WriteAt([]byte("kept"), 0) // f has none now, and cannot get one
	require.NoError(t, err)
	m.descriptors = 1
	_, readErr := f.ReadAt(make([]byte, 1), 0)
	_, writeErr := f.WriteAt([]byte("never"), 0)
	_, sizeErr := f.Size()
	for _, err := range []error{readErr, writeErr, sizeErr, f.Truncate(0), f.Sync(), c.Remove("f")} {
		require.ErrorIs(t, err, syscall.EMFILE)
	}
	require.NoError(t, other.Close())
	require.Equal(t, "text", read(t, f))
	require.NoError(t, f.Sync(), "no sync has failed, it was not made")
}

func TestReadingThroughAnOpenHandleAllocatesNothing(t *testing.T) {
	c := vfs.NewCapped(vfs.NewMem(), 3)
	f := createSynced(t, c, "a", "text")
	b := make([]byte, 4)
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = f.ReadAt(b, 0) }))
}

func TestTheDefaultLimitIsInItsBounds(t *testing.T) {
	require.GreaterOrEqual(t, vfs.DefaultLimit(), 64)
	require.LessOrEqual(t, vfs.DefaultLimit(), 4096)
}
