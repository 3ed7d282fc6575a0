package record

import (
	"fmt"
)

// Codec says how the records of a batch are compressed. The numbers are Kafka's.
type Codec int8

// Constants of the format.
const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

var codecNames = [...]string{"none", "gzip", "snappy", "lz4", "zstd"}

func (c Codec) known() bool { return c >= None && c <= Zstd }

// String returns "none", "gzip", "snappy", "lz4" or "zstd".
func (c Codec) String() string {
	if !c.known() {
		return fmt.Sprintf("codec(%d)", int8(c))
	}
	return codecNames[c]
}

// compress appends the compressed src to dst.
func (c Codec) compress(dst, src []byte) ([]byte, error) {
	switch c {
	case None:
		return append(dst, src...), nil
	}
	return nil, fmt.Errorf("%w: codec %d", ErrInvalid, c)
}

// decompress returns src decompressed, in memory of its own unless c is None.
func (c Codec) decompress(src []byte, limit int) ([]byte, error) {
	switch c {
	case None:
		return src, nil
	}
	return nil, fmt.Errorf("%w: codec %d", ErrInvalid, c)
}
