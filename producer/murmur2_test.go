package producer

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The values are those of the tests of Kafka's own client, and for each length of
// the tail those that Apache Pekko's tests got from it.
func TestMurmur2IsKafkas(t *testing.T) {
	for key, want := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
		"1":   -1993445489, "12": 126087238, "123": -267702483, "1234": -1614185708, "12345": -1188365604,
	} {
		require.Equal(t, want, int32(murmur2([]byte(key))), key)
		require.Equal(t, int(want&0x7fffffff)%12, KeyPartition([]byte(key), 12), key)
	}
}
