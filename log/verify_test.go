package log

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/index"
	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

// patch changes bytes of a file below an open log and returns what takes it back.
func patch(t testing.TB, fsys vfs.FS, name string, pos int64, b []byte) (undo func()) {
	t.Helper()
	f, err := fsys.Open(path.Join(testDir, name))
	require.NoError(t, err)
	old := make([]byte, len(b))
	_, err = f.ReadAt(old, pos)
	require.NoError(t, err)
	_, err = f.WriteAt(b, pos)
	require.NoError(t, err)
	return func() {
		_, err := f.WriteAt(old, pos)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
}

// findings returns what Verify finds.
func findings(t testing.TB, l *Log) []*CorruptError {
	t.Helper()
	err := l.Verify(t.Context(), nil)
	if err == nil {
		return nil
	}
	require.ErrorIs(t, err, record.ErrCorrupt)
	var all []*CorruptError
	flatten(err, &all)
	return all
}

func flatten(err error, all *[]*CorruptError) {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range many.Unwrap() {
			flatten(err, all)
		}
	} else if c := (*CorruptError)(nil); errors.As(err, &c) {
		*all = append(*all, c)
	}
}

// entryPlaces returns where each entry of a segment file of the log begins.
func entryPlaces(t testing.TB, l *Log, o oracle, name string) map[int64]segment.Entry {
	t.Helper()
	for p := range l.view.Load().parts {
		if path.Base(p.seg.File()) != name {
			continue
		}
		at := make(map[int64]segment.Entry)
		pos := int64(segment.HeaderSize)
		for n := p.seg.BaseEntry; n < p.ext.NextEntry; n++ {
			e := o.entry(n)
			at[pos] = e
			pos += e.Size()
		}
		require.Equal(t, p.ext.Size, pos)
		return at
	}
	require.Fail(t, "no such segment", name)
	return nil
}

// TestEachFlippedBitIsFoundAndHurtsOnlyItsEntry flips every bit of the files of
// an open log, one at a time. Verify says where it is, and nothing else; reads
// of the entry say so, all others return what was written.
func TestEachFlippedBitIsFoundAndHurtsOnlyItsEntry(t *testing.T) {
	t.Parallel() // it takes the longest
	o, f := tinyLog(t)
	disk := f.disk(t, "", nil)
	l := open(t, testConfig(disk))
	require.Empty(t, findings(t, l))
	for name, content := range f {
		var places map[int64]segment.Entry
		if strings.HasSuffix(name, segment.LogSuffix) {
			places = entryPlaces(t, l, o, name)
		}
		begin, e := int64(0), segment.Entry{} // the entry around the byte, if any
		for i := range content {
			if at, ok := places[int64(i)]; ok {
				begin, e = int64(i), at
			}
			for bit := range 8 {
				undo := patch(t, disk, name, int64(i), []byte{content[i] ^ 1<<bit})
				msg := fmt.Sprintf("%s, bit %d of byte %d", name, bit, i)
				found := findings(t, l)
				require.Len(t, found, 1, msg)
				require.Equal(t, path.Join(testDir, name), found[0].File, msg)
				require.Equal(t, begin, found[0].Position, msg)
				if e.Number > 0 {
					require.Equal(t, []record.Offset{e.Offset, e.Next()}, []record.Offset{found[0].From, found[0].To}, msg)
				}
				requireOnlyDamaged(t, l, o, e.Number, msg)
				undo()
			}
		}
	}
	require.Empty(t, findings(t, l))
	requireSame(t, l, o, "all taken back")
	require.NoError(t, l.Close())
	require.Equal(t, f, readFiles(t, disk))
}

// tinyLog writes a log of two sealed segments and an active one with a few small
// entries each, and closes it.
func tinyLog(t testing.TB) (oracle, files) {
	cfg := testConfig(vfs.NewMem())
	l := open(t, cfg)
	rng := testRand(t)
	o := newOracle()
	for len(l.view.Load().sealed) < 2 || l.Bounds().Next < l.view.Load().active.seg.BaseEntry+4 {
		e := o.make(t, rng, 1)
		if e[0].Size() > 300 {
			continue
		}
		require.NoError(t, l.Append(e))
		o = o.with(e...)
	}
	require.NoError(t, l.Close())
	return o, readFiles(t, cfg.FS)
}

// requireOnlyDamaged reads all, with and without an index, one by one and many
// at a time. Only entry bad, 0 for none, may be wrong, and must say so.
func requireOnlyDamaged(t testing.TB, l *Log, o oracle, bad record.EntryNumber, msg string) {
	t.Helper()
	end := o.offset(o.next())
	at := record.NoOffset // of the damaged batch
	for n := o.first; n < o.next(); n++ {
		want := o.entry(n)
		l.places = places{} // find it anew
		e, err := l.ReadEntry(n)
		switch {
		case n == bad:
			requireDamage(t, err, want, msg)
		case err != nil || !sameEntry(want, e): // require.Equal would take most of the time
			require.Fail(t, "wrong", "%s: entry %d: %v", msg, n, err)
		}
		if want.Kind != segment.KindBatch {
			continue
		}
		l.places = places{}
		batches, err := l.Read(want.Offset, end, 1)
		switch {
		case n == bad:
			at = want.Offset
			requireDamage(t, err, want, msg)
		case err != nil || !bytes.Equal(want.Data, batches[0]):
			require.Fail(t, "wrong", "%s: offset %d: %v", msg, want.Offset, err)
		}
	}
	for from := o.offset(o.first); from < end; {
		batches, err := l.Read(from, end, 1000)
		if err != nil {
			c := (*CorruptError)(nil)
			require.ErrorAs(t, err, &c, msg)
			if bad > 0 && o.entry(bad).Kind != segment.KindBatch { // it holds no offset, but lies in between
				return
			}
			require.Equal(t, at, from, msg)
			from = c.To
			continue
		}
		require.NotEmpty(t, batches, msg)
		from = batches[len(batches)-1].NextOffset()
	}
}

func requireDamage(t testing.TB, err error, e segment.Entry, msg string) {
	t.Helper()
	c := (*CorruptError)(nil)
	require.ErrorAs(t, err, &c, "%s: entry %d", msg, e.Number)
	require.LessOrEqual(t, c.From, e.Offset, msg)
	require.GreaterOrEqual(t, c.To, e.Next(), msg)
}

// TestOpenLosesNothingOfADamagedLog flips every bit of a closed log. It opens, no
// entry is lost, and of the segment files nothing is changed but a damaged header,
// which is as it was then.
func TestOpenLosesNothingOfADamagedLog(t *testing.T) {
	o, f := tinyLog(t)
	for name, content := range f {
		for i := range content {
			b := slices.Clone(content)
			b[i] ^= 1 << (i % 8)
			disk := f.disk(t, name, b)
			msg := fmt.Sprintf("%s, byte %d", name, i)
			l := open(t, testConfig(disk))
			require.Equal(t, o.bounds(), l.Bounds(), msg)
			want := b
			if isLog := strings.HasSuffix(name, segment.LogSuffix); isLog && i < segment.HeaderSize {
				want = content
				require.Empty(t, findings(t, l), msg)
			} else if isLog {
				require.Len(t, findings(t, l), 1, msg)
			}
			require.NoError(t, l.Close())
			for other, now := range readFiles(t, disk) {
				switch {
				case !strings.HasSuffix(other, segment.LogSuffix):
				case other == name:
					require.Equal(t, want, now, msg)
				default:
					require.Equal(t, f[other], now, msg)
				}
			}
		}
	}
}

// TestVerifyFindsAllThatIsWrong does much to one log at once.
func TestVerifyFindsAllThatIsWrong(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	cfg.SegmentBytes = 16 << 10
	rng := testRand(t)
	o := newOracle()
	l := open(t, cfg)
	for len(l.view.Load().sealed) < 3 {
		e := o.make(t, rng, 5)
		require.NoError(t, l.Append(e))
		o = o.with(e...)
	}
	v := l.view.Load()
	var want []string
	hurt := func(p part, n record.EntryNumber, by int64) {
		x, err := p.seg.Before(p.ext, n)
		require.NoError(t, err)
		patch(t, cfg.FS, path.Base(p.seg.File()), x.Size+by, []byte{0xA5, 0x5A, 0xA5})
		e := o.entry(n)
		want = append(want, fmt.Sprintf("%s %d [%d,%d)", p.seg.File(), x.Size, e.Offset, e.Next()))
	}
	first := v.sealed[0]
	hurt(first, first.seg.BaseEntry, 8)
	hurt(first, first.seg.BaseEntry+4, 20)
	hurt(first, first.ext.NextEntry-1, 30)
	// The next segment is left alone, but for its end.
	p := v.sealed[1]
	f, err := cfg.FS.Open(p.seg.File())
	require.NoError(t, err)
	_, err = f.WriteAt(make([]byte, 100), p.ext.Size)
	require.NoError(t, err)
	want = append(want, fmt.Sprintf("%s %d [%d,%d)", p.seg.File(), p.ext.Size, p.ext.NextOffset, p.ext.NextOffset))
	// Of the third a part is gone, two entries and the header of one between.
	p = v.sealed[2]
	x, err := p.seg.Before(p.ext, p.seg.BaseEntry+2)
	require.NoError(t, err)
	y, err := p.seg.Before(p.ext, p.seg.BaseEntry+4)
	require.NoError(t, err)
	patch(t, cfg.FS, path.Base(p.seg.File()), x.Size, make([]byte, y.Size-x.Size))
	want = append(want, fmt.Sprintf("%s %d [%d,%d)", p.seg.File(), x.Size, x.NextOffset, y.NextOffset))

	var got []string
	for _, c := range findings(t, l) {
		got = append(got, fmt.Sprintf("%s %d [%d,%d)", c.File, c.Position, c.From, c.To))
	}
	require.Equal(t, want, got)
	require.NoError(t, l.Close())
}

// TestVerifyFindsAnIndexThatIsWrongUnderARightChecksum also shows that one which
// speaks of a beginning of the segment only is not wrong.
func TestVerifyFindsAnIndexThatIsWrongUnderARightChecksum(t *testing.T) {
	o, f := tinyLog(t)
	disk := f.disk(t, "", nil)
	l := open(t, testConfig(disk))
	p := l.view.Load().sealed[0]
	name := path.Base(p.seg.Name("")) + segment.IndexSuffix
	good, sum, err := index.Decode(f[name])
	require.NoError(t, err)
	at, ok := good.Behind(segment.HeaderSize)
	require.True(t, ok, "needs two slots")
	next := at
	next.Position += 3
	other := at
	other.Entry++
	early, err := p.seg.Before(p.ext, p.ext.NextEntry-1)
	require.NoError(t, err)
	some := sum
	some.Size, some.NextOffset, some.NextEntry, some.LastTerm = early.Size, early.NextOffset, early.NextEntry, early.LastTerm
	none := sum
	none.LastTerm++
	strange := sum
	strange.LogSum++
	for _, c := range []struct {
		name string
		file []byte
		bad  bool
	}{
		{"as it was", good.Encode(sum), false},
		{"of a beginning", early.Index.Encode(some), false},
		{"with fewer slots", good.Cut(at.Position).Encode(sum), false},
		{"a slot inside an entry", good.Cut(at.Position).Add(next).Encode(sum), true},
		{"a slot of another entry", good.Cut(at.Position).Add(other).Encode(sum), true},
		{"of another term", good.Encode(none), true},
		{"of another segment", good.Encode(strange), true},
		{"empty", []byte{}, true},
	} {
		require.NoError(t, vfs.WriteFile(disk, path.Join(testDir, name), c.file))
		found := findings(t, l)
		if !c.bad {
			require.Empty(t, found, c.name)
			continue
		}
		require.Len(t, found, 1, c.name)
		require.Equal(t, path.Join(testDir, name), found[0].File, c.name)
	}
	require.NoError(t, disk.Remove(path.Join(testDir, name)))
	require.Empty(t, findings(t, l), "it is derived")
	requireSame(t, l, o, "side files do not matter")
	require.NoError(t, l.Close())
}

// TestVerifyFindsATimeIndexThatIsTooLow has one whose bound leaves out a record.
func TestVerifyFindsATimeIndexThatIsTooLow(t *testing.T) {
	_, f := tinyLog(t)
	disk := f.disk(t, "", nil)
	l := open(t, testConfig(disk))
	p := l.view.Load().sealed[0]
	name := path.Base(p.seg.Name("")) + segment.TimeIndexSuffix
	good, sum, err := index.DecodeTimes(f[name])
	require.NoError(t, err)
	require.NoError(t, vfs.WriteFile(disk, path.Join(testDir, name), good.Raise(good.Latest()+1).Encode(sum)))
	require.Empty(t, findings(t, l), "too high costs time only")
	low := index.NewTimes(p.seg.BaseOffset).Raise(good.Latest() - 1)
	require.NoError(t, vfs.WriteFile(disk, path.Join(testDir, name), low.Encode(sum)))
	found := findings(t, l)
	require.Len(t, found, 1)
	require.Equal(t, path.Join(testDir, name), found[0].File)
	require.NoError(t, l.Close())
}

func TestVerifyTellsProgressAndEndsWithItsContext(t *testing.T) {
	o, f := smallLog(t)
	disk := f.disk(t, "", nil)
	l := open(t, testConfig(disk))
	var last Progress
	require.NoError(t, l.Verify(t.Context(), func(p Progress) { last = p }))
	n := len(l.view.Load().sealed) + 1
	require.Equal(t, Progress{Segments: n, TotalSegments: n, Bytes: l.Size(), TotalBytes: l.Size()}, last)

	patch(t, disk, path.Base(l.view.Load().sealed[0].seg.File()), 3, []byte{0})
	ctx, cancel := context.WithCancel(t.Context())
	reads := 0
	disk.Fail(func(op vfs.Op, name string) error {
		if op == vfs.OpRead && name == l.view.Load().sealed[2].seg.File() {
			reads++
			cancel()
		}
		return nil
	})
	err := l.Verify(ctx, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, record.ErrCorrupt, "what was found before")
	require.LessOrEqual(t, reads, 2)
	disk.Fail(nil)
	requireSame(t, l, o, "it changes nothing")
	require.NoError(t, l.Close())
	require.ErrorIs(t, l.Verify(t.Context(), nil), record.ErrClosed)
}

func TestVerifyTellsATroubledDiskFromDamageAndGoesOn(t *testing.T) {
	_, f := smallLog(t)
	disk := f.disk(t, "", nil)
	l := open(t, testConfig(disk))
	v := l.view.Load()
	patch(t, disk, path.Base(v.active.seg.File()), segment.HeaderSize+10, []byte{1, 2, 3})
	disk.Fail(func(op vfs.Op, name string) error {
		if op == vfs.OpRead && name == v.sealed[1].seg.File() {
			return syscall.EIO
		}
		return nil
	})
	err := l.Verify(t.Context(), nil)
	require.ErrorIs(t, err, syscall.EIO)
	var found []*CorruptError
	flatten(err, &found)
	require.Len(t, found, 1)
	require.Equal(t, v.active.seg.File(), found[0].File)
	disk.Fail(nil)
	require.NoError(t, l.Close())
}

// TestVerifyRacesAllWritersAndFindsNothing runs it beside appends, rolls,
// truncations, trims, resets and failing calls.
func TestVerifyRacesAllWritersAndFindsNothing(t *testing.T) {
	disk := vfs.NewMem()
	cfg := testConfig(disk)
	cfg.Flush = FlushNever
	seed := testRand(t).Uint64()
	r := newRun(t, seed, cfg)
	require.NoError(t, r.open())
	var done atomic.Bool
	var wg sync.WaitGroup
	var verified atomic.Int64
	for range 2 {
		wg.Go(func() {
			for !done.Load() {
				if err := r.l.Verify(t.Context(), nil); err != nil {
					t.Error(err)
					return
				}
				verified.Add(1)
			}
		})
	}
	rng := rand.New(rand.NewPCG(seed, 9))
	for i := 0; i < 300 || verified.Load() < 100; i++ {
		switch rng.IntN(10) {
		case 0:
			require.NoError(t, r.truncate(1+rng.IntN(12)))
		case 1:
			require.NoError(t, r.trim(r.o.offset(r.o.next())-record.Offset(rng.IntN(20))))
		case 2:
			if rng.IntN(5) == 0 {
				require.NoError(t, r.reset(r.o.next()+3, r.o.term(r.o.next()), r.o.offset(r.o.next())+7))
			}
		case 3:
			entries := r.o.make(t, rng, 9)
			disk.Fail(func(op vfs.Op, name string) error {
				if op == vfs.OpWrite {
					return &vfs.ShortWrite{N: 70, Err: vfs.ErrNoSpace}
				}
				return nil
			})
			require.ErrorIs(t, r.l.Append(entries), vfs.ErrNoSpace)
			disk.Fail(nil)
		default:
			require.NoError(t, r.append(1+rng.IntN(4)))
		}
	}
	done.Store(true)
	wg.Wait()
	require.NoError(t, r.l.Verify(t.Context(), nil))
	require.NoError(t, r.close())
}

// TestRandomDamageIsFoundAndTheRestIsRead writes noise and zeros over random
// parts of an open log, many at a time, and cuts files off.
func TestRandomDamageIsFoundAndTheRestIsRead(t *testing.T) {
	rng := testRand(t)
	for range 60 {
		cfg := testConfig(vfs.NewMem())
		cfg.IndexBytes = int64(1 + rng.IntN(2000))
		cfg.SegmentBytes = 8 << 10
		l := open(t, cfg)
		o := fill(t, l, newOracle(), 1+rng.IntN(3))
		before := readFiles(t, cfg.FS)
		for range 1 + rng.IntN(4) {
			p := l.view.Load().at(rng.IntN(len(l.view.Load().sealed) + 1))
			f, err := cfg.FS.Open(p.seg.File())
			require.NoError(t, err)
			size, err := f.Size()
			require.NoError(t, err)
			pos := rng.Int64N(size + 1)
			b := make([]byte, min(rng.Int64N(3000), size-pos))
			switch rng.IntN(4) {
			case 0:
				require.NoError(t, f.Truncate(pos))
			case 1, 2:
				for i := range b {
					b[i] = byte(rng.Uint32())
				}
				fallthrough
			default:
				_, err = f.WriteAt(b, pos)
				require.NoError(t, err)
			}
			require.NoError(t, f.Close())
		}
		after := readFiles(t, cfg.FS)
		found := findings(t, l)
		for p := range l.view.Load().parts {
			name := path.Base(p.seg.File())
			pos := int64(segment.HeaderSize)
			for n := p.seg.BaseEntry; n < p.ext.NextEntry; n++ {
				want := o.entry(n)
				end := pos + want.Size()
				l.places = places{}
				e, err := l.ReadEntry(n)
				if end <= int64(len(after[name])) && string(after[name][pos:end]) == string(before[name][pos:end]) {
					require.NoError(t, err, "%s: entry %d at %d", name, n, pos)
					require.Equal(t, want, e)
				} else {
					requireDamage(t, err, want, name)
					require.True(t, slices.ContainsFunc(found, func(c *CorruptError) bool {
						return c.File == p.seg.File() && c.Position <= pos && c.From <= want.Offset && c.To >= want.Next()
					}), "%s: entry %d at %d: %v", name, n, pos, found)
				}
				pos = end
			}
		}
		require.NoError(t, l.Close())
	}
}
