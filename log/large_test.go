package log

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

// TestNumbersBeyond32BitsAreAsGoodAsSmallOnes does everything to logs that begin
// far out, and near where numbers end.
func TestNumbersBeyond32BitsAreAsGoodAsSmallOnes(t *testing.T) {
	for _, at := range []struct {
		entry  record.EntryNumber
		offset record.Offset
	}{
		{1<<31 - 10, 1<<31 - 10},
		{1<<32 - 10, 1<<32 - 10},
		{1 << 33, 1 << 40},
		{math.MaxInt64 - 1000, math.MaxInt64 - 10000},
	} {
		msg := fmt.Sprintf("from entry %d, offset %d", at.entry, at.offset)
		cfg := testConfig(vfs.NewMem())
		l := open(t, cfg)
		const term = 1 << 30 // a batch's leader epoch has 32 bits
		require.NoError(t, l.Reset(at.entry, term, at.offset))
		o := oracle{base: at.entry, first: at.entry, prev: term, start: at.offset}
		requireSame(t, l, o, msg)
		rng := testRand(t)
		for range 10 {
			e := o.make(t, rng, 6)
			require.NoError(t, l.Append(e), msg)
			o = o.with(e...)
		}
		requireSame(t, l, o, msg)
		require.NoError(t, l.TruncateTo(o.next()-7), msg)
		o = o.cut(o.next() - 7)
		_, err := l.TrimTo(o.offset(o.next()))
		require.NoError(t, err, msg)
		o = o.trimmed(l.Bounds().First)
		require.Greater(t, o.first, at.entry, msg)
		requireSame(t, l, o, msg)
		require.Empty(t, findings(t, l), msg)
		require.NoError(t, l.Close())
		l = open(t, cfg)
		requireSame(t, l, o, msg+", opened again")
		require.Empty(t, l.Recovery().RebuiltIndexes, msg)
		require.NoError(t, l.Close())
	}
}

// TestOffsetsDoNotRunPastTheirEnd appends where a batch has just room below 2^63.
func TestOffsetsDoNotRunPastTheirEnd(t *testing.T) {
	l := open(t, testConfig(vfs.NewMem()))
	require.NoError(t, l.Reset(5, 1, math.MaxInt64-3))
	rng := testRand(t)
	o := oracle{base: 5, first: 5, prev: 1, start: math.MaxInt64 - 3}
	entry := func(records int) segment.Entry {
		n := o.next()
		return segment.Entry{Number: n, Term: 1, Kind: segment.KindBatch, Offset: o.offset(n), Data: batch(t, rng, o.offset(n), 1, records, 3)}
	}
	e := entry(3)
	require.NoError(t, l.Append([]segment.Entry{e}))
	o = o.with(e)
	require.Equal(t, record.Offset(math.MaxInt64), l.Bounds().End)
	requireSame(t, l, o, "full to the brim")
	require.ErrorIs(t, l.Append([]segment.Entry{entry(1)}), record.ErrCorrupt)
	requireSame(t, l, o, "nothing more fits")
	require.NoError(t, l.Close())
}

// TestOddRecordsComeBackAsTheyWere sends records that are hard to encode through
// Append and Read, in every codec, over segments that each hold only one batch.
func TestOddRecordsComeBackAsTheyWere(t *testing.T) {
	many := make([]record.Header, 10_000)
	for i := range many {
		many[i] = record.Header{Key: fmt.Sprint("h", i), Value: []byte(strings.Repeat("v", i%300))}
	}
	many[17].Value = nil
	many[18] = record.Header{Key: "", Value: []byte{}}
	at := time.UnixMilli(1)
	batches := map[string][]record.Record{
		"a value of one byte":     {{Time: at, Value: []byte{0}}},
		"nil and empty":           {{Time: at}, {Time: at, Key: []byte{}}, {Time: at, Value: []byte{}}, {Time: at, Key: []byte{}, Value: []byte{}}},
		"10,000 headers":          {{Time: at, Key: []byte("k"), Value: []byte("v"), Headers: many}},
		"times as far as they go": {{Time: time.UnixMilli(-1 << 61), Value: []byte("then")}, {Time: time.UnixMilli(1<<61 - 1), Value: []byte("when")}, {Time: time.UnixMilli(0)}},
		"a key larger than pages": {{Time: at, Key: make([]byte, 1<<20), Value: []byte{1}}},
		"a thousand tombstones":   tombstones(1000),
	}
	cfg := testConfig(vfs.NewMem())
	l := open(t, cfg)
	o := newOracle()
	var want []record.Record
	for _, name := range []string{"a value of one byte", "nil and empty", "10,000 headers", "times as far as they go", "a key larger than pages", "a thousand tombstones"} {
		for codec := record.None; codec <= record.Zstd; codec++ {
			var b record.Builder
			for i := range batches[name] {
				require.NoError(t, b.Append(&batches[name][i]), name)
			}
			built, err := b.Build(record.BatchOptions{Codec: codec})
			require.NoError(t, err, name)
			n := o.next()
			built.Stamp(o.offset(n), 1)
			for i, r := range batches[name] {
				r.Offset, r.LeaderEpoch = o.offset(n)+record.Offset(i), 1
				want = append(want, r)
			}
			e := segment.Entry{Number: n, Term: 1, Kind: segment.KindBatch, Offset: o.offset(n), Data: built}
			require.NoError(t, l.Append([]segment.Entry{e}), name)
			o = o.with(e)
		}
	}
	for range 2 {
		requireSame(t, l, o, "batches")
		require.Equal(t, want, decode(t, readAll(t, l, 0, l.Bounds().End, 1)))
		require.Empty(t, findings(t, l))
		require.NoError(t, l.Close())
		l = open(t, cfg)
	}
	require.NoError(t, l.Close())
}

func tombstones(n int) []record.Record {
	records := make([]record.Record, n)
	for i := range records {
		records[i] = record.Record{Time: time.UnixMilli(int64(i)), Key: fmt.Append(nil, i)}
	}
	return records
}

func decode(t testing.TB, batches []record.Batch) []record.Record {
	t.Helper()
	var (
		all []record.Record
		it  record.Iterator
	)
	for _, b := range batches {
		require.NoError(t, it.Reset(b))
		for r := (record.Record{}); it.Next(&r); r = (record.Record{}) {
			all = append(all, r)
		}
		require.NoError(t, it.Err())
	}
	return all
}

// TestTheLargestBatchIsOneOf64MiB between small ones, in segments of 1 KiB.
func TestTheLargestBatchIsOneOf64MiB(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	l := open(t, cfg)
	rng := testRand(t)
	o := newOracle()
	add := func(size int) error {
		n := o.next()
		var b record.Builder
		if err := b.Append(&record.Record{Time: time.UnixMilli(1), Value: make([]byte, size)}); err != nil {
			return err
		}
		built, err := b.Build(record.BatchOptions{})
		require.NoError(t, err)
		built.Stamp(o.offset(n), 1)
		e := segment.Entry{Number: n, Term: 1, Kind: segment.KindBatch, Offset: o.offset(n), Data: built}
		if err := l.Append([]segment.Entry{e}); err != nil {
			return err
		}
		o = o.with(e)
		return nil
	}
	over := record.MaxBatchBytes - len(batch(t, rng, 0, 1, 1, record.MaxBatchBytes-200)) // what is left of 200
	largest := record.MaxBatchBytes - 200 + over
	require.NoError(t, add(1))
	require.NoError(t, add(largest))
	require.Len(t, o.entry(2).Data, record.MaxBatchBytes)
	require.NoError(t, add(1))
	require.ErrorIs(t, add(largest+1), record.ErrTooLarge)
	for n := o.first; n < o.next(); n++ {
		got, err := l.Read(o.offset(n), l.Bounds().End, 1)
		require.NoError(t, err)
		require.True(t, string(o.entry(n).Data) == string(got[0]), "entry %d", n)
	}
	require.NoError(t, l.release()) // all of it is scanned
	l = open(t, cfg)
	require.Equal(t, o.bounds(), l.Bounds())
	require.Empty(t, findings(t, l))
	require.NoError(t, l.Close())
}

func TestSegmentBytesHasBounds(t *testing.T) {
	for bytes, ok := range map[int64]bool{
		-1: false, 1: false, minSegmentBytes - 1: false, minSegmentBytes: true, 0: true,
		maxSegmentBytes: true, maxSegmentBytes + 1: false, math.MaxInt64: false,
	} {
		err := Config{FS: vfs.NewMem(), SegmentBytes: bytes}.Validate()
		require.Equal(t, ok, err == nil, "%d: %v", bytes, err)
	}
}
