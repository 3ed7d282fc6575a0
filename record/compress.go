package record

import (
	"bytes"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy/xerial"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// The encoders are large and keep nothing from one batch to the next, so they
// are shared by all builders. A pool may give one back or not, at any time.
var (
	scratches    sync.Pool // *[]byte
	gzipWriters  sync.Pool // *gzip.Writer
	lz4Writers   sync.Pool // *lz4.Writer
	zstdEncoders sync.Pool // *zstd.Encoder
)

// pack returns a fresh batch without a header: the records of raw, which has
// room for a header in front, compressed if that makes them smaller. It also
// returns the codec that was used in the end.
func pack(codec Codec, raw []byte) (Batch, Codec, error) {
	if codec == None {
		return append(Batch(nil), raw...), None, nil
	}
	scratch, _ := scratches.Get().(*[]byte)
	if scratch == nil {
		scratch = new([]byte)
	}
	defer scratches.Put(scratch)

	packed, err := codec.compress((*scratch)[:0], raw[HeaderSize:])
	if err != nil {
		return nil, None, err
	}
	*scratch = packed
	if HeaderSize+len(packed) >= len(raw) {
		return append(Batch(nil), raw...), None, nil
	}
	out := make(Batch, HeaderSize+len(packed))
	copy(out[HeaderSize:], packed)
	return out, codec, nil
}

// compress returns src compressed, in dst if there is room; dst is empty. The
// checksums that some of the formats offer are left out where they can be: the
// batch has one of its own.
func (c Codec) compress(dst, src []byte) ([]byte, error) {
	switch c {
	case Gzip:
		return compressGzip(dst, src)
	case Snappy:
		return xerial.Encode(dst, src), nil
	case LZ4:
		return compressLZ4(dst, src)
	case Zstd:
		return compressZstd(dst, src)
	}
	return append(dst, src...), nil
}

func compressGzip(dst, src []byte) ([]byte, error) {
	out := bytes.NewBuffer(dst)
	w, _ := gzipWriters.Get().(*gzip.Writer)
	if w == nil {
		w = gzip.NewWriter(out)
	} else {
		w.Reset(out)
	}
	defer gzipWriters.Put(w)

	if _, err := w.Write(src); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// compressLZ4 writes one frame of independent blocks of 64 KiB, the form that
// every client reads.
func compressLZ4(dst, src []byte) ([]byte, error) {
	out := bytes.NewBuffer(dst)
	w, _ := lz4Writers.Get().(*lz4.Writer)
	if w == nil {
		w = lz4.NewWriter(out)
		if err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false)); err != nil {
			return nil, err
		}
	} else {
		w.Reset(out)
	}
	defer lz4Writers.Put(w)

	if _, err := w.Write(src); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func compressZstd(dst, src []byte) ([]byte, error) {
	e, _ := zstdEncoders.Get().(*zstd.Encoder)
	if e == nil {
		var err error
		if e, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false)); err != nil {
			return nil, err
		}
	}
	defer zstdEncoders.Put(e)
	return e.EncodeAll(src, dst), nil
}
