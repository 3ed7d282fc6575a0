package record

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRecordsComeBackAsTheyWereSent(t *testing.T) {
	rnd := source(t)
	for round := range 60 {
		codec := codecs[round%len(codecs)]
		want := randomRecords(rnd, 1+rnd.IntN(200))
		b := build(t, BatchOptions{Codec: codec}, want...)
		require.NoError(t, b.Check())
		got, err := iterate(b)
		require.NoError(t, err)
		require.Equal(t, want, got, "round %d, %v", round, codec)
	}
}

func TestLenIsTheSizeOfTheUncompressedBatch(t *testing.T) {
	rnd := source(t)
	var b Builder
	require.Equal(t, HeaderSize, b.Len())
	for _, r := range randomRecords(rnd, 200) {
		before := b.Len()
		require.NoError(t, b.Append(&r))
		require.LessOrEqual(t, b.Len()-before, SizeOf(&r))
		require.LessOrEqual(t, SizeOf(&r)-(b.Len()-before), 20, "an upper bound, but not a loose one")
		batch, err := b.Build(BatchOptions{})
		require.NoError(t, err)
		require.Len(t, batch, b.Len())
	}
}

func TestSizeOfBoundsExtremeTimes(t *testing.T) {
	far := Record{Time: time.UnixMilli(-1 << 62)}
	var b Builder
	require.NoError(t, b.Append(&Record{Time: time.UnixMilli(1 << 61)}))
	before := b.Len()
	require.NoError(t, b.Append(&far))
	require.LessOrEqual(t, b.Len()-before, SizeOf(&far))
	batch, err := b.Build(BatchOptions{})
	require.NoError(t, err)
	got, err := iterate(batch)
	require.NoError(t, err)
	require.Equal(t, far.Time, got[1].Time)
}

func TestBuilderIsUsableAfterBuildAndAfterReset(t *testing.T) {
	var b Builder
	require.NoError(t, b.Append(&Record{Time: time.UnixMilli(5), Value: []byte("one")}))
	first, err := b.Build(BatchOptions{})
	require.NoError(t, err)
	kept := append(Batch(nil), first...)
	require.NoError(t, b.Append(&Record{Time: time.UnixMilli(6), Value: []byte("two")}))
	second, err := b.Build(BatchOptions{})
	require.NoError(t, err)
	require.Equal(t, int32(2), second.Count())

	b.Reset()
	require.Zero(t, b.Count())
	require.Equal(t, HeaderSize, b.Len())
	require.NoError(t, b.Append(&Record{Time: time.UnixMilli(4), Value: []byte("three")}))
	third, err := b.Build(BatchOptions{})
	require.NoError(t, err)
	require.Equal(t, int64(4), third.BaseTimestamp())
	require.Equal(t, int64(4), third.MaxTimestamp(), "times before Reset are forgotten")
	require.Equal(t, kept, first, "a batch that was built is its caller's")
}

func TestAppendCopiesAtOnce(t *testing.T) {
	value := []byte("before")
	var b Builder
	require.NoError(t, b.Append(&Record{Value: value}))
	copy(value, "after!")
	batch, err := b.Build(BatchOptions{})
	require.NoError(t, err)
	got, err := iterate(batch)
	require.NoError(t, err)
	require.Equal(t, "before", string(got[0].Value))
}

func TestZeroTimeIsNowAndTimesAreCutToMilliseconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exact := time.UnixMicro(1_700_000_000_123_999)
		got, err := iterate(build(t, BatchOptions{}, Record{}, Record{Time: exact}))
		require.NoError(t, err)
		require.True(t, got[0].Time.Equal(time.Now().Truncate(time.Millisecond)))
		require.Equal(t, exact.Truncate(time.Millisecond), got[1].Time)
	})
}

func TestWhatDoesNotShrinkStaysUncompressed(t *testing.T) {
	rnd := source(t)
	noise := make([]byte, 1000)
	for i := range noise {
		noise[i] = byte(rnd.Uint32())
	}
	for _, codec := range codecs {
		b := build(t, BatchOptions{Codec: codec}, Record{Value: noise})
		require.Equal(t, None, b.Codec(), "%v", codec)
		require.NoError(t, b.Check())

		b = build(t, BatchOptions{Codec: codec}, Record{Value: []byte(strings.Repeat("same ", 200))})
		require.Equal(t, codec, b.Codec())
		require.NoError(t, b.Check())
	}
}

func TestTooLargeRecordsAndBatchesAreRefusedWhole(t *testing.T) {
	var b Builder
	var tooLarge *TooLargeError
	value := make([]byte, MaxBatchBytes)

	require.ErrorAs(t, b.Append(&Record{Value: value}), &tooLarge)
	require.Equal(t, "record", tooLarge.What)
	require.Equal(t, MaxBatchBytes-HeaderSize, tooLarge.Limit)
	require.Zero(t, b.Count())

	require.NoError(t, b.Append(&Record{Time: time.UnixMilli(9), Value: value[:MaxBatchBytes-200]}))
	before := b.Len()
	require.ErrorAs(t, b.Append(&Record{Time: time.UnixMilli(10), Value: value[:200]}), &tooLarge)
	require.Equal(t, "batch", tooLarge.What)
	require.Equal(t, MaxBatchBytes, tooLarge.Limit)
	require.Equal(t, before, b.Len())

	room := MaxBatchBytes - b.Len() - 9 // what a record has besides its value here
	require.Error(t, b.Append(&Record{Time: time.UnixMilli(9), Value: value[:room+1]}))
	require.NoError(t, b.Append(&Record{Time: time.UnixMilli(9), Value: value[:room]}))
	require.Equal(t, MaxBatchBytes, b.Len())
	batch, err := b.Build(BatchOptions{})
	require.NoError(t, err)
	require.NoError(t, batch.CheckHeader())
	require.Equal(t, int64(9), batch.MaxTimestamp(), "what was refused leaves nothing behind")
}

func TestBuildRefusesWhatMakesNoSense(t *testing.T) {
	var b Builder
	_, err := b.Build(BatchOptions{})
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "needs a record")

	require.NoError(t, b.Append(&Record{}))
	for name, opt := range map[string]BatchOptions{
		"codec below":            {Codec: -1},
		"codec above":            {Codec: Zstd + 1},
		"no producer id":         {Producer: &ProducerStamp{ID: NoProducerID}},
		"no epoch":               {Producer: &ProducerStamp{Epoch: -1}},
		"no sequence":            {Producer: &ProducerStamp{Sequence: NoSequence}},
		"wrong marker sequence":  {Control: true, Producer: &ProducerStamp{Sequence: -2}},
		"transactional, no base": {Transactional: true, Producer: &ProducerStamp{Sequence: NoSequence}},
	} {
		_, err := b.Build(opt)
		require.ErrorIs(t, err, ErrInvalid, name)
	}
}

func TestACodecThatIsNotKnownHasItsNumberForAName(t *testing.T) {
	require.Equal(t, "zstd", Zstd.String())
	require.Equal(t, "codec(5)", Codec(5).String())
	require.Equal(t, "codec(-1)", Codec(-1).String())
}
