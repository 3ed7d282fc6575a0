package log

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

// files is what a log has on disk, by name.
type files map[string][]byte

func readFiles(t testing.TB, disk vfs.FS) files {
	names, err := disk.List(testDir)
	require.NoError(t, err)
	f := make(files)
	for _, name := range names {
		f[name], err = disk.ReadFile(path.Join(testDir, name))
		require.NoError(t, err)
	}
	return f
}

// disk returns a new disk with f, but with name holding b, or missing if b is nil.
func (f files) disk(t testing.TB, name string, b []byte) *vfs.Mem {
	disk := vfs.NewMem()
	require.NoError(t, disk.MkdirAll(testDir))
	for n, content := range f {
		if n == name {
			content = b
		}
		if n != name || b != nil {
			f, err := disk.Create(path.Join(testDir, n))
			require.NoError(t, err)
			_, err = f.WriteAt(content, 0)
			require.NoError(t, err)
			require.NoError(t, f.Sync())
			require.NoError(t, f.Close())
		}
	}
	require.NoError(t, disk.SyncDir(testDir))
	return disk
}

// smallLog writes a log of several segments and closes it.
func smallLog(t testing.TB) (oracle, files) {
	disk := vfs.NewMem()
	l := open(t, testConfig(disk))
	rng := testRand(t)
	o := newOracle()
	for len(l.view.Load().sealed) < 3 || l.Bounds().Next < l.view.Load().active.seg.BaseEntry+3 {
		e := o.make(t, rng, 1)
		require.NoError(t, l.Append(e))
		o = o.with(e...)
	}
	require.NoError(t, l.Close())
	return o, readFiles(t, disk)
}

// TestAFlippedBitIsNeverReadAsRight flips a bit of each byte of a log. Opening
// or reading says so, and entries that are read are those that were written; all
// others are still there, but for those between the damage and the next index slot.
func TestAFlippedBitIsNeverReadAsRight(t *testing.T) {
	o, f := smallLog(t)
	rng := testRand(t)
	for name, content := range f {
		isLog := strings.HasSuffix(name, segment.LogSuffix)
		for i := range content {
			b := slices.Clone(content)
			b[i] ^= 1 << rng.IntN(8)
			msg := fmt.Sprintf("%s, byte %d: %08b for %08b", name, i, b[i], content[i])
			l, err := Open(context.Background(), testDir, testConfig(f.disk(t, name, b)))
			require.NoError(t, err, msg)
			require.Equal(t, o.bounds(), l.Bounds(), msg) // Close has said how far all is durable
			bad := countBad(t, l, o, msg)
			if isLog && i < segment.HeaderSize {
				require.Zero(t, bad, msg)
				require.Equal(t, []string{name}, l.Recovery().MendedHeaders, msg)
			} else if isLog {
				require.NotZero(t, bad, msg)
				require.LessOrEqual(t, bad, 9, msg) // as many as fit between two slots
			} else {
				require.Zero(t, bad, msg)
			}
			require.NoError(t, l.Close())
		}
	}
}

// countBad reads by number and by offset and returns how many entries are damaged.
func countBad(t *testing.T, l *Log, o oracle, msg string) int {
	bad := 0
	for n := o.first; n < o.next(); n++ {
		want := o.entry(n)
		e, err := l.ReadEntry(n)
		if err == nil && !sameEntry(e, want) {
			require.Fail(t, "wrong entry", "%s: %+v for %+v", msg, e, want)
		}
		if err == nil {
			batches, err := l.Read(want.Offset, o.offset(o.next()), 1)
			if err == nil && want.Kind == segment.KindBatch {
				require.Equal(t, want.Data, []byte(batches[0]), msg)
			}
			continue
		}
		bad++
		corrupt := (*CorruptError)(nil)
		require.True(t, errors.As(err, &corrupt), "%s: entry %d: %v", msg, n, err)
		require.LessOrEqual(t, corrupt.From, want.Offset, msg)
		require.GreaterOrEqual(t, corrupt.To, want.Next(), msg)
		if want.Kind == segment.KindBatch {
			_, err = l.Read(want.Offset, o.offset(o.next()), 1)
			require.ErrorIs(t, err, record.ErrCorrupt, msg)
		}
	}
	return bad
}

func sameEntry(a, b segment.Entry) bool {
	return a.Number == b.Number && a.Term == b.Term && a.Kind == b.Kind && a.Offset == b.Offset && string(a.Data) == string(b.Data)
}

// TestDamageBelowWhatWasSyncedIsAHole damages an entry of a log that was not
// closed: a later entry proves that it was on disk, so it is not a torn write.
func TestDamageBelowWhatWasSyncedIsAHole(t *testing.T) {
	disk := vfs.NewMem()
	cfg := testConfig(disk)
	cfg.SegmentBytes = 1 << 20
	l := open(t, cfg)
	rng := testRand(t)
	o := newOracle()
	for range 10 {
		e := o.make(t, rng, 1)
		require.NoError(t, l.Append(e))
		o = o.with(e...)
	}
	x := l.view.Load().active
	good, err := x.seg.Before(x.ext, 5)
	require.NoError(t, err)
	f := readFiles(t, disk)
	require.NoError(t, l.Close())
	name := path.Base(x.seg.File())
	b := slices.Clone(f[name])
	b[good.Size+12] ^= 4

	damaged := f.disk(t, name, b)
	cfg.FS = damaged
	for range 2 { // a second time gives the same
		l = open(t, cfg)
		require.Len(t, l.Recovery().Damage, 1)
		corrupt := l.Recovery().Damage[0]
		require.Equal(t, x.seg.File(), corrupt.File)
		require.Equal(t, good.Size, corrupt.Position)
		require.Equal(t, o.offset(5), corrupt.From)
		require.Equal(t, o.offset(6), corrupt.To)
		require.Equal(t, [2]record.EntryNumber{5, 6}, [2]record.EntryNumber{corrupt.FirstEntry, corrupt.NextEntry})
		require.Equal(t, b, readFiles(t, damaged)[name], "the file was changed")
		require.Equal(t, o.bounds(), l.Bounds())
		require.Equal(t, 1, countBad(t, l, o, "hole"))
		damaged = f.disk(t, name, b)
		cfg.FS = damaged
	}
	l = open(t, cfg)

	// What is appended goes on behind it, and the hole is filled from elsewhere.
	e := o.make(t, rng, 3)
	require.NoError(t, l.Append(e))
	o = o.with(e...)
	require.Equal(t, 1, countBad(t, l, o, "hole"))
	require.ErrorIs(t, l.Fill([]segment.Entry{o.entry(6)}), record.ErrCorrupt, "the hole begins below")
	wrong := o.entry(5)
	wrong.Kind, wrong.Data = segment.KindConfiguration, append(slices.Clone(wrong.Data), 0)
	require.ErrorIs(t, l.Fill([]segment.Entry{wrong}), record.ErrInvalid)
	require.Equal(t, 1, countBad(t, l, o, "hole"))
	require.NoError(t, l.Fill([]segment.Entry{o.entry(5)}))
	require.Zero(t, countBad(t, l, o, "filled"))
	require.NoError(t, l.Verify(t.Context(), nil))
	require.NoError(t, l.Close())
	l = open(t, cfg)
	require.Empty(t, l.Recovery().Damage)
	require.Zero(t, countBad(t, l, o, "filled"))
	require.NoError(t, l.Close())
}

func TestATornOrZeroTailIsCutOffBeforeTheFirstAppend(t *testing.T) {
	rng := testRand(t)
	o := newOracle()
	disk := vfs.NewMem()
	cfg := testConfig(disk)
	cfg.SegmentBytes = 1 << 20
	l := open(t, cfg)
	entries := o.make(t, rng, 10)
	require.NoError(t, l.Append(entries))
	o = o.with(entries...)
	f := readFiles(t, disk)
	require.NoError(t, l.Close())
	const name = "00000000000000000000.log"
	noise := make([]byte, 5000)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	for _, c := range []struct {
		name string
		tail []byte
	}{
		{"nothing", nil},
		{"one byte", []byte{1}},
		{"zeros", make([]byte, 10000)},
		{"noise", noise},
		{"a copy of the beginning", f[name]},
		{"half an entry", f[name][64:120]},
	} {
		cfg.FS = f.disk(t, name, slices.Concat(f[name], c.tail))
		l := open(t, cfg)
		require.EqualValues(t, len(c.tail), l.Recovery().CutBytes, c.name)
		require.Equal(t, f[name], readFiles(t, cfg.FS)[name], c.name)
		more := o.make(t, rng, 3)
		require.NoError(t, l.Append(more), c.name)
		requireSame(t, l, o.with(more...), c.name)
		require.NoError(t, l.Close())
	}
	for cut := segment.HeaderSize; cut < len(f[name]); cut++ {
		cfg.FS = f.disk(t, name, f[name][:cut])
		l := open(t, cfg)
		requireSame(t, l, o.cut(l.Bounds().Next), fmt.Sprintf("cut at %d", cut))
		require.NoError(t, l.Close())
	}
}

// TestAnswersAreTheSameWhateverAnIndexHolds replaces each index by rubbish.
func TestAnswersAreTheSameWhateverAnIndexHolds(t *testing.T) {
	o, f := smallLog(t)
	rng := testRand(t)
	for name, content := range f {
		if !strings.HasSuffix(name, segment.IndexSuffix) {
			continue
		}
		noise := make([]byte, len(content))
		for i := range noise {
			noise[i] = byte(rng.Uint32())
		}
		variants := map[string][]byte{
			"missing": nil, "empty": {}, "zero": make([]byte, len(content)), "noise": noise,
			"longer": append(slices.Clone(content), 0), "doubled": slices.Concat(content, content),
		}
		for other, b := range f {
			variants["that is "+other] = b
		}
		delete(variants, "that is "+name)
		for cut := range content {
			variants[fmt.Sprintf("cut at %d", cut)] = content[:cut]
		}
		for what, b := range variants {
			disk := f.disk(t, name, b)
			l := open(t, testConfig(disk))
			requireSame(t, l, o, name+" "+what)
			active := name == path.Base(l.view.Load().active.seg.Name(""))+segment.IndexSuffix
			if !active || b != nil {
				require.Equal(t, []string{name}, l.Recovery().RebuiltIndexes, what)
			}
			require.NoError(t, l.Close())
			require.Equal(t, content, readFiles(t, disk)[name], "%s was %s and is not as before", name, what)
			l = open(t, testConfig(disk))
			require.Zero(t, l.Recovery().ScannedBytes, "nothing is scanned after a clean close")
			require.NoError(t, l.Close())
		}
	}
}

func TestLeftoversAreRemovedAndOtherFilesAreNot(t *testing.T) {
	o, f := smallLog(t)
	f["checkpoint"] = []byte("of somebody else")
	f["00000000000000000077.index"] = []byte("its log was trimmed")
	f["00000000000000000000.index.tmp"] = []byte("never renamed")
	f["reset.tmp"] = []byte("never renamed")
	f["00000000000000009999.log"] = []byte("QLOG") // a roll that did not get far
	cfg := testConfig(f.disk(t, "", nil))
	l := open(t, cfg)
	requireSame(t, l, o, "with leftovers")
	require.Len(t, l.Recovery().Removed, 4)
	after := readFiles(t, cfg.FS)
	require.Contains(t, after, "checkpoint")
	require.Len(t, after, len(f)-4)
	require.NoError(t, l.Close())
}

// TestAMissingOrUnreadableSegmentIsAHole removes each segment file in turn, or
// makes its header noise. The log opens, what is elsewhere is there, and the hole is
// filled with what another replica has.
func TestAMissingOrUnreadableSegmentIsAHole(t *testing.T) {
	o, f := smallLog(t)
	rng := testRand(t)
	var logs []string
	for name := range f {
		if strings.HasSuffix(name, segment.LogSuffix) {
			logs = append(logs, name)
		}
	}
	slices.Sort(logs)
	for i, name := range logs {
		for _, what := range []string{"missing", "noise", "empty", "short"} {
			msg := name + " " + what
			var b []byte
			switch what {
			case "noise":
				b = slices.Clone(f[name])
				for k := range 60 {
					b[k] = byte(rng.Uint32())
				}
			case "empty":
				b = []byte{}
			case "short":
				b = f[name][:len(f[name])-10-rng.IntN(len(f[name])/2)]
			}
			last := i == len(logs)-1
			if last && (what == "missing" || what == "empty") || i == 0 && what == "missing" {
				continue // which looks like a trim, or a crash in a roll
			}
			disk := f.disk(t, name, b)
			l := open(t, testConfig(disk))
			require.NotEmpty(t, l.Recovery().Damage, msg)
			if what == "noise" || what == "empty" {
				require.Equal(t, []string{name + ".damaged"}, l.Recovery().SetAside, msg)
				kept, err := disk.ReadFile(path.Join(testDir, name+".damaged"))
				require.NoError(t, err)
				require.Equal(t, b, kept, msg)
			}
			from, to := l.Bounds().Next, l.Bounds().Next
			for _, c := range l.Recovery().Damage {
				if c.NextEntry > c.FirstEntry {
					from, to = c.FirstEntry, c.NextEntry
				}
			}
			if i > 0 { // of the first segment nobody knows how many entries it had
				require.Equal(t, last && what == "noise", from == to, msg)
			}
			for n := l.Bounds().First; n < l.Bounds().Next; n++ {
				e, err := l.ReadEntry(n)
				if n >= from && n < to {
					require.ErrorIs(t, err, record.ErrCorrupt, "%s: entry %d", msg, n)
					continue
				}
				require.NoError(t, err, "%s: entry %d", msg, n)
				require.True(t, sameEntry(e, o.entry(n)), "%s: entry %d", msg, n)
			}
			if !last || what == "short" {
				require.Equal(t, o.bounds().End, l.Bounds().End, msg)
				require.Equal(t, o.bounds().Start, l.Bounds().Start, msg)
			}
			if from < to && i > 0 {
				if o.offset(from) < o.offset(to) {
					_, err := l.Read(o.offset(from), l.Bounds().End, 1<<20)
					require.ErrorIs(t, err, record.ErrCorrupt, msg)
				}
				mid := from + (to-from)/2
				require.NoError(t, l.Fill(o.entries[from-o.first:mid-o.first]), msg)
				require.NoError(t, l.Fill(o.entries[mid-o.first:to-o.first]), msg)
				require.Zero(t, countBad(t, l, o, msg))
				require.NoError(t, l.Close())
				l = open(t, testConfig(disk))
				require.Empty(t, l.Recovery().Damage, msg)
				require.Zero(t, countBad(t, l, o, msg))
			}
			require.NoError(t, l.Append([]segment.Entry{{Number: l.Bounds().Next, Term: l.Bounds().LastTerm + 1, Kind: segment.KindNoop, Offset: l.Bounds().End}}), msg)
			require.NoError(t, l.Close())
		}
	}
}

// TestATrimmedLogWithoutAnyHeaderDoesNotBeginAgain: its only file tells nothing
// but the offset that it is named after, which is given out only once.
func TestATrimmedLogWithoutAnyHeaderDoesNotBeginAgain(t *testing.T) {
	name := fmt.Sprintf("%020d", 184) + segment.LogSuffix
	disk := files{name: nil}.disk(t, name, []byte{})
	for range 2 {
		l := open(t, testConfig(disk))
		require.Equal(t, record.Offset(184), l.Bounds().End)
		require.Equal(t, []string{name + damagedSuffix}, l.Recovery().SetAside)
		require.NoError(t, l.Close())
	}
}

func TestForeignAndNewerFilesAreRefused(t *testing.T) {
	_, f := smallLog(t)
	cfg := testConfig(f.disk(t, "", nil))
	cfg.Partition++
	_, err := Open(context.Background(), testDir, cfg)
	require.ErrorIs(t, err, record.ErrInvalid)
	require.ErrorContains(t, err, "belongs to partition 7")
	require.NotErrorIs(t, err, fs.ErrNotExist)
}
