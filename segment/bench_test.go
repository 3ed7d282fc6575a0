package segment

import (
	"context"
	"hash/crc32"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
)

// benchSegment writes 256 MiB in batches of 1,000 records of 100 bytes, which
// stay in the page cache.
func benchSegment(b *testing.B) (*Segment, Extent) {
	dir := filepath.ToSlash(b.TempDir())
	s, err := Create(vfs.OS, dir, Header{BaseEntry: 1}, 4<<10)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Release()) })
	var (
		builder record.Builder
		w       Writer
		x       = s.Empty()
	)
	for range 1000 {
		require.NoError(b, builder.Append(&record.Record{Time: time.UnixMilli(1), Value: []byte(strings.Repeat("v", 100))}))
	}
	batch, err := builder.Build(record.BatchOptions{})
	require.NoError(b, err)
	for x.Size < 256<<20 {
		batch.Stamp(x.NextOffset, 1)
		x, err = s.Append(&w, x, []Entry{{Number: x.NextEntry, Term: 1, Kind: KindBatch, Offset: x.NextOffset, Data: batch}}, 1)
		require.NoError(b, err)
	}
	return s, x
}

// share reports the throughput as a share of what the checksum alone does.
func share(b *testing.B, bytes int64) {
	page := make([]byte, 112<<10) // as large as the batches
	began, sum := time.Now(), int64(0)
	for ; time.Since(began) < 50*time.Millisecond; sum += int64(len(page)) {
		crc32.Checksum(page, castagnoli)
	}
	alone := float64(sum) / time.Since(began).Seconds()
	b.ReportMetric(float64(bytes)*float64(b.N)/b.Elapsed().Seconds()/alone, "of-crc32")
}

func BenchmarkScan(b *testing.B) {
	s, x := benchSegment(b)
	b.SetBytes(x.Size)
	for b.Loop() {
		y, reason, err := s.Scan(context.Background(), s.Empty(), x.Size)
		if err != nil || reason != "" || y.NextEntry != x.NextEntry {
			b.Fatal(reason, err)
		}
	}
	share(b, x.Size)
}

func BenchmarkVerify(b *testing.B) {
	s, x := benchSegment(b)
	require.NoError(b, s.Sync())
	require.NoError(b, s.SaveIndex(x))
	require.NoError(b, s.SaveTimes(x))
	b.SetBytes(x.Size)
	for b.Loop() {
		sides, err := s.Sides()
		require.NoError(b, err)
		bad := func(e *CorruptError) { b.Fatal(e) }
		require.NoError(b, s.Verify(context.Background(), x, sides, bad, func(int64) {}))
	}
	share(b, x.Size)
}

// BenchmarkRewrite leaves out the sync, which is as fast as the disk.
func BenchmarkRewrite(b *testing.B) {
	s, x := benchSegment(b)
	b.SetBytes(x.Size)
	for b.Loop() {
		require.NoError(b, s.Rewrite(context.Background(), s.Empty(), x))
	}
}

// BenchmarkFindOffset goes from the index into the file, whose pages are cached.
func BenchmarkFindOffset(b *testing.B) {
	s, x := benchSegment(b)
	offset := record.Offset(0)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.FindOffset(x, offset); err != nil {
			b.Fatal(err)
		}
		offset = (offset + 1_000_003) % x.NextOffset
	}
}
