package quorumlog_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog"
)

// BenchmarkTransaction writes the same records in transactions and without, waiting
// for each lot; one operation is one lot.
func BenchmarkTransaction(b *testing.B) {
	ctx := context.Background()
	value := make([]byte, benchValue)
	for _, nodes := range []int{1, 3} {
		for _, records := range []int{1, 10, 100, 1000} {
			lot := func(send func(quorumlog.Record) error) error {
				for range records {
					if err := send(quorumlog.Record{Topic: "bench", Value: value}); err != nil {
						return err
					}
				}
				return nil
			}
			b.Run(fmt.Sprintf("nodes=%d/records=%d/plain", nodes, records), func(b *testing.B) {
				p, err := openBench(b, nodes, quorumlog.FlushEach)[0].Producer(quorumlog.ProducerConfig{})
				require.NoError(b, err)
				timeLots(b, records, func() error {
					err := lot(func(r quorumlog.Record) error { p.SendAsync(ctx, r, nil); return nil })
					return cmp.Or(err, p.Flush(ctx))
				})
				require.NoError(b, p.Close(ctx))
			})
			b.Run(fmt.Sprintf("nodes=%d/records=%d/transaction", nodes, records), func(b *testing.B) {
				c, err := openBench(b, nodes, quorumlog.FlushEach)[0].Txn("bench", quorumlog.TxnConfig{})
				require.NoError(b, err)
				timeLots(b, records, func() error {
					return c.Do(ctx, func(tx *quorumlog.Tx) error { return lot(tx.Send) })
				})
				require.NoError(b, c.Close(ctx))
			})
		}
	}
}

// timeLots runs one again and again, and reports how long each took.
func timeLots(b *testing.B, records int, one func() error) {
	b.Helper()
	require.NoError(b, one()) // routes and identities are there
	took := make([]time.Duration, 0, b.N)
	b.ResetTimer()
	for range b.N {
		began := time.Now()
		if err := one(); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(b.N*records)/b.Elapsed().Seconds(), "records/s")
}
