package segment

import (
	"context"
	"hash/crc32"
	"path"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
)

func crcOf(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

func FuzzDecodeHeader(f *testing.F) {
	f.Add(testHeader().Encode(), false)
	f.Add([]byte(magic), true)
	f.Fuzz(func(t *testing.T, b []byte, right bool) {
		if right && len(b) >= HeaderSize { // let the fuzzer past the checksums
			be.PutUint32(b[12:], crcOf(b[:12]))
			be.PutUint32(b[HeaderSize-4:], crcOf(b[:HeaderSize-4]))
		}
		h, err := DecodeHeader(b)
		if err == nil {
			require.Equal(t, b[:HeaderSize], h.Encode())
		}
	})
}

func FuzzDecodeFrame(f *testing.F) {
	e := batchEntry(f, 50, 7, 1000, "one")
	b := make([]byte, frameSize)
	e.frame(3).put(b, 9)
	f.Add(b, []byte(e.Data))
	f.Fuzz(func(t *testing.T, b, payload []byte) {
		if len(b) < frameSize {
			return
		}
		be.PutUint32(b, crc32.Update(9, castagnoli, b[4:frameSize]))
		fr, ok := decodeFrame(b, 9)
		if !ok {
			return
		}
		again := make([]byte, frameSize)
		fr.put(again, 9)
		require.Equal(t, b[:frameSize], again)
		if fr.matches(payload) == "" {
			e := fr.entry(payload)
			if e.Kind == KindBatch && e.Number > 0 {
				require.NoError(t, e.Check())
			}
		}
	})
}

// FuzzScan opens a segment file of any bytes behind a good header. What the scan
// accepts can be read; looking for damage behind it does not fail.
func FuzzScan(f *testing.F) {
	disk := vfs.NewMem()
	s := create(f, disk, testHeader())
	x := fill(f, s)
	b, err := disk.ReadFile(s.File())
	require.NoError(f, err)
	f.Add(b[HeaderSize:], uint16(0))
	f.Add(b[HeaderSize:], uint16(60))
	f.Add(b[HeaderSize:x.Size-7], uint16(1000))
	f.Fuzz(func(t *testing.T, b []byte, repair uint16) {
		// Repairing the checksum of one place lets the fuzzer past it.
		if i := int(repair); i+frameSize <= len(b) {
			be.PutUint32(b[i:], crc32.Update(seed(testHeader().Encode()), castagnoli, b[i+4:i+frameSize]))
		}
		disk := vfs.NewMem()
		name := path.Base(testHeader().Name("")) + LogSuffix
		writeFile(t, disk, name, append(testHeader().Encode(), b...))
		s, err := Open(disk, dir, name, 100)
		require.NoError(t, err)
		size := int64(HeaderSize + len(b))
		x, reason, err := s.Scan(context.Background(), s.Empty(), size)
		require.NoError(t, err)
		require.Equal(t, reason == "", x.Size == size)
		_, _, err = s.Damaged(context.Background(), x, size)
		require.NoError(t, err)
		for n := s.BaseEntry; n < x.NextEntry; n++ {
			at, err := s.FindEntry(x, n)
			require.NoError(t, err)
			e, next, err := s.ReadEntry(x, at)
			require.NoError(t, err)
			require.Equal(t, n, e.Number)
			if e.Kind == KindBatch {
				batches, _, err := s.Read(x, at, e.Offset, next.Offset, 1)
				require.NoError(t, err)
				require.Equal(t, record.Batch(e.Data), batches[0])
			}
		}
	})
}
