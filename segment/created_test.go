package segment

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

func TestTheHeaderTellsWhenTheFileWasMade(t *testing.T) {
	h := Header{
		TopicID: record.TopicID{15: 0xff}, Partition: 3, BaseOffset: 1000, BaseEntry: 50, PrevTerm: 6,
		Created: 0x0123456789ab, Latest: 0x0123456789ac,
	}
	b := h.Encode()
	require.Len(t, b, HeaderSize)
	require.Equal(t, "0000000000000006"+"00000123456789ab"+"00000123456789ac"+"00000003", hex.EncodeToString(b[48:76]))
	got, err := DecodeHeader(b)
	require.NoError(t, err)
	require.Equal(t, h, got)

	h.Latest = h.Created - 1
	_, err = DecodeHeader(h.Encode())
	require.ErrorContains(t, err, "impossible", "the latest of some times is none before one of them")
}

func TestTheNextHeaderRemembersTheLatestTime(t *testing.T) {
	h := Header{Partition: 3, BaseEntry: 1, Created: 500, Latest: 500}
	x := Extent{NextOffset: 7, NextEntry: 9, LastTerm: 2}
	next := h.Behind(x, 400) // the clock was set back
	require.Equal(t, Header{Partition: 3, BaseOffset: 7, BaseEntry: 9, PrevTerm: 2, Created: 400, Latest: 500}, next)
	require.Equal(t, int64(500), next.Behind(x, 450).Latest)
	require.Equal(t, int64(600), next.Behind(x, 600).Latest)
}
