package coordinator

import (
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

// golden is the record of an id with everything in it.
const (
	goldenKey   = "01 61"
	goldenValue = "01 02 01 0001 0000 0000000000000007 0000000000000007 000000000000ea60 000000e8d4a51000 000000e8d4a51000" +
		"02 4832 01 02 4831 01 07 62696c6c696e67 01 01 74 02 00 8001"
)

func unhex(t testing.TB, text string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	require.NoError(t, err)
	return b
}

func goldenTransaction() *transaction {
	return &transaction{
		Status: Ongoing, Producer: 7, Epoch: 1, Holder: "H2", Past: []string{"H1"}, Timeout: 60_000, Start: 1e12, Updated: 1e12,
		Partitions: map[string][]int32{"t": {0, 128}}, Groups: []string{"billing"},
		LastProducer: 7, LastEpoch: 0, LastCommit: true,
	}
}

func TestTheFormatStaysAsItIs(t *testing.T) {
	r := encode(time.UnixMilli(1e12), "a", goldenTransaction())
	require.Equal(t, unhex(t, goldenKey), r.Key)
	require.Equal(t, hex.EncodeToString(unhex(t, goldenValue)), hex.EncodeToString(r.Value))
	id, back, err := decode(r)
	require.NoError(t, err)
	require.Equal(t, "a", id)
	require.Equal(t, goldenTransaction(), back)
	require.Nil(t, encode(time.UnixMilli(1e12), "a", nil).Value)
}

func TestEveryStateIsDecodedAsItWasEncoded(t *testing.T) {
	for _, status := range []Status{Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort} {
		want := &transaction{Status: status, Producer: 1, Epoch: -1, LastProducer: record.NoProducerID}
		_, got, err := decode(encode(time.Now(), "", want))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestARecordThatIsNotUnderstoodStopsTheFold(t *testing.T) {
	s := NewState()
	key, value := unhex(t, goldenKey), unhex(t, goldenValue)
	refuse := func(what string, key, value []byte) {
		t.Helper()
		require.Error(t, s.Apply(record.Record{Key: key, Value: value}), what)
	}
	with := func(at int, b byte) []byte {
		changed := append([]byte{}, value...)
		changed[at] = b
		return changed
	}
	refuse("no key", nil, value)
	refuse("another kind", []byte("{a"), value)
	refuse("a later version", key, with(0, 2))
	refuse("a state that is none", key, with(1, 0))
	refuse("an unknown state", key, with(1, 7))
	refuse("an unknown flag", key, with(2, 2))
	refuse("a long name", key, with(47, 0xff))
	refuse("many names", key, with(50, 0x7f))
	refuse("a partition above all", key, append(value[:len(value)-2:len(value)-2], 0x80, 0x80, 0x80, 0x80, 0x10))
	refuse("more than there is", key, append(value[:len(value):len(value)], 0))
	for n := range value {
		refuse("cut off", key, value[:n])
	}
	require.Empty(t, s.transactions)
	require.NoError(t, s.Apply(record.Record{Key: key, Value: value}))
	require.Len(t, s.transactions, 1)
}

// FuzzDecode looks for bytes that panic, or that are decoded and encoded to others
// that mean something else.
func FuzzDecode(f *testing.F) {
	f.Add(unhex(f, goldenKey), unhex(f, goldenValue))
	f.Add([]byte{kindTransaction}, []byte{})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		id, got, err := decode(record.Record{Key: key, Value: value})
		if err != nil || got == nil {
			return
		}
		again, back, err := decode(encode(time.Now(), id, got))
		require.NoError(t, err)
		require.Equal(t, id, again)
		require.Equal(t, got, back)
	})
}
