package record

import "fmt"

// Codec is how the records of a batch are compressed. The numbers are part of
// the format.
type Codec int8

// The codecs. All of them can be read always; which one is written is the
// producer's choice.
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
