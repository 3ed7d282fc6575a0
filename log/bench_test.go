package log

import (
	"context"
	"hash/crc32"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

// benchBatch is 1,000 records with values of 100 bytes.
func benchBatch(b *testing.B) record.Batch {
	var builder record.Builder
	for range 1000 {
		require.NoError(b, builder.Append(&record.Record{Value: make([]byte, 100)}))
	}
	batch, err := builder.Build(record.BatchOptions{})
	require.NoError(b, err)
	return batch
}

func benchConfig() Config { return Config{FS: vfs.OS, Flush: FlushNever} }

// appender appends one batch over and over.
type appender struct {
	l       *Log
	batch   record.Batch
	entries [1]segment.Entry
}

func newAppender(b *testing.B, cfg Config, batch record.Batch) *appender {
	l, err := Open(context.Background(), b.TempDir(), cfg)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, l.Close()) })
	return &appender{l: l, batch: batch}
}

func (a *appender) append(b *testing.B) {
	at := a.l.Bounds()
	a.batch.Stamp(at.End, 1)
	a.entries[0] = segment.Entry{Number: at.Next, Term: 1, Kind: segment.KindBatch, Offset: at.End, Data: a.batch}
	if err := a.l.Append(a.entries[:]); err != nil {
		b.Fatal(err)
	}
}

func (a *appender) fill(b *testing.B, bytes int64) {
	for a.l.Size() < bytes {
		a.append(b)
	}
}

const benchBytes = 256 << 20 // kept, so that the page cache and not the disk is measured

// BenchmarkAppend stays in one segment; BenchmarkAppendAndRoll pays for the sync
// of each 64 MiB too, which is the disk's speed.
func BenchmarkAppend(b *testing.B) {
	cfg := benchConfig()
	cfg.SegmentBytes = 2 * benchBytes
	benchAppend(b, cfg)
}

func BenchmarkAppendAndRoll(b *testing.B) { benchAppend(b, benchConfig()) }

func benchAppend(b *testing.B, cfg Config) {
	a := newAppender(b, cfg, benchBatch(b))
	b.SetBytes(int64(len(a.batch)))
	b.ReportAllocs()
	for b.Loop() {
		a.append(b)
		a.startOver(b)
	}
}

// startOver empties a log that has become large.
func (a *appender) startOver(b *testing.B) {
	if a.l.Size() < benchBytes {
		return
	}
	b.StopTimer()
	require.NoError(b, a.l.TruncateTo(a.l.Bounds().First))
	b.StartTimer()
}

// BenchmarkAppendFlushEach is bound by the disk's fsync.
func BenchmarkAppendFlushEach(b *testing.B) {
	cfg := benchConfig()
	cfg.Flush = FlushEach
	a := newAppender(b, cfg, benchBatch(b))
	b.SetBytes(int64(len(a.batch)))
	for b.Loop() {
		a.append(b)
	}
}

// BenchmarkAppendSmall appends batches of one record, 100 at a time.
func BenchmarkAppendSmall(b *testing.B) {
	cfg := benchConfig()
	cfg.SegmentBytes = 2 * benchBytes
	a := newAppender(b, cfg, nil)
	var batches [100]record.Batch
	for i := range batches {
		var builder record.Builder
		require.NoError(b, builder.Append(&record.Record{Value: make([]byte, 100)}))
		var err error
		batches[i], err = builder.Build(record.BatchOptions{})
		require.NoError(b, err)
	}
	entries := make([]segment.Entry, len(batches))
	b.SetBytes(int64(len(batches) * len(batches[0])))
	b.ReportAllocs()
	for b.Loop() {
		at := a.l.Bounds()
		for i, batch := range batches {
			offset := at.End + record.Offset(i)
			batch.Stamp(offset, 1)
			entries[i] = segment.Entry{Number: at.Next + record.EntryNumber(i), Term: 1, Kind: segment.KindBatch, Offset: offset, Data: batch}
		}
		if err := a.l.Append(entries); err != nil {
			b.Fatal(err)
		}
		a.startOver(b)
	}
}

// BenchmarkWriteFile is what the file system alone does with the same writes.
func BenchmarkWriteFile(b *testing.B) {
	batch := benchBatch(b)
	f, err := vfs.OS.Create(b.TempDir() + "/file")
	require.NoError(b, err)
	b.SetBytes(int64(len(batch)))
	var pos int64
	for b.Loop() {
		if _, err := f.WriteAt(batch, pos); err != nil {
			b.Fatal(err)
		}
		if pos += int64(len(batch)); pos > benchBytes {
			b.StopTimer()
			pos = 0
			require.NoError(b, f.Truncate(0))
			b.StartTimer()
		}
	}
	require.NoError(b, f.Close())
}

// BenchmarkChecksum is the price of one CRC-32C over the same bytes.
func BenchmarkChecksum(b *testing.B) {
	batch := benchBatch(b)
	table := crc32.MakeTable(crc32.Castagnoli)
	b.SetBytes(int64(len(batch)))
	for b.Loop() {
		crc32.Checksum(batch, table)
	}
}

// BenchmarkRead reads a whole log from its start, and BenchmarkReadRecords goes
// through the records too.
func BenchmarkRead(b *testing.B)        { benchRead(b, func(record.Batch) int { return 1000 }) }
func BenchmarkReadRecords(b *testing.B) { benchRead(b, countRecords) }

func benchRead(b *testing.B, count func(record.Batch) int) {
	a := newAppender(b, benchConfig(), benchBatch(b))
	a.fill(b, benchBytes)
	end := a.l.Bounds().End
	// A host has a heap. Beside an empty one the collector runs every fourth read
	// and takes half of the time.
	heap := make([]byte, 64<<20)
	defer runtime.KeepAlive(heap)
	b.SetBytes(a.l.Size())
	b.ReportAllocs()
	records := 0
	for b.Loop() {
		for from := record.Offset(0); from < end; {
			batches, err := a.l.Read(from, end, 1<<20)
			if err != nil {
				b.Fatal(err)
			}
			for _, batch := range batches {
				records += count(batch)
				from = batch.NextOffset()
			}
		}
	}
	b.ReportMetric(float64(records)/b.Elapsed().Seconds()/1e6, "Mrec/s")
}

func countRecords(batch record.Batch) int {
	var (
		it record.Iterator
		r  record.Record
		n  int
	)
	if it.Reset(batch) == nil {
		for it.Next(&r) {
			n++
		}
	}
	return n
}

func BenchmarkReadEntry(b *testing.B) {
	a := newAppender(b, benchConfig(), benchBatch(b))
	a.fill(b, benchBytes)
	next := a.l.Bounds().Next
	b.SetBytes(int64(len(a.batch)))
	b.ReportAllocs()
	n := record.EntryNumber(1)
	for b.Loop() {
		if _, err := a.l.ReadEntry(n); err != nil {
			b.Fatal(err)
		}
		if n++; n == next {
			n = 1
		}
	}
}

// BenchmarkRecoveryScan opens a log that was not closed: all of its one segment is scanned.
func BenchmarkRecoveryScan(b *testing.B) {
	cfg := benchConfig()
	cfg.SegmentBytes = 2 * benchBytes
	dir := b.TempDir()
	l, err := Open(context.Background(), dir, cfg)
	require.NoError(b, err)
	a := &appender{l: l, batch: benchBatch(b)}
	a.fill(b, benchBytes)
	b.SetBytes(l.Size())
	for b.Loop() {
		again, err := Open(context.Background(), dir, cfg)
		if err != nil {
			b.Fatal(err)
		}
		require.NoError(b, again.release())
	}
	require.NoError(b, l.Close())
}
