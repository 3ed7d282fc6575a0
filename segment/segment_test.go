package segment

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
)

var update = flag.Bool("update", false, "write the golden files: only for a new version of a format")

const dir = "orders-0"

func testHeader() Header {
	return Header{TopicID: record.TopicID{0xa, 0xb, 0xc}, Partition: 3, BaseOffset: 1000, BaseEntry: 50, PrevTerm: 6}
}

func create(t testing.TB, fsys vfs.FS, h Header) *Segment {
	t.Helper()
	require.NoError(t, fsys.MkdirAll(dir))
	s, err := Create(fsys, dir, h, 100)
	require.NoError(t, err)
	return s
}

func batchEntry(t testing.TB, n record.EntryNumber, term uint64, offset record.Offset, values ...string) Entry {
	var b record.Builder
	for i, v := range values {
		require.NoError(t, b.Append(&record.Record{Time: time.UnixMilli(1_700_000_000_000 + int64(i)), Value: []byte(v)}))
	}
	built, err := b.Build(record.BatchOptions{})
	require.NoError(t, err)
	built.Stamp(offset, record.LeaderEpoch(term))
	return Entry{Number: n, Term: term, Kind: KindBatch, Offset: offset, Data: built}
}

func testEntries(t testing.TB) []Entry {
	return []Entry{
		{Number: 50, Term: 7, Kind: KindNoop, Offset: 1000, Data: []byte{}},
		batchEntry(t, 51, 7, 1000, "one", "two"),
		{Number: 52, Term: 7, Kind: KindConfiguration, Offset: 1002, Data: []byte("a, b, c")},
		batchEntry(t, 53, 8, 1002, "three"),
		{Number: 54, Term: 8, Kind: KindBarrier, Offset: 1003, Data: []byte{}},
		batchEntry(t, 55, 9, 1003, "four", "five", "six"),
	}
}

// fill writes the test entries in two appends, between which there is a sync.
func fill(t testing.TB, s *Segment) Extent {
	var w Writer
	entries := testEntries(t)
	x, err := s.Append(&w, s.Empty(), entries[:4], 50)
	require.NoError(t, err)
	require.NoError(t, s.Sync())
	x, err = s.Append(&w, x, entries[4:], 54)
	require.NoError(t, err)
	require.NoError(t, s.Sync())
	return x
}

func TestTheFormatIsTheGoldenOne(t *testing.T) {
	disk := vfs.NewMem()
	s := create(t, disk, testHeader())
	x := fill(t, s)
	require.Equal(t, dir+"/00000000000000001000.log", s.File())
	b, err := disk.ReadFile(s.File())
	require.NoError(t, err)
	const golden = "testdata/v1.log"
	if *update {
		require.NoError(t, os.WriteFile(golden, b, 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, want, b, "the format has changed: give it a new version, or, before the first release, use -update")

	// And the other way: a reader of today reads the golden file.
	other := vfs.NewMem()
	writeFile(t, other, path.Base(s.File()), want)
	s, err = Open(other, dir, path.Base(s.File()), 100)
	require.NoError(t, err)
	require.Equal(t, testHeader(), s.Header)
	y, reason, err := s.Scan(context.Background(), s.Empty(), int64(len(want)))
	require.NoError(t, err)
	require.Empty(t, reason)
	require.Equal(t, x, y)
	for _, e := range testEntries(t) {
		at, err := s.FindEntry(y, e.Number)
		require.NoError(t, err)
		got, _, err := s.ReadEntry(y, at)
		require.NoError(t, err)
		require.Equal(t, e, got)
	}
}

func writeFile(t testing.TB, fsys vfs.FS, name string, b []byte) {
	t.Helper()
	require.NoError(t, fsys.MkdirAll(dir))
	f, err := fsys.Create(path.Join(dir, name))
	require.NoError(t, err)
	_, err = f.WriteAt(b, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestReadReturnsWholeBatchesBelowTheBound(t *testing.T) {
	s := create(t, vfs.NewMem(), testHeader())
	x := fill(t, s)
	for _, c := range []struct {
		from, bound record.Offset
		max         int
		want        []record.Offset // base offsets
	}{
		{1000, 1006, 1 << 20, []record.Offset{1000, 1002, 1003}},
		{1001, 1006, 1 << 20, []record.Offset{1000, 1002, 1003}}, // the batch that holds it
		{1002, 1006, 1 << 20, []record.Offset{1002, 1003}},
		{1005, 1006, 1 << 20, []record.Offset{1003}},
		{1000, 1005, 1 << 20, []record.Offset{1000, 1002}}, // not half a batch
		{1000, 1002, 1 << 20, []record.Offset{1000}},
		{1000, 1001, 1 << 20, nil},
		{1003, 1005, 1 << 20, nil},
		{1005, 1006, 0, []record.Offset{1003}}, // one at least
		{1005, 1006, -1, []record.Offset{1003}},
		{1000, 1 << 60, math.MaxInt, []record.Offset{1000, 1002, 1003}},
	} {
		at, err := s.FindOffset(x, c.from)
		require.NoError(t, err)
		batches, _, err := s.Read(x, at, c.from, c.bound, c.max)
		require.NoError(t, err)
		var got []record.Offset
		for _, b := range batches {
			got = append(got, b.BaseOffset())
		}
		require.Equal(t, c.want, got, "%+v", c)
	}
	_, err := s.FindOffset(x, 1006)
	require.ErrorIs(t, err, record.ErrOffsetOutOfRange)
	_, err = s.FindOffset(s.Empty(), 1000)
	require.ErrorIs(t, err, record.ErrOffsetOutOfRange)
	_, err = s.FindEntry(x, 56)
	require.Error(t, err)
}

func TestOneBatchLargerThanAnyBufferIsRead(t *testing.T) {
	s := create(t, vfs.NewMem(), testHeader())
	var w Writer
	entries := []Entry{
		batchEntry(t, 50, 7, 1000, string(make([]byte, 3<<20))),
		batchEntry(t, 51, 7, 1001, string(make([]byte, 3<<20))),
	}
	x, err := s.Append(&w, s.Empty(), entries, 50)
	require.NoError(t, err)
	for i, from := range []record.Offset{1000, 1001} {
		at, err := s.FindOffset(x, from)
		require.NoError(t, err)
		batches, next, err := s.Read(x, at, from, 1002, 1)
		require.NoError(t, err)
		require.Len(t, batches, 1)
		require.True(t, bytes.Equal(entries[i].Data, batches[0]))
		require.Equal(t, from+1, next.Offset)
	}
	y, reason, err := s.Scan(context.Background(), s.Empty(), x.Size)
	require.NoError(t, err)
	require.Empty(t, reason)
	require.Equal(t, x, y)
}

func TestBeforeIsTheExtentThatWasThere(t *testing.T) {
	s := create(t, vfs.NewMem(), testHeader())
	var w Writer
	extents := []Extent{s.Empty()}
	for _, e := range testEntries(t) {
		x, err := s.Append(&w, extents[len(extents)-1], []Entry{e}, 50)
		require.NoError(t, err)
		extents = append(extents, x)
	}
	last := extents[len(extents)-1]
	for i, want := range extents {
		got, err := s.Before(last, 50+record.EntryNumber(i))
		require.NoError(t, err)
		require.Equal(t, want.Size, got.Size)
		require.Equal(t, want.NextOffset, got.NextOffset)
		require.Equal(t, want.NextEntry, got.NextEntry)
		require.Equal(t, want.LastTerm, got.LastTerm)
		require.Equal(t, want.Index.Len(), got.Index.Len())
	}
}

func TestAnEntryFarFromTheBaseIsRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		x    func(*Extent)
	}{
		{"offset", func(x *Extent) { x.NextOffset += 1 << 32 }},
		{"number", func(x *Extent) { x.NextEntry += 1 << 32 }},
		{"position", func(x *Extent) { x.Size = 1 << 32 }},
	} {
		s := create(t, vfs.NewMem(), testHeader())
		x := s.Empty()
		c.x(&x)
		var w Writer
		e := batchEntry(t, x.NextEntry, 9, x.NextOffset, "a")
		y, err := s.Append(&w, x, []Entry{e}, 50)
		require.ErrorIs(t, err, ErrFull, c.name)
		require.Equal(t, x, y)
	}
}

func TestCheckRefusesWhatCouldNotBeReadBack(t *testing.T) {
	good := batchEntry(t, 50, 7, 1000, "one")
	require.NoError(t, good.Check())
	for _, c := range []struct {
		name  string
		spoil func(e *Entry)
		class error
	}{
		{"kind 0", func(e *Entry) { e.Kind = 0 }, record.ErrInvalid},
		{"unknown kind", func(e *Entry) { e.Kind = 200 }, record.ErrInvalid},
		{"number 0", func(e *Entry) { e.Number = 0 }, record.ErrInvalid},
		{"negative offset", func(e *Entry) { e.Offset = -1 }, record.ErrInvalid},
		{"other offset than the batch", func(e *Entry) { e.Offset++ }, record.ErrInvalid},
		{"other term than the batch", func(e *Entry) { e.Term++ }, record.ErrInvalid},
		{"term beyond an epoch", func(e *Entry) { e.Term += 1 << 32 }, record.ErrInvalid},
		{"no batch", func(e *Entry) { e.Data = nil }, record.ErrCorrupt},
		{"cut batch", func(e *Entry) { e.Data = e.Data[:len(e.Data)-1] }, record.ErrCorrupt},
		{"flipped bit", func(e *Entry) { e.Data[len(e.Data)-1] ^= 1 }, record.ErrCorrupt},
		{"too large", func(e *Entry) { e.Kind, e.Data = KindConfiguration, make([]byte, MaxPayload+1) }, record.ErrTooLarge},
	} {
		e := good
		e.Data = bytes.Clone(good.Data)
		c.spoil(&e)
		require.ErrorIs(t, e.Check(), c.class, c.name)
	}
}

func TestOpenTellsUnfinishedDamagedAndNewerFilesApart(t *testing.T) {
	good := testHeader().Encode()
	newer := bytes.Clone(good)
	newer[11] = 2
	be.PutUint32(newer[12:], crcOf(newer[:12]))
	flipped := bytes.Clone(good)
	flipped[40] ^= 1
	for _, c := range []struct {
		name string
		b    []byte
		want error
	}{
		{"empty", nil, ErrNoHeader},
		{"half a header", good[:40], ErrNoHeader},
		{"zeros", make([]byte, HeaderSize), ErrNoHeader},
		{"zeros and more", make([]byte, HeaderSize+1), record.ErrCorrupt},
		{"flipped bit", flipped, record.ErrCorrupt},
		{"another file", bytes.Repeat([]byte("text"), 100), record.ErrCorrupt},
		{"newer version", newer, ErrVersion},
		{"newer version with a shorter header", newer[:20], ErrVersion},
		{"good", good, nil},
	} {
		disk := vfs.NewMem()
		writeFile(t, disk, "00000000000000001000.log", c.b)
		s, err := Open(disk, dir, "00000000000000001000.log", 100)
		require.ErrorIs(t, err, c.want, c.name)
		if c.want == nil {
			require.NoError(t, s.Release())
		} else {
			require.ErrorContains(t, err, "00000000000000001000.log", c.name)
		}
	}
	disk := vfs.NewMem()
	writeFile(t, disk, "00000000000000001001.log", good)
	_, err := Open(disk, dir, "00000000000000001001.log", 100)
	require.ErrorIs(t, err, record.ErrCorrupt)
	require.ErrorContains(t, err, "another file name")
	_, err = Open(disk, dir, "00000000000000001002.log", 100)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestEntriesOfAnotherSegmentAreNone copies the entries of a segment into one with another header.
func TestEntriesOfAnotherSegmentAreNone(t *testing.T) {
	disk := vfs.NewMem()
	s := create(t, disk, testHeader())
	x := fill(t, s)
	b, err := disk.ReadFile(s.File())
	require.NoError(t, err)
	h := testHeader()
	h.Partition++
	other := vfs.NewMem()
	writeFile(t, other, path.Base(s.File()), append(h.Encode(), b[HeaderSize:]...))
	s, err = Open(other, dir, path.Base(s.File()), 100)
	require.NoError(t, err)
	y, reason, err := s.Scan(context.Background(), s.Empty(), x.Size)
	require.NoError(t, err)
	require.Equal(t, "there is no entry", reason)
	require.Equal(t, s.Empty(), y)
}

// TestDamageIsToldFromATornWrite spoils one entry. Entries 50 to 53 were synced
// before 54 and 55 were written, which were one write.
func TestDamageIsToldFromATornWrite(t *testing.T) {
	disk := vfs.NewMem()
	s := create(t, disk, testHeader())
	x := fill(t, s)
	good, err := disk.ReadFile(s.File())
	require.NoError(t, err)
	for n := record.EntryNumber(50); n < 56; n++ {
		at, err := s.FindEntry(x, n)
		require.NoError(t, err)
		for what, spoil := range map[string]func(b []byte){
			"header flipped": func(b []byte) { b[at.Position+9] ^= 1 },
			"header zero":    func(b []byte) { clear(b[at.Position:][:frameSize]) },
		} {
			b := bytes.Clone(good)
			spoil(b)
			other := vfs.NewMem()
			writeFile(t, other, path.Base(s.File()), b)
			s, err := Open(other, dir, path.Base(s.File()), 100)
			require.NoError(t, err)
			y, reason, err := s.Scan(context.Background(), s.Empty(), x.Size)
			require.NoError(t, err)
			require.NotEmpty(t, reason)
			require.Equal(t, n, y.NextEntry)
			later, damaged, err := s.Damaged(context.Background(), y, x.Size)
			require.NoError(t, err)
			require.Equal(t, n < 54, damaged, "entry %d: %s", n, what)
			if damaged {
				require.Equal(t, max(n+1, 54), later.Entry, "the first that proves it")
			}
		}
	}
}

func TestAScanEndsWithItsContext(t *testing.T) {
	s := create(t, vfs.NewMem(), testHeader())
	x := fill(t, s)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _, err := s.Scan(ctx, s.Empty(), x.Size)
	require.ErrorIs(t, err, context.Canceled)
	_, _, err = s.Damaged(ctx, s.Empty(), x.Size)
	require.ErrorIs(t, err, context.Canceled)
}

func TestAppendAllocatesNothingPerEntry(t *testing.T) {
	s := create(t, vfs.NewMem(), testHeader())
	var w Writer
	entries := make([]Entry, 100)
	for i := range entries {
		entries[i] = batchEntry(t, 50+record.EntryNumber(i), 7, 1000+record.Offset(i), "value")
	}
	allocs := testing.AllocsPerRun(20, func() {
		_, err := s.Append(&w, s.Empty(), entries, 50)
		require.NoError(t, err)
	})
	require.Less(t, allocs, 15.0, fmt.Sprintf("for %d entries", len(entries))) // the index grows
}
