package vfs_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
)

// twin does the same to a Capped and to a plain Mem, and wants the same answers.
// The plain one never closes a handle.
type twin struct {
	t      *testing.T
	rng    *rand.Rand
	capped *vfs.Capped
	plain  *vfs.Mem
	below  *machine
	files  []*twinFile
	ids    map[string]int // which file has a name, files only
	next   int
}

type twinFile struct {
	capped, plain vfs.File
	id            int
	dirty, closed bool
	pinned        bool // by a rename that failed
}

// class is what a caller can tell about an error.
func class(err error) error {
	for _, c := range []error{io.EOF, fs.ErrClosed, fs.ErrNotExist, fs.ErrExist, fs.ErrInvalid} {
		if errors.Is(err, c) {
			return c
		}
	}
	if err != nil {
		return errors.New("another error")
	}
	return nil
}

// same makes a call on both, wants the same answer, and says whether it succeeded.
func same[F any](w *twin, what string, capped, plain F, call func(F) (any, error)) bool {
	w.t.Helper()
	got, gotErr := call(capped)
	want, wantErr := call(plain)
	require.Equal(w.t, class(wantErr), class(gotErr), "%s: %v against %v", what, gotErr, wantErr)
	require.Equal(w.t, want, got, what)
	return gotErr == nil
}

// name returns one of a few names in three directories, of which b may be moved to c.
func (w *twin) name() string {
	return fmt.Sprintf("%s/%d", []string{"/a", "/b", "/c", "/a/../b/."}[w.rng.IntN(4)], w.rng.IntN(3))
}

func (w *twin) step() {
	const maxFiles = 12
	onDisk := func(what string, call func(vfs.FS) (any, error)) bool {
		return same[vfs.FS](w, what, w.capped, w.plain, call)
	}
	name := w.name()
	key := name
	if len(name) > len("/a/0") {
		key = "/b" + name[len(name)-2:]
	}
	switch op := w.rng.IntN(20); {
	case op < 6 && len(w.files) < maxFiles:
		f := &twinFile{}
		create := op < 3
		open := func(fsys vfs.FS) (vfs.File, error) {
			if create {
				return fsys.Create(name)
			}
			return fsys.Open(name)
		}
		var gotErr, wantErr error
		f.capped, gotErr = open(w.capped)
		f.plain, wantErr = open(w.plain)
		require.Equal(w.t, class(wantErr), class(gotErr), "open %s: %v against %v", name, gotErr, wantErr)
		if gotErr != nil {
			return
		}
		if create {
			w.next++
			w.ids[key] = w.next
		}
		f.id = w.ids[key]
		w.files = append(w.files, f)
	case op == 6:
		if onDisk("remove "+name, func(fsys vfs.FS) (any, error) { return nil, fsys.Remove(name) }) {
			delete(w.ids, key)
		}
	case op == 7:
		to := fmt.Sprintf("%s/%d", key[:2], w.rng.IntN(3))
		if onDisk("rename "+name+" to "+to, func(fsys vfs.FS) (any, error) { return nil, fsys.Rename(key, to) }) {
			id := w.ids[key]
			delete(w.ids, key)
			w.ids[to] = id
			return
		}
		for _, f := range w.files {
			f.pinned = f.pinned || f.id == w.ids[to] && key != to
		}
	case op == 8:
		from, to := "/b", "/c"
		if w.rng.IntN(2) == 0 {
			from, to = to, from
		}
		if onDisk("move "+from, func(fsys vfs.FS) (any, error) { return nil, fsys.Rename(from, to) }) {
			for i := range 3 {
				old, moved := fmt.Sprintf("%s/%d", from, i), fmt.Sprintf("%s/%d", to, i)
				if id, ok := w.ids[old]; ok {
					delete(w.ids, old)
					w.ids[moved] = id
				}
			}
		}
	case op == 9:
		onDisk("read "+name, func(fsys vfs.FS) (any, error) { return fsys.ReadFile(name) })
		onDisk("list", func(fsys vfs.FS) (any, error) { return fsys.List(key[:2]) })
	case len(w.files) > 0:
		w.use(w.files[w.rng.IntN(len(w.files))], op)
	}
}

func (w *twin) use(f *twinFile, op int) {
	onFile := func(what string, call func(vfs.File) (any, error)) bool {
		return same(w, what, f.capped, f.plain, call)
	}
	off, p := int64(w.rng.IntN(40)), make([]byte, 1+w.rng.IntN(20))
	for i := range p {
		p[i] = byte(w.rng.Uint32())
	}
	switch op {
	case 10, 11, 12:
		onFile("read", func(file vfs.File) (any, error) {
			b := make([]byte, len(p))
			n, err := file.ReadAt(b, off)
			return b[:n], err
		})
	case 13:
		onFile("size", func(file vfs.File) (any, error) { return file.Size() })
	case 14:
		onFile("write", func(file vfs.File) (any, error) { return file.WriteAt(p, off) })
		f.dirty = true
	case 15:
		onFile("writevec", func(file vfs.File) (any, error) { return file.WriteVecAt([][]byte{p[:1], p[1:]}, off) })
		f.dirty = true
	case 16:
		onFile("truncate", func(file vfs.File) (any, error) { return nil, file.Truncate(off) })
		f.dirty = true
	case 17, 18:
		if onFile("sync", func(file vfs.File) (any, error) { return nil, file.Sync() }) {
			f.dirty = false
		}
	case 19:
		onFile("close", func(file vfs.File) (any, error) { return nil, file.Close() })
		if f.closed { // it was closed twice; that is enough
			w.files = slices.DeleteFunc(w.files, func(g *twinFile) bool { return g == f })
		}
		f.closed = true
	}
}

// check compares the open handles with how many there may be.
func (w *twin) check() {
	kept := 0
	for _, f := range w.files {
		named := false
		for _, id := range w.ids {
			named = named || id == f.id
		}
		if !f.closed && (f.dirty || f.pinned || !named) {
			kept++
		}
	}
	h := w.capped.Handles()
	require.EqualValues(w.t, w.below.open.Load(), h.Open)
	require.LessOrEqual(w.t, h.Open, max(h.Limit, kept), "%d must be kept", kept)
}

// TestACappedFileSystemAnswersAsOneWithoutLimit runs random calls, with one to
// four handles for up to twelve Files.
func TestACappedFileSystemAnswersAsOneWithoutLimit(t *testing.T) {
	rng := rand.New(rand.NewPCG(randomSeed(t), 0))
	for run := range 100 {
		plain, below := vfs.NewMem(), newMachine(t, vfs.NewMem())
		w := &twin{t: t, rng: rng, plain: plain, below: below, capped: vfs.NewCapped(below, 1+run%4), ids: map[string]int{}}
		for _, dir := range []string{"/a", "/b"} {
			require.NoError(t, plain.MkdirAll(dir))
			require.NoError(t, w.capped.MkdirAll(dir))
		}
		for range 500 {
			w.step()
			w.check()
		}
		require.Positive(t, w.capped.Handles().Reopened)
		for _, f := range w.files {
			_ = f.capped.Close()
		}
	}
}
