package consumer

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

// benchTopic is one partition with at least n records of 100 bytes, in batches
// of 100, each with a key of its own.
func benchTopic(b *testing.B, n int) memory {
	m := newMemory("orders", 1)
	for range n/100 + 1 {
		var builder record.Builder
		for i := range 100 {
			require.NoError(b, builder.Append(&record.Record{Key: []byte{byte(i)}, Value: bytes.Repeat([]byte("x"), 99)}))
		}
		out, err := builder.Build(record.BatchOptions{})
		require.NoError(b, err)
		m["orders"][0].append(out)
	}
	return m
}

const benchRecords = 1_000_000

func BenchmarkRead(b *testing.B) {
	m := benchTopic(b, min(b.N, benchRecords))
	b.ReportAllocs()
	b.SetBytes(100)
	b.ResetTimer()
	for n := 0; n < b.N; {
		for _, err := range Read(b.Context(), m, "orders", UntilEnd()) {
			if err != nil {
				b.Fatal(err)
			}
			if n++; n >= b.N {
				break
			}
		}
	}
}

func BenchmarkPoll(b *testing.B) {
	m := benchTopic(b, min(b.N, benchRecords))
	b.ReportAllocs()
	b.SetBytes(100)
	b.ResetTimer()
	for n := 0; n < b.N; {
		g, err := Join(b.Context(), m, newCoordinator(m), "billing", []string{"orders"}, Config{})
		require.NoError(b, err)
		for end := n + min(b.N-n, benchRecords); n < end; {
			batch, err := g.Poll(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			n += len(batch.Records)
		}
		require.NoError(b, g.Close(b.Context()))
	}
}

func BenchmarkRun(b *testing.B) {
	for _, workers := range []int{1, 2, 8} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			m := benchTopic(b, min(b.N, benchRecords))
			b.ReportAllocs()
			b.SetBytes(100)
			b.ResetTimer()
			for n := 0; n < b.N; n += benchRecords {
				g, err := Join(b.Context(), m, newCoordinator(m), "billing", []string{"orders"}, Config{Workers: workers})
				require.NoError(b, err)
				ctx, cancel := context.WithCancel(b.Context())
				var left atomic.Int64
				left.Store(int64(min(b.N-n, benchRecords)))
				require.ErrorIs(b, g.Run(ctx, func(context.Context, record.Record) error {
					if left.Add(-1) == 0 {
						cancel()
					}
					return nil
				}), context.Canceled)
				require.NoError(b, g.Close(b.Context()))
			}
		})
	}
}
