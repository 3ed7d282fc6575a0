package record

import (
	"encoding/hex"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden batches of compressed records anew")

// goldenRecords is what every golden batch holds.
func goldenRecords() []Record {
	return []Record{
		{Offset: 1000, LeaderEpoch: 4, Time: time.UnixMilli(1_700_000_000_000), Key: []byte("k"), Value: []byte("hello")},
		{Offset: 1001, LeaderEpoch: 4, Time: time.UnixMilli(1_699_999_999_999), Value: []byte{}},
		{Offset: 1002, LeaderEpoch: 4, Time: time.UnixMilli(1_700_000_000_300), Key: []byte("gone"),
			Headers: []Header{{Key: "a", Value: []byte("b")}, {Key: "none"}}},
		{Offset: 1003, LeaderEpoch: 4, Time: time.UnixMilli(1_700_000_000_000), Value: []byte(strings.Repeat("golden ", 40))},
	}
}

func goldenBatch(t *testing.T, codec Codec) Batch {
	stamp := &ProducerStamp{ID: 0x0102030405060708, Epoch: 0x090a, Sequence: math.MaxInt32 - 1}
	b := build(t, BatchOptions{Codec: codec, Producer: stamp, Transactional: true}, goldenRecords()...)
	b.Stamp(1000, 4)
	return b
}

// readHex reads hexadecimal digits, of which # begins a comment.
func readHex(t *testing.T, path string) Batch {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var digits strings.Builder
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		for _, word := range strings.Fields(line) {
			digits.WriteString(word)
		}
	}
	b, err := hex.DecodeString(digits.String())
	require.NoError(t, err)
	return b
}

// TestGoldenBatchesAreReadForEver holds for the bytes of every codec. Only
// uncompressed ones must come out the same when they are written again: how
// well a codec does is its library's affair.
func TestGoldenBatchesAreReadForEver(t *testing.T) {
	for _, codec := range codecs {
		path := filepath.Join("testdata", codec.String()+".hex")
		if *update && codec != None {
			require.NoError(t, os.WriteFile(path, []byte(hexLines(goldenBatch(t, codec))), 0o644))
		}
		b := readHex(t, path)
		require.NoError(t, b.Check(), "%v", codec)
		require.Equal(t, codec, b.Codec())
		require.Equal(t, Sequence(1), b.LastSequence())
		got, err := iterate(b)
		require.NoError(t, err)
		require.Equal(t, goldenRecords(), got, "%v", codec)
		if codec == None {
			require.Equal(t, b, goldenBatch(t, None))
		}
	}
}

func hexLines(b []byte) string {
	var out strings.Builder
	for len(b) > 0 {
		n := min(32, len(b))
		out.WriteString(hex.EncodeToString(b[:n]) + "\n")
		b = b[n:]
	}
	return out.String()
}
