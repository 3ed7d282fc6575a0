package index

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

func timesSample() (Times, Summary) {
	x := NewTimes(1000).Add(1000).Raise(-5).Add(1010).Raise(1_700_000_000_000).Raise(20).Add(1300).Add(1300).Raise(1_700_000_000_001)
	_, s := sample()
	return x, s
}

func TestBelowIsTheLastSlotBeforeATime(t *testing.T) {
	x, _ := timesSample()
	for ms, want := range map[int64]record.Offset{
		math.MinInt64: 1000, -6: 1000, -5: 1000, -4: 1010, 0: 1010, 20: 1010, 1_700_000_000_000: 1010,
		1_700_000_000_001: 1300, math.MaxInt64: 1300,
	} {
		require.Equal(t, want, x.Below(ms), "time %d", ms)
	}
	require.EqualValues(t, 7, NewTimes(7).Below(math.MinInt64))
	require.EqualValues(t, math.MinInt64, NewTimes(7).Latest())
	require.EqualValues(t, 1_700_000_000_001, x.Latest())
	require.False(t, Times{}.Known())
	require.True(t, x.Known())
}

// TestNoRecordBelowIsLateEnough compares with a list of all that was told.
func TestNoRecordBelowIsLateEnough(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	const base = math.MaxInt64 - math.MaxUint32
	for range 200 {
		x := NewTimes(base)
		offset := record.Offset(base)
		var latest []int64 // by record
		slots := map[record.Offset]bool{base: true}
		for range rng.IntN(30) {
			if rng.IntN(3) == 0 {
				x = x.Add(offset)
				slots[offset] = true
			}
			ms := rng.Int64N(20) - 10
			x = x.Raise(ms)
			offset++
			latest = append(latest, ms)
		}
		if n := len(latest); n > 0 && rng.IntN(2) == 0 {
			end := record.Offset(base + rng.IntN(n+1))
			var from record.Offset
			x, from = x.Cut(end)
			latest = latest[:end-base]
			require.LessOrEqual(t, from, end)
			require.True(t, slots[from])
			for _, ms := range latest[from-base:] {
				x = x.Raise(ms)
			}
		}
		for ms := int64(-11); ms <= 11; ms++ {
			below := x.Below(ms)
			require.True(t, slots[below])
			for i, l := range latest {
				if l >= ms {
					require.LessOrEqual(t, below, record.Offset(base+i), "time %d", ms)
					require.GreaterOrEqual(t, x.Latest(), ms)
					break
				}
			}
			if x.Latest() >= ms {
				require.True(t, slices.ContainsFunc(latest, func(l int64) bool { return l >= ms }), "the bound is too high")
			}
		}
	}
}

// TestTimesAreAValue keeps the old value while the new one is cut and added to.
func TestTimesAreAValue(t *testing.T) {
	x, s := timesSample()
	before := x.Encode(s)
	y, from := x.Cut(1299)
	require.EqualValues(t, 1010, from)
	require.EqualValues(t, -5, y.Latest())
	y = y.Raise(40).Add(1020).Add(1030)
	require.EqualValues(t, 1030, y.Below(41))
	require.Equal(t, before, x.Encode(s))
	y, from = x.Cut(999)
	require.EqualValues(t, 1000, from)
	require.EqualValues(t, math.MinInt64, y.Latest())
}

func TestTheTimeFormatIsTheGoldenOne(t *testing.T) {
	x, s := timesSample()
	const name = "testdata/v1.timeindex"
	if *update {
		require.NoError(t, os.WriteFile(name, x.Encode(s), 0o644))
	}
	golden, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, golden, x.Encode(s))
	got, sum, err := DecodeTimes(golden)
	require.NoError(t, err)
	require.Equal(t, s, sum)
	require.Equal(t, x, got)
	require.Equal(t, "QLOGTIME\x00\x00\x00\x01", string(golden[:12]))
	_, _, err = Decode(golden)
	require.Error(t, err, "an .index by another name")
}

func TestEachWrongByteOfATimeIndexIsRefused(t *testing.T) {
	x, s := timesSample()
	good := x.Encode(s)
	for i := range good {
		for bit := range 8 {
			b := bytes.Clone(good)
			b[i] ^= 1 << bit
			_, _, err := DecodeTimes(b)
			require.Error(t, err, "byte %d, bit %d", i, bit)
		}
		_, _, err := DecodeTimes(good[:i])
		require.Error(t, err, "cut at %d", i)
	}
	_, _, err := DecodeTimes(append(bytes.Clone(good), 0))
	require.Error(t, err)
}

func TestWrongTimesUnderARightChecksumAreRefused(t *testing.T) {
	slotAt := func(b []byte, i int) []byte { return b[headerSize+slotSize*i:] }
	for _, c := range []struct {
		name  string
		spoil func(b []byte)
		text  string
	}{
		{"newer version", func(b []byte) { b[11] = 2 }, "format version 2"},
		{"count", func(b []byte) { b[71] = 5 }, "slots"},
		{"negative base", func(b []byte) { b[20] = 0x80 }, "backwards"},
		{"time back", func(b []byte) { copy(slotAt(b, 2), "\x80\x00\x00\x00\x00\x00\x00\x00") }, "slot 2"},
		{"offset back", func(b []byte) { clear(slotAt(b, 2)[8:12]) }, "slot 2"},
		{"offset behind the end", func(b []byte) { slotAt(b, 3)[8] = 1 }, "behind the end"},
		{"slot later than all", func(b []byte) { binary.BigEndian.PutUint64(b[28:], 1_699_999_999_999) }, "behind the end"},
	} {
		x, s := timesSample()
		b := x.Encode(s)
		c.spoil(b)
		_, _, err := DecodeTimes(seal(b))
		require.ErrorContains(t, err, c.text, c.name)
	}
}

func FuzzDecodeTimes(f *testing.F) {
	x, s := timesSample()
	f.Add(x.Encode(s))
	f.Add(NewTimes(0).Encode(Summary{NextEntry: 1, Size: 64}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > headerSize+sumSize { // let the fuzzer past the checksums
			b = seal(slices.Clone(b))
		}
		x, s, err := DecodeTimes(b)
		if err != nil {
			return
		}
		require.Equal(t, b, x.Encode(s))
		for _, ms := range []int64{math.MinInt64, -1, 0, math.MaxInt64} {
			below := x.Below(ms)
			require.True(t, below >= x.baseOffset && below <= s.NextOffset)
		}
		y, from := x.Cut(s.NextOffset)
		require.LessOrEqual(t, from, s.NextOffset)
		require.LessOrEqual(t, y.Latest(), x.Latest())
	})
}

func BenchmarkBelow(b *testing.B) {
	x := NewTimes(0)
	const slots = int64(1<<30) / (8 * 4096) // of a segment of 1 GiB
	for i := range slots {
		x = x.Add(record.Offset(i * 300)).Raise(i * 10)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	b.ReportAllocs()
	for b.Loop() {
		if x.Below(rng.Int64N(slots*10)) < 0 {
			b.Fatal("not found")
		}
	}
}
