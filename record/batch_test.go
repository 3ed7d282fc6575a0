package record

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func sample(t testing.TB) Batch {
	return build(t, BatchOptions{Producer: &ProducerStamp{ID: 7, Epoch: 3, Sequence: math.MaxInt32}, Transactional: true},
		Record{Time: time.UnixMilli(1000), Key: []byte("k"), Value: []byte("v")},
		Record{Time: time.UnixMilli(3000), Value: []byte("late")},
		Record{Time: time.UnixMilli(500), Key: []byte("early")},
	)
}

func TestHeaderTellsWhatTheBatchHoldsWithoutDecoding(t *testing.T) {
	b := sample(t)
	require.NoError(t, b.Check())
	require.Equal(t, len(b), b.Size())
	require.Equal(t, Offset(0), b.BaseOffset())
	require.Equal(t, Offset(2), b.LastOffset())
	require.Equal(t, Offset(3), b.NextOffset())
	require.Equal(t, NoLeaderEpoch, b.LeaderEpoch())
	require.Equal(t, None, b.Codec())
	require.True(t, b.IsTransactional())
	require.False(t, b.IsControl())
	require.False(t, b.HasLogAppendTime())
	require.Equal(t, int64(1000), b.BaseTimestamp(), "the first record's, not the earliest")
	require.Equal(t, int64(3000), b.MaxTimestamp())
	require.Equal(t, ProducerID(7), b.ProducerID())
	require.Equal(t, ProducerEpoch(3), b.ProducerEpoch())
	require.Equal(t, Sequence(math.MaxInt32), b.BaseSequence())
	require.Equal(t, Sequence(1), b.LastSequence(), "0 follows 2^31-1")
	require.Equal(t, int32(3), b.Count())
}

func TestBatchWithoutProducerSaysSo(t *testing.T) {
	b := build(t, BatchOptions{Control: true}, Record{})
	require.NoError(t, b.Check())
	require.Equal(t, NoProducerID, b.ProducerID())
	require.Equal(t, ProducerEpoch(-1), b.ProducerEpoch())
	require.Equal(t, NoSequence, b.BaseSequence())
	require.Equal(t, NoSequence, b.LastSequence())
	require.True(t, b.IsControl())
	require.False(t, b.IsTransactional())
}

func TestStampMovesTheRecordsAndKeepsTheChecksum(t *testing.T) {
	b := sample(t)
	sum := b.CRC()
	b.Stamp(1<<40, 9)
	require.NoError(t, b.Check())
	require.Equal(t, sum, b.CRC())
	require.Equal(t, Offset(1<<40), b.BaseOffset())
	require.Equal(t, Offset(1<<40+3), b.NextOffset())
	records, err := iterate(b)
	require.NoError(t, err)
	require.Equal(t, Offset(1<<40+2), records[2].Offset)
	require.Equal(t, LeaderEpoch(9), records[2].LeaderEpoch)
}

func TestCheckHeaderNamesTheWrongField(t *testing.T) {
	be := binary.BigEndian
	cases := map[string]struct {
		wrong func(b Batch) Batch
		want  string
	}{
		"empty":                   {func(b Batch) Batch { return nil }, "0 bytes"},
		"shorter than a header":   {func(b Batch) Batch { return b[:HeaderSize-1] }, "60 bytes"},
		"cut off":                 {func(b Batch) Batch { return b[:len(b)-1] }, "header says"},
		"bytes after it":          {func(b Batch) Batch { return append(b, 0) }, "header says"},
		"length below zero":       {func(b Batch) Batch { be.PutUint32(b[8:], 1<<31); return b }, "header says"},
		"magic of an older form":  {func(b Batch) Batch { b[16] = 1; return b }, "magic 1"},
		"attributes from later":   {func(b Batch) Batch { b[21] |= 0x01; return b }, "unknown attributes 0x0100"},
		"attribute bit 7":         {func(b Batch) Batch { b[22] |= 0x80; return b }, "unknown attributes 0x0080"},
		"codec 5":                 {func(b Batch) Batch { b[22] |= 5; return b }, "unknown codec 5"},
		"base offset below zero":  {func(b Batch) Batch { be.PutUint64(b, math.MaxUint64); return b }, "base offset below zero"},
		"offsets past the end":    {func(b Batch) Batch { be.PutUint64(b, math.MaxInt64-2); return b }, "past 2^63-1"},
		"leader epoch below -1":   {func(b Batch) Batch { be.PutUint32(b[12:], math.MaxUint32-1); return b }, "leader epoch -2"},
		"last delta below zero":   {func(b Batch) Batch { be.PutUint32(b[23:], math.MaxUint32); return b }, "last offset delta -1"},
		"count below zero":        {func(b Batch) Batch { be.PutUint32(b[57:], math.MaxUint32); return b }, "-1 records"},
		"more records than place": {func(b Batch) Batch { be.PutUint32(b[57:], 4); return b }, "4 records in 3 offsets"},
		"producer id below -1":    {func(b Batch) Batch { be.PutUint64(b[43:], math.MaxUint64-1); return b }, "producer id -2"},
		"producer without epoch":  {func(b Batch) Batch { be.PutUint16(b[51:], math.MaxUint16); return b }, "without an epoch"},
		"producer without seq":    {func(b Batch) Batch { be.PutUint32(b[53:], math.MaxUint32); return b }, "without a sequence"},
		"sequence below -1":       {func(b Batch) Batch { b[22] |= 0x20; be.PutUint32(b[53:], math.MaxUint32-1); return b }, "without a sequence"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := c.wrong(sample(t))
			err := b.CheckHeader()
			require.ErrorContains(t, err, c.want)
			require.ErrorIs(t, err, ErrCorrupt)
			require.ErrorAs(t, err, new(*BatchError))
			require.Equal(t, err, b.Check())
			require.Equal(t, err, new(Iterator).Reset(b))
		})
	}
}

func TestMarkerOfATransactionNeedsNoSequence(t *testing.T) {
	b := build(t, BatchOptions{Control: true, Transactional: true, Producer: &ProducerStamp{ID: 7, Sequence: NoSequence}}, Record{})
	require.NoError(t, b.Check())
	require.Equal(t, NoSequence, b.LastSequence())
}

func TestBatchAboveTheLimitIsTooLarge(t *testing.T) {
	b := append(sample(t), make([]byte, MaxBatchBytes)...)
	binary.BigEndian.PutUint32(b[atLength:], uint32(len(b)-lengthEnd))
	var tooLarge *TooLargeError
	require.ErrorAs(t, b.CheckHeader(), &tooLarge)
	require.Equal(t, &TooLargeError{What: "batch", Size: len(b), Limit: MaxBatchBytes}, tooLarge)
}

// TestCheckSeesEveryFlippedBit covers the promise that nothing but the place of
// a batch can change unnoticed.
func TestCheckSeesEveryFlippedBit(t *testing.T) {
	good := sample(t)
	for i := range good {
		for bit := range 8 {
			b := append(Batch(nil), good...)
			b[i] ^= 1 << bit
			err := b.Check()
			if i < atLength || i >= atLeaderEpoch && i < atMagic {
				continue // the leader's part
			}
			require.ErrorIs(t, err, ErrCorrupt, "byte %d, bit %d", i, bit)
		}
	}
}

func TestSplitCutsAConcatenationIntoItsBatches(t *testing.T) {
	first, second := sample(t), build(t, BatchOptions{}, Record{Value: []byte("x")})
	buf := append(append([]byte(nil), first...), second...)

	b, rest, err := Split(buf)
	require.NoError(t, err)
	require.Equal(t, first, b)
	require.Equal(t, []byte(second), rest)
	require.Equal(t, len(b), cap(b), "growing one batch must not write into the next")

	b, rest, err = Split(rest)
	require.NoError(t, err)
	require.Equal(t, second, b)
	require.Empty(t, rest)
}

func TestSplitRefusesWhatIsNotAWholeBatch(t *testing.T) {
	good := sample(t)
	for size := range good {
		_, _, err := Split(good[:size])
		require.ErrorIs(t, err, ErrCorrupt, "%d of %d bytes", size, len(good))
	}
	for _, length := range []uint32{0, HeaderSize - lengthEnd - 1, math.MaxInt32, 1 << 31, math.MaxUint32} {
		b := append(Batch(nil), good...)
		binary.BigEndian.PutUint32(b[atLength:], length)
		_, _, err := Split(b)
		require.ErrorIs(t, err, ErrCorrupt, "length %d", length)
	}
	bad := append(Batch(nil), good...)
	bad[atMagic] = 0
	_, _, err := Split(bad)
	require.ErrorContains(t, err, "magic")
}

func TestReissueCarriesTheSameRecordsUnderAnotherStamp(t *testing.T) {
	b := sample(t)
	want, err := iterate(b)
	require.NoError(t, err)
	b.Stamp(100, 5)
	before := append(Batch(nil), b...)

	for _, stamp := range []*ProducerStamp{{ID: 8, Epoch: 1, Sequence: 40}, nil} {
		again := b.Reissue(stamp)
		require.NoError(t, again.Check())
		require.Equal(t, Offset(0), again.BaseOffset())
		require.Equal(t, NoLeaderEpoch, again.LeaderEpoch())
		if stamp != nil {
			require.Equal(t, *stamp, ProducerStamp{again.ProducerID(), again.ProducerEpoch(), again.BaseSequence()})
		} else {
			require.Equal(t, NoProducerID, again.ProducerID())
		}
		got, err := iterate(again)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, before, b, "the batch in the log is left alone")
	}
}

func TestControlKeyIsWhatReadersExpect(t *testing.T) {
	require.Equal(t, []byte{0, 0, 0, 0}, ControlAbort.Key())
	require.Equal(t, []byte{0, 0, 0, 1}, ControlCommit.Key())
	got, err := ParseControlKey([]byte{0, 0, 0x12, 0x34})
	require.NoError(t, err)
	require.Equal(t, ControlType(0x1234), got, "unknown types are for the reader to skip")
	for _, key := range [][]byte{nil, {0, 0, 0}, {0, 1, 0, 0}, {1, 0, 0, 0}, {0, 0, 0, 0, 0}} {
		_, err := ParseControlKey(key)
		require.ErrorIs(t, err, ErrCorrupt, "%x", key)
	}
}
