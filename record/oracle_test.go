package record

import (
	"bytes"
	stdgzip "compress/gzip"
	"encoding/binary"
	"hash/crc32"
	"io"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy/xerial"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The oracle is another client's description of the same format, with the
// compression libraries' own stream readers and writers.

func TestAnotherClientReadsWhatWeWrite(t *testing.T) {
	rnd := source(t)
	for round := range 25 {
		codec := codecs[round%len(codecs)]
		want := randomRecords(rnd, 1+rnd.IntN(100))
		stamp := &ProducerStamp{ID: ProducerID(rnd.Int64()), Epoch: 12, Sequence: Sequence(rnd.Int32())}
		b := build(t, BatchOptions{Codec: codec, Producer: stamp, Transactional: true}, want...)
		b.Stamp(1000, 4)

		var rb kmsg.RecordBatch
		require.NoError(t, rb.ReadFrom(b))
		require.Equal(t, int64(1000), rb.FirstOffset)
		require.Equal(t, int32(len(b)-12), rb.Length)
		require.Equal(t, int32(4), rb.PartitionLeaderEpoch)
		require.Equal(t, int8(2), rb.Magic)
		require.Equal(t, crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)), uint32(rb.CRC))
		require.Equal(t, int16(b.Codec())|0x10, rb.Attributes)
		require.Equal(t, int32(len(want)-1), rb.LastOffsetDelta)
		require.Equal(t, want[0].Time.UnixMilli(), rb.FirstTimestamp)
		require.Equal(t, b.MaxTimestamp(), rb.MaxTimestamp)
		require.Equal(t, int64(stamp.ID), rb.ProducerID)
		require.Equal(t, int16(12), rb.ProducerEpoch)
		require.Equal(t, int32(stamp.Sequence), rb.FirstSequence)
		require.Equal(t, int32(len(want)), rb.NumRecords)

		rest := oracleDecompress(t, b.Codec(), rb.Records)
		latest := int64(0)
		for i := range want {
			size, n := binary.Varint(rest)
			var r kmsg.Record
			require.NoError(t, r.ReadFrom(rest[:n+int(size)]))
			rest = rest[n+int(size):]
			at := rb.FirstTimestamp + r.TimestampDelta64
			latest = max(latest, at)
			require.Equal(t, want[i].Time.UnixMilli(), at)
			require.Equal(t, int32(i), r.OffsetDelta)
			require.Equal(t, want[i].Key, r.Key)
			require.Equal(t, want[i].Value, r.Value)
			require.Len(t, r.Headers, len(want[i].Headers))
			for j, h := range want[i].Headers {
				require.Equal(t, h, Header(r.Headers[j]))
			}
		}
		require.Empty(t, rest)
		require.Equal(t, latest, rb.MaxTimestamp)
	}
}

func TestWeReadWhatAnotherClientWrites(t *testing.T) {
	rnd := source(t)
	for round := range 25 {
		codec := codecs[round%len(codecs)]
		want := randomRecords(rnd, 1+rnd.IntN(100))
		rb := kmsg.RecordBatch{
			FirstOffset: 77, PartitionLeaderEpoch: 3, Magic: 2,
			Attributes:      int16(codec),
			LastOffsetDelta: int32(len(want) - 1),
			FirstTimestamp:  want[0].Time.UnixMilli(),
			ProducerID:      5, ProducerEpoch: 6, FirstSequence: 7,
			NumRecords: int32(len(want)),
		}
		var records []byte
		for i := range want {
			r := &want[i]
			r.Offset, r.LeaderEpoch = Offset(77+i), 3
			rb.MaxTimestamp = max(rb.MaxTimestamp, r.Time.UnixMilli())
			records = appendOracle(records, r, r.Time.UnixMilli()-rb.FirstTimestamp, int32(i))
		}
		rb.Records = oracleCompress(t, codec, records)
		rb.Length = int32(HeaderSize - 12 + len(rb.Records))
		b := Batch(rb.AppendTo(nil))
		binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))

		require.NoError(t, b.Check())
		require.Equal(t, codec, b.Codec())
		require.Equal(t, Offset(77+len(want)), b.NextOffset())
		require.Equal(t, ProducerID(5), b.ProducerID())
		require.Equal(t, ProducerEpoch(6), b.ProducerEpoch())
		require.Equal(t, Sequence(7), b.BaseSequence())
		require.Equal(t, time.UnixMilli(rb.MaxTimestamp).UnixMilli(), b.MaxTimestamp())
		got, err := iterate(b)
		require.NoError(t, err)
		require.Equal(t, want, got, "round %d, %v", round, codec)

		if codec == None { // the codec has no freedom: we write the same bytes
			ours := build(t, BatchOptions{Producer: &ProducerStamp{5, 6, 7}}, want...)
			ours.Stamp(77, 3)
			require.Equal(t, b, ours)
		}
	}
}

func appendOracle(dst []byte, r *Record, timeDelta int64, offsetDelta int32) []byte {
	o := kmsg.Record{TimestampDelta64: timeDelta, OffsetDelta: offsetDelta, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		o.Headers = append(o.Headers, kmsg.Header(h))
	}
	o.Length = int32(len(o.AppendTo(nil)) - 1) // a length of 0 takes one byte
	return o.AppendTo(dst)
}

func oracleDecompress(t *testing.T, codec Codec, src []byte) []byte {
	var r io.Reader = bytes.NewReader(src)
	var err error
	switch codec {
	case Gzip:
		r, err = stdgzip.NewReader(r)
	case Snappy:
		src, err = xerial.Decode(src)
		r = bytes.NewReader(src)
	case LZ4:
		r = lz4.NewReader(r)
	case Zstd:
		var d *zstd.Decoder
		d, err = zstd.NewReader(r)
		defer d.Close()
		r = d
	}
	require.NoError(t, err)
	out, err := io.ReadAll(r)
	require.NoError(t, err)
	return out
}

func oracleCompress(t *testing.T, codec Codec, src []byte) []byte {
	var buf bytes.Buffer
	var w io.WriteCloser
	switch codec {
	case None:
		return src
	case Snappy:
		return xerial.EncodeBetter(nil, src)
	case Gzip:
		w = stdgzip.NewWriter(&buf)
	case LZ4:
		w = lz4.NewWriter(&buf)
	case Zstd:
		e, err := zstd.NewWriter(&buf, zstd.WithEncoderLevel(zstd.SpeedBestCompression))
		require.NoError(t, err)
		w = e
	}
	_, err := w.Write(src)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return buf.Bytes()
}
