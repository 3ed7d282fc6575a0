package record

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var codecs = []Codec{None, Gzip, Snappy, LZ4, Zstd}

// source returns randomness whose seed is printed when the test fails and can
// be given again as QUORUMLOG_SEED.
func source(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if given := os.Getenv("QUORUMLOG_SEED"); given != "" {
		var err error
		seed, err = strconv.ParseUint(given, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("QUORUMLOG_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// randomBytes returns nil, nothing, or up to most bytes of text that compresses.
func randomBytes(rnd *rand.Rand, most int) []byte {
	switch rnd.IntN(8) {
	case 0:
		return nil
	case 1:
		return []byte{}
	}
	b := make([]byte, rnd.IntN(most+1))
	for i := range b {
		b[i] = 'a' + byte(rnd.IntN(4))
	}
	return b
}

func randomRecords(rnd *rand.Rand, n int) []Record {
	const start = 1_700_000_000_000
	records := make([]Record, n)
	for i := range records {
		r := &records[i]
		r.Offset, r.LeaderEpoch = Offset(i), NoLeaderEpoch
		r.Time = time.UnixMilli(start + rnd.Int64N(2000) - 1000)
		r.Key, r.Value = randomBytes(rnd, 20), randomBytes(rnd, 300)
		if rnd.IntN(20) == 0 {
			r.Value = randomBytes(rnd, 100_000)
		}
		for range rnd.IntN(8) - 4 {
			r.Headers = append(r.Headers, Header{Key: string(randomBytes(rnd, 10)), Value: randomBytes(rnd, 10)})
		}
	}
	return records
}

func build(t testing.TB, opt BatchOptions, records ...Record) Batch {
	t.Helper()
	var b Builder
	for i := range records {
		require.NoError(t, b.Append(&records[i]))
	}
	batch, err := b.Build(opt)
	require.NoError(t, err)
	return batch
}

func iterate(b Batch) ([]Record, error) {
	var (
		it  Iterator
		r   Record
		out []Record
	)
	if err := it.Reset(b); err != nil {
		return nil, err
	}
	for it.Next(&r) {
		out = append(out, r)
	}
	return out, it.Err()
}

// hundred returns n records of about 100 bytes.
func hundred(n int) []Record {
	records := make([]Record, n)
	for i := range records {
		records[i] = Record{
			Time:  time.UnixMilli(1_700_000_000_000 + int64(i)),
			Key:   fmt.Appendf(nil, "customer-%06d", i%97),
			Value: fmt.Appendf(nil, `{"order":%08d,"amount":%6d,"currency":"EUR","state":"paid","at":%d}`, i, i*7919%100_000, i),
		}
	}
	return records
}
