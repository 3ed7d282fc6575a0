package vfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
)

// modelFile is what must be true of a file after a crash. It is simple and slow:
// it keeps every content that the file has had since it was synced.
type modelFile struct {
	versions [][]byte // the first one is the synced one
	low      int      // smallest length since
}

func (f *modelFile) last() []byte { return f.versions[len(f.versions)-1] }

func (f *modelFile) become(b []byte) {
	f.versions, f.low = append(f.versions, b), min(f.low, len(b))
}

func (f *modelFile) sync() {
	f.versions, f.low = [][]byte{f.last()}, len(f.last())
}

// explains returns why got cannot be what a crash left of f, or "".
func (f *modelFile) explains(got []byte) string {
	longest := 0
	for _, v := range f.versions {
		longest = max(longest, len(v))
	}
	if len(got) < f.low || len(got) > longest {
		return fmt.Sprintf("length %d, not in [%d, %d]", len(got), f.low, longest)
	}
	for i, b := range got {
		ok := b == 0 && i >= f.low
		for _, v := range f.versions {
			ok = ok || i < len(v) && v[i] == b
		}
		if !ok {
			return fmt.Sprintf("byte %d is %d, which it never was", i, b)
		}
	}
	return ""
}

// model is one directory: every set of names since it was synced.
type model struct {
	names []map[string]*modelFile // the first one is the synced one
}

func (d *model) last() map[string]*modelFile { return d.names[len(d.names)-1] }

func (d *model) become(change func(map[string]*modelFile)) {
	next := maps.Clone(d.last())
	change(next)
	d.names = append(d.names, next)
}

// explains returns why the disk cannot be what a crash left, or "".
func (d *model) explains(t *testing.T, disk *vfs.Mem) string {
	got, err := disk.List("/")
	require.NoError(t, err)
	why := fmt.Sprintf("names %q, which they never were", got)
	for _, names := range d.names {
		if !slices.Equal(got, slices.Sorted(maps.Keys(names))) {
			continue
		}
		why = ""
		for _, name := range got {
			if reason := names[name].explains([]byte(content(t, disk, name))); reason != "" {
				why = name + ": " + reason
			}
		}
		if why == "" {
			break
		}
	}
	return why
}

// act does one random thing to the disk and to the model. The model takes it
// also when the disk crashes at it: then it is one of the things that may be lost.
func act(t *testing.T, rng *rand.Rand, disk *vfs.Mem, d *model) {
	name := string(rune('a' + rng.IntN(4)))
	f := d.last()[name]
	var err error
	if f == nil {
		var h vfs.File
		if h, err = disk.Create(name); err == nil {
			require.NoError(t, h.Close())
		}
		d.become(func(m map[string]*modelFile) { m[name] = &modelFile{versions: [][]byte{nil}} })
		allow(t, err)
		return
	}
	h, err := disk.Open(name)
	if err != nil {
		allow(t, err)
		return
	}
	defer h.Close()
	b := bytes.Clone(f.last())
	switch rng.IntN(16) {
	case 0:
		err = disk.Remove(name)
		d.become(func(m map[string]*modelFile) { delete(m, name) })
	case 1, 2:
		to := string(rune('a' + rng.IntN(4)))
		err = disk.Rename(name, to)
		d.become(func(m map[string]*modelFile) { delete(m, name); m[to] = f })
	case 3, 4:
		if err = disk.SyncDir("/"); err == nil {
			d.names = d.names[len(d.names)-1:]
		}
	case 5, 6, 7:
		if err = h.Sync(); err == nil {
			f.sync()
		}
	case 8, 9:
		size := rng.IntN(len(b)*5/4 + 1)
		err = h.Truncate(int64(size))
		f.become(append(b, make([]byte, max(0, size-len(b)))...)[:size])
	default:
		off := rng.IntN(len(b) + 1)
		if rng.IntN(2) == 0 {
			off = len(b)
		}
		p := bytes.Repeat([]byte{byte(1 + rng.IntN(255))}, 1+rng.IntN(9000))
		if off+len(p) > 40_000 {
			return
		}
		_, err = h.WriteVecAt([][]byte{p[:len(p)/3], p[len(p)/3:]}, int64(off))
		b = append(b, make([]byte, max(0, off+len(p)-len(b)))...)
		copy(b[off:], p)
		f.become(b)
	}
	allow(t, err)
	if err == nil {
		now := d.last()
		for name, f := range now {
			require.True(t, bytes.Equal(f.last(), []byte(content(t, disk, name))), "%s before the crash", name)
		}
	}
}

func allow(t *testing.T, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, vfs.ErrCrashed) {
		require.NoError(t, err)
	}
}

// randomSeed prints the seed of a random test; QUORUMLOG_SEED repeats a run.
func randomSeed(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("QUORUMLOG_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("QUORUMLOG_SEED=%d", seed)
	return seed
}

// TestACrashLeavesWhatTheModelAllows runs random calls up to a random crash, and
// goes on with what is left of the disk, several crashes in a row.
func TestACrashLeavesWhatTheModelAllows(t *testing.T) {
	rng := rand.New(rand.NewPCG(randomSeed(t), 0))
	for run := range 60 {
		disk, d := vfs.NewMem(), &model{names: []map[string]*modelFile{{}}}
		for life := range 4 {
			disk.CrashAfter(rng.IntN(40))
			for !disk.Crashed() {
				act(t, rng, disk, d)
			}
			for seed := range uint64(6) {
				require.Empty(t, d.explains(t, disk.Reboot(seed)), "run %d, life %d, seed %d", run, life, seed)
			}
			disk = disk.Reboot(rng.Uint64())
			require.Empty(t, d.explains(t, disk), "run %d, life %d", run, life)
			d = survivors(t, disk)
		}
	}
}

// survivors is the model of a disk right after a reboot.
func survivors(t *testing.T, disk *vfs.Mem) *model {
	names, err := disk.List("/")
	require.NoError(t, err)
	files := map[string]*modelFile{}
	for _, name := range names {
		b := []byte(content(t, disk, name))
		files[name] = &modelFile{versions: [][]byte{b}, low: len(b)}
	}
	return &model{names: []map[string]*modelFile{files}}
}
