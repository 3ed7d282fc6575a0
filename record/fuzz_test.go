package record

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzDecode gives any bytes to everything that reads foreign bytes, as they
// are and with the header made right, so that the fuzzer need not guess
// lengths and checksums to get inside.
func FuzzDecode(f *testing.F) {
	for _, codec := range codecs {
		f.Add([]byte(build(f, BatchOptions{Codec: codec}, hundred(10)...)))
	}
	f.Add([]byte(raw(1, 0, record0...)))
	f.Add([]byte(nil))

	f.Fuzz(func(t *testing.T, data []byte) {
		decode(t, data)
		if len(data) < HeaderSize {
			return
		}
		b := append(Batch(nil), data...)
		binary.BigEndian.PutUint32(b[atLength:], uint32(len(b)-lengthEnd))
		b[atMagic] = magic
		b[atAttributes] = 0
		b[atAttributes+1] &= attrKnown
		b.seal(nil)
		decode(t, b)
	})
}

func decode(t *testing.T, data []byte) {
	const limit = 1 << 20
	b, rest, err := Split(data)
	if err == nil {
		require.Equal(t, len(data), len(b)+len(rest))
		require.NoError(t, b.CheckHeader())
	}
	b = data
	err = b.Check()
	if err != nil {
		require.ErrorIs(t, err, ErrCorrupt)
	}
	if headerErr := b.CheckHeader(); headerErr == nil {
		require.GreaterOrEqual(t, b.NextOffset(), b.BaseOffset()+Offset(b.Count()))
		_, _, _ = b.LastSequence(), b.MaxTimestamp(), b.CRC()
	}
	it := Iterator{MaxBytes: limit}
	_ = it.Reset(b)
	var r Record
	var count int32
	size, last := 0, NoOffset
	for it.Next(&r) {
		count++
		size += len(r.Key) + len(r.Value)
		for _, h := range r.Headers {
			size += len(h.Key) + len(h.Value)
		}
		require.Greater(t, r.Offset, last)
		require.Less(t, r.Offset, b.NextOffset())
		last = r.Offset
	}
	require.LessOrEqual(t, size, max(limit, len(data)))
	if it.Err() == nil && len(data) >= HeaderSize {
		require.Equal(t, b.Count(), count)
	}
}
