package record

import "testing"

// All of them work on batches of 1,000 records of about 100 bytes and report
// the throughput in uncompressed bytes.

func BenchmarkEncode(b *testing.B) {
	records := hundred(1000)
	for _, codec := range codecs {
		b.Run(codec.String(), func(b *testing.B) {
			var builder Builder
			var size int
			b.ReportAllocs()
			for b.Loop() {
				builder.Reset()
				for i := range records {
					if err := builder.Append(&records[i]); err != nil {
						b.Fatal(err)
					}
				}
				batch, err := builder.Build(BatchOptions{Codec: codec})
				if err != nil {
					b.Fatal(err)
				}
				size = len(batch)
			}
			b.SetBytes(int64(builder.Len()))
			b.ReportMetric(float64(builder.Len())/float64(size), "ratio")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/record")
		})
	}
}

func BenchmarkIterate(b *testing.B) {
	records := hundred(1000)
	size := int64(len(build(b, BatchOptions{}, records...)))
	for _, codec := range codecs {
		b.Run(codec.String(), func(b *testing.B) {
			batch := build(b, BatchOptions{Codec: codec}, records...)
			var (
				it Iterator
				r  Record
			)
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				if err := it.Reset(batch); err != nil {
					b.Fatal(err)
				}
				for it.Next(&r) {
				}
				if err := it.Err(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/record")
		})
	}
}

func BenchmarkCheck(b *testing.B) {
	batch := build(b, BatchOptions{}, hundred(1000)...)
	b.SetBytes(int64(len(batch)))
	b.ReportAllocs()
	for b.Loop() {
		if err := batch.Check(); err != nil {
			b.Fatal(err)
		}
	}
}
