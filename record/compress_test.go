package record

import (
	"bytes"
	"encoding/binary"
	"math"
	"runtime"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"
)

func packed(codec Codec, records []byte) Batch {
	b := raw(1, 0, records...)
	b[atAttributes+1] = byte(codec)
	b.seal(nil)
	return b
}

func TestIteratorStopsAtItsLimit(t *testing.T) {
	value := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for _, codec := range codecs[1:] {
		t.Run(codec.String(), func(t *testing.T) {
			b := build(t, BatchOptions{Codec: codec}, Record{Value: value})
			require.Less(t, len(b), len(value)/5)
			size := build(t, BatchOptions{}, Record{Value: value}).Size() - HeaderSize

			for _, limit := range []int{0, size, size + 1, math.MaxInt} {
				it := Iterator{MaxBytes: limit}
				require.NoError(t, it.Reset(b), "%d bytes, limit %d", size, limit)
				var r Record
				require.True(t, it.Next(&r))
				require.Equal(t, value, r.Value)
			}
			for _, limit := range []int{1, 1000, size / 2, size - 1} {
				it := Iterator{MaxBytes: limit}
				err := it.Reset(b)
				var tooLarge *TooLargeError
				require.ErrorAs(t, err, &tooLarge, "%d bytes, limit %d", size, limit)
				require.Equal(t, limit, tooLarge.Limit)
				require.Greater(t, tooLarge.Size, limit)
				require.Equal(t, err, it.Err())
				require.False(t, it.Next(new(Record)))
			}
		})
	}
}

// TestClaimsCostNoMemory gives every decoder bytes that claim to hold far more
// than so few bytes can.
func TestClaimsCostNoMemory(t *testing.T) {
	hugeZstd := []byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0} // single segment, 8 bytes of content size
	hugeZstd = binary.LittleEndian.AppendUint64(hugeZstd, 1<<26)
	hugeZstd = append(hugeZstd, 1, 0, 0) // last block, raw, empty

	cases := map[string]Batch{
		"snappy block": packed(Snappy, append(binary.AppendUvarint(nil, 100<<20), 0, 'x')),
		"snappy frame": packed(Snappy, append(append([]byte(nil), snappyMagic...),
			0, 0, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0)),
		"lz4 content": packed(LZ4, append([]byte{0x04, 0x22, 0x4d, 0x18, 0x68, 0x70},
			0, 0, 0, 8, 0, 0, 0, 0, 0xff, 3, 0, 0, 0, 0x10, 'x', 0)),
		"zstd content":   packed(Zstd, hugeZstd),
		"record length":  raw(1, 0, append(binary.AppendVarint(nil, math.MaxInt32), 0, 0, 0, 1, 1, 0)...),
		"key length":     raw(1, 0, append([]byte{24, 0, 0, 0}, binary.AppendVarint(nil, math.MaxInt64)...)...),
		"header count":   raw(1, 0, append([]byte{28, 0, 0, 0, 1, 1}, binary.AppendVarint(nil, math.MaxInt32)...)...),
		"count of batch": raw(math.MaxInt32, math.MaxInt32, record0...),
	}
	for name, b := range cases {
		t.Run(name, func(t *testing.T) {
			_, _ = iterate(b) // makes the pooled decoder
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := iterate(b)
			runtime.ReadMemStats(&after)
			require.ErrorIs(t, err, ErrCorrupt)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4<<20))
		})
	}
}

func TestEveryCutOfACompressedBatchIsAnError(t *testing.T) {
	for _, codec := range codecs[1:] {
		b := build(t, BatchOptions{Codec: codec}, hundred(20)...)
		require.Equal(t, codec, b.Codec())
		for size := range len(b) - HeaderSize {
			cut := append(Batch(nil), b[:HeaderSize+size]...)
			binary.BigEndian.PutUint32(cut[atLength:], uint32(len(cut)-lengthEnd))
			_, err := iterate(cut)
			require.ErrorIs(t, err, ErrCorrupt, "%v, %d of %d bytes", codec, size, len(b)-HeaderSize)
		}
	}
}

// TestFormsOfOtherWriters reads what encoders with other settings make of the
// same records.
func TestFormsOfOtherWriters(t *testing.T) {
	want := hundred(5000)
	plain := build(t, BatchOptions{}, want...)
	records := []byte(plain[HeaderSize:])

	forms := map[string]struct {
		codec Codec
		bytes []byte
	}{
		"snappy, one block":       {Snappy, snappy.Encode(nil, records)},
		"zstd, streamed":          {Zstd, zstdStream(t, records)},
		"zstd, two frames":        {Zstd, append(zstdStream(t, records[:1000]), zstdStream(t, records[1000:])...)},
		"lz4, defaults":           {LZ4, lz4Stream(t, records)},
		"lz4, all checksums":      {LZ4, lz4Stream(t, records, lz4.BlockChecksumOption(true), lz4.BlockSizeOption(lz4.Block64Kb))},
		"lz4, content size":       {LZ4, lz4Stream(t, records, lz4.SizeOption(uint64(len(records))))},
		"lz4, high":               {LZ4, lz4Stream(t, records, lz4.CompressionLevelOption(lz4.Level9), lz4.BlockSizeOption(lz4.Block256Kb))},
		"lz4, stored, not packed": {LZ4, lz4StoredFrame(records)},
	}
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			b := append(append(Batch(nil), plain[:HeaderSize]...), form.bytes...)
			binary.BigEndian.PutUint32(b[atLength:], uint32(len(b)-lengthEnd))
			b[atAttributes+1] = byte(form.codec)
			b.seal(nil)
			require.NoError(t, b.Check())
			got, err := iterate(b)
			require.NoError(t, err)
			require.Len(t, got, len(want))
			for i := range want {
				require.Equal(t, want[i].Value, got[i].Value)
			}
		})
	}
}

// TestLinkedBlocksReachBack has a second block that repeats part of the first.
func TestLinkedBlocksReachBack(t *testing.T) {
	frame := []byte{0x04, 0x22, 0x4d, 0x18, 0x40, 0x40, 0xc0}
	frame = append(frame, 16, 0, 0, 0x80)
	frame = append(frame, "0123456789abcdef"...)
	frame = append(frame, 9, 0, 0, 0, 0x08, 16, 0, 0x50) // 12 bytes from 16 back, 5 literals
	frame = append(frame, "vwxyz"...)
	frame = append(frame, 0, 0, 0, 0)

	out, err := decompressLZ4(frame, 100)
	require.NoError(t, err)
	require.Equal(t, "0123456789abcdef0123456789abvwxyz", string(out))

	frame[4] |= lz4Independent
	_, err = decompressLZ4(frame, 100)
	require.Error(t, err)
}

func zstdStream(t *testing.T, src []byte) []byte {
	var buf bytes.Buffer
	w, err := zstd.NewWriter(&buf)
	require.NoError(t, err)
	for len(src) > 0 { // in pieces, so that the size is not known
		n, err := w.Write(src[:min(1000, len(src))])
		require.NoError(t, err)
		src = src[n:]
	}
	require.NoError(t, w.Close())
	return buf.Bytes()
}

func lz4Stream(t *testing.T, src []byte, options ...lz4.Option) []byte {
	var buf bytes.Buffer
	w := lz4.NewWriter(&buf)
	require.NoError(t, w.Apply(options...))
	_, err := w.Write(src)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return buf.Bytes()
}

func lz4StoredFrame(src []byte) []byte {
	out := []byte{0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82}
	for len(src) > 0 {
		n := min(len(src), 64<<10)
		out = binary.LittleEndian.AppendUint32(out, uint32(n)|lz4Stored)
		out = append(out, src[:n]...)
		src = src[n:]
	}
	return append(out, 0, 0, 0, 0)
}
