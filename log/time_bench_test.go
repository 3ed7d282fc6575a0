package log

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

// BenchmarkOffsetForTime asks a log of one segment of 1 GiB, batches of 10 records of
// 100 bytes, for times all over it. BenchmarkOffsetForTimeAtFirst asks it
// for the first time after it was opened without a .timeindex.
func BenchmarkOffsetForTime(b *testing.B) {
	l, records := timeBenchLog(b)
	rng := rand.New(rand.NewPCG(1, 1))
	b.ReportAllocs()
	for b.Loop() {
		ms := rng.Int64N(records)
		offset, ok, err := l.OffsetForTime(b.Context(), ms, 0, math.MaxInt64)
		if err != nil || !ok || int64(offset) != ms {
			b.Fatal(ms, offset, ok, err)
		}
	}
}

func BenchmarkOffsetForTimeAtFirst(b *testing.B) {
	l, records := timeBenchLog(b)
	p := l.view.Load().active
	b.SetBytes(p.ext.Size)
	for b.Loop() {
		built, _, err := p.seg.Scan(b.Context(), p.seg.Empty(), p.ext.Size) // what it does
		if err != nil || built.Times.Latest() != records-1 {
			b.Fatal(err)
		}
	}
}

// timeBenchLog returns a log in which the time of each record is its offset.
func timeBenchLog(b *testing.B) (l *Log, records int64) {
	cfg := benchConfig()
	cfg.SegmentBytes = maxSegmentBytes
	l, err := Open(context.Background(), b.TempDir(), cfg)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, l.Close()) })
	var builder record.Builder
	value := make([]byte, 100)
	entries := make([]segment.Entry, 100)
	for n := record.EntryNumber(1); l.Size() < 1<<30; {
		for i := range entries {
			builder.Reset()
			for j := range int64(10) {
				require.NoError(b, builder.Append(&record.Record{Time: time.UnixMilli(records + j), Value: value}))
			}
			batch, err := builder.Build(record.BatchOptions{})
			require.NoError(b, err)
			batch.Stamp(record.Offset(records), 1)
			entries[i] = segment.Entry{Number: n, Term: 1, Kind: segment.KindBatch, Offset: record.Offset(records), Data: batch}
			n, records = n+1, records+10
		}
		require.NoError(b, l.Append(entries))
	}
	return l, records
}
