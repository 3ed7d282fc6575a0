package index

import (
	"bytes"
	"encoding/binary"
	"flag"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

var update = flag.Bool("update", false, "write the golden files: only for a new version of a format")

func sample() (Index, Summary) {
	x := New(1000, 50)
	for _, p := range []Place{{1000, 50, 64}, {1010, 53, 5000}, {1010, 54, 9500}, {1300, 60, 14000}} {
		x = x.Add(p)
	}
	return x, Summary{LogSum: 0xcafe, Size: 20000, NextOffset: 1400, NextEntry: 70, LastTerm: 9}
}

func TestLookupsFindTheSlotAtOrBelow(t *testing.T) {
	x, _ := sample()
	for _, c := range []struct {
		offset record.Offset
		at     int64 // 0: none
	}{{0, 0}, {999, 0}, {1000, 64}, {1009, 64}, {1010, 9500}, {1299, 9500}, {1300, 14000}, {math.MaxInt64, 14000}} {
		p, ok := x.Offset(c.offset)
		require.Equal(t, c.at != 0, ok, "offset %d", c.offset)
		require.Equal(t, c.at, p.Position, "offset %d", c.offset)
	}
	for _, c := range []struct {
		entry record.EntryNumber
		at    int64
	}{{0, 0}, {49, 0}, {50, 64}, {52, 64}, {53, 5000}, {54, 9500}, {59, 9500}, {60, 14000}, {math.MaxUint64, 14000}} {
		p, ok := x.Entry(c.entry)
		require.Equal(t, c.at != 0, ok, "entry %d", c.entry)
		require.Equal(t, c.at, p.Position, "entry %d", c.entry)
	}
	for _, c := range []struct {
		offset record.Offset
		at     int64
	}{{0, 64}, {1000, 5000}, {1009, 5000}, {1010, 14000}, {1300, 0}} {
		p, _ := x.Above(c.offset)
		require.Equal(t, c.at, p.Position, "above %d", c.offset)
	}
	for _, c := range []struct{ pos, at int64 }{{0, 64}, {64, 5000}, {13999, 14000}, {14000, 0}} {
		p, _ := x.Behind(c.pos)
		require.Equal(t, c.at, p.Position, "behind %d", c.pos)
	}
	_, ok := New(0, 1).Last()
	require.False(t, ok)
}

// TestLookupsAgreeWithALinearSearch compares with the slowest way.
func TestLookupsAgreeWithALinearSearch(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const base = math.MaxInt64 - math.MaxUint32 // absolute values up to the largest
	for range 200 {
		x := New(base, 7)
		var places []Place
		p := Place{Offset: base, Entry: 7, Position: 64}
		for range rng.IntN(20) {
			x, places = x.Add(p), append(places, p)
			p.Offset += record.Offset(rng.IntN(3))
			p.Entry += record.EntryNumber(1 + rng.IntN(3))
			p.Position += 40 + rng.Int64N(100)
		}
		for range 50 {
			offset, entry := base+record.Offset(rng.IntN(50)), record.EntryNumber(rng.IntN(70))
			var byOffset, byEntry Place
			for _, p := range places {
				if p.Offset <= offset {
					byOffset = p
				}
				if p.Entry <= entry {
					byEntry = p
				}
			}
			got, _ := x.Offset(offset)
			require.Equal(t, byOffset, got)
			got, _ = x.Entry(entry)
			require.Equal(t, byEntry, got)
		}
	}
}

func TestOnlyWhatFitsInto32BitsFits(t *testing.T) {
	x := New(5, 9)
	for _, c := range []struct {
		p    Place
		fits bool
	}{
		{Place{5, 9, 0}, true},
		{Place{5 + math.MaxUint32, 9 + math.MaxUint32, math.MaxUint32}, true},
		{Place{6 + math.MaxUint32, 9, 64}, false},
		{Place{5, 10 + math.MaxUint32, 64}, false},
		{Place{5, 9, 1 << 32}, false},
		{Place{4, 9, 64}, false},
		{Place{5, 8, 64}, false},
		{Place{5, 9, -1}, false},
	} {
		require.Equal(t, c.fits, x.Fits(c.p), "%+v", c.p)
	}
}

// TestAnIndexIsAValue keeps the old value while the new one is cut and added to.
func TestAnIndexIsAValue(t *testing.T) {
	x, s := sample()
	before := x.Encode(s)
	y := x.Cut(9500)
	require.Equal(t, 2, y.Len())
	y = y.Add(Place{1200, 58, 9500}).Add(Place{1201, 59, 9900})
	require.Equal(t, before, x.Encode(s))
	last, _ := y.Last()
	require.Equal(t, Place{1201, 59, 9900}, last)
	require.Equal(t, 4, x.Cut(14001).Len())
	require.Zero(t, x.Cut(0).Len())
}

func TestTheFormatIsTheGoldenOne(t *testing.T) {
	x, s := sample()
	const name = "testdata/v1.index"
	if *update {
		require.NoError(t, os.WriteFile(name, x.Encode(s), 0o644))
	}
	golden, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, golden, x.Encode(s))
	got, sum, err := Decode(golden)
	require.NoError(t, err)
	require.Equal(t, s, sum)
	require.Equal(t, x, got)
	require.Equal(t, "QLOGINDX\x00\x00\x00\x01", string(golden[:12]))
}

func TestEachWrongByteIsRefused(t *testing.T) {
	x, s := sample()
	good := x.Encode(s)
	for i := range good {
		for bit := range 8 {
			b := bytes.Clone(good)
			b[i] ^= 1 << bit
			_, _, err := Decode(b)
			require.Error(t, err, "byte %d, bit %d", i, bit)
		}
		_, _, err := Decode(good[:i])
		require.Error(t, err, "cut at %d", i)
	}
	_, _, err := Decode(append(bytes.Clone(good), 0))
	require.Error(t, err)
}

// seal makes the checksums of b right, whatever it says.
func seal(b []byte) []byte {
	binary.BigEndian.PutUint32(b[12:], crc32.Checksum(b[:12], castagnoli))
	binary.BigEndian.PutUint32(b[len(b)-4:], crc32.Checksum(b[16:len(b)-4], castagnoli))
	return b
}

func TestWrongContentUnderARightChecksumIsRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(b []byte)
		text  string
	}{
		{"newer version", func(b []byte) { b[11] = 2 }, "format version 2"},
		{"count", func(b []byte) { b[71] = 5 }, "slots"},
		{"huge count", func(b []byte) { copy(b[68:], "\xff\xff\xff\xff") }, "slots"},
		{"negative base", func(b []byte) { b[20] = 0x80 }, "backwards"},
		{"negative size", func(b []byte) { b[60] = 0x80 }, "backwards"},
		{"end before base", func(b []byte) { clear(b[36:44]) }, "backwards"},
		{"end entry before base", func(b []byte) { clear(b[44:52]) }, "backwards"},
		{"position back", func(b []byte) { clear(b[headerSize+2*slotSize+8:][:4]) }, "slot 2"},
		{"entry back", func(b []byte) { clear(b[headerSize+2*slotSize+4:][:4]) }, "slot 2"},
		{"offset back", func(b []byte) { clear(b[headerSize+2*slotSize:][:4]) }, "slot 2"},
		{"slot behind the end", func(b []byte) { b[headerSize+3*slotSize+8] = 1 }, "slot 3"},
	} {
		x, s := sample()
		b := x.Encode(s)
		c.spoil(b)
		_, _, err := Decode(seal(b))
		require.ErrorContains(t, err, c.text, c.name)
	}
}

func FuzzDecode(f *testing.F) {
	x, s := sample()
	f.Add(x.Encode(s))
	f.Add(New(0, 1).Encode(Summary{NextEntry: 1, Size: 64}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > headerSize+sumSize { // let the fuzzer past the checksums
			b = seal(slices.Clone(b))
		}
		x, s, err := Decode(b)
		if err == nil {
			require.Equal(t, b, x.Encode(s))
		}
	})
}

func BenchmarkOffset(b *testing.B) {
	x := New(0, 1)
	for i := range int64(1<<30) / 4096 { // of a segment of 1 GiB
		x = x.Add(Place{record.Offset(i * 40), record.EntryNumber(i + 1), i * 4096})
	}
	rng := rand.New(rand.NewPCG(1, 1))
	end := int64(x.Len()) * 40
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := x.Offset(record.Offset(rng.Int64N(end))); !ok {
			b.Fatal("not found")
		}
	}
}
