package record

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// raw returns a batch with a right header and checksum around any bytes.
func raw(count, lastDelta int32, records ...byte) Batch {
	b := append(make(Batch, HeaderSize), records...)
	binary.BigEndian.PutUint32(b[atLength:], uint32(len(b)-lengthEnd))
	b[atMagic] = magic
	binary.BigEndian.PutUint32(b[atLastOffsetDelta:], uint32(lastDelta))
	binary.BigEndian.PutUint32(b[atCount:], uint32(count))
	b.seal(nil)
	return b
}

// Numbers inside records are zigzag varints: 2 is 1, 1 is -1, 0 is 0.
var (
	record0 = []byte{12, 0, 0, 0, 1, 1, 0} // offset delta 0, no key, no value, no headers
	record1 = []byte{12, 0, 0, 2, 1, 1, 0} // offset delta 1
)

func TestMalformedRecordsAreNamed(t *testing.T) {
	long := bytes.Repeat([]byte{0x80}, 11)
	cases := map[string]struct {
		batch Batch
		want  string
	}{
		"fewer than the header says":  {raw(2, 1, record0...), "record 1 of 2: a number is cut off"},
		"more than the header says":   {raw(1, 1, slices.Concat(record0, record1)...), "7 bytes after the last record"},
		"none, but bytes":             {raw(0, 0, record0...), "7 bytes after"},
		"length past the end":         {raw(1, 0, 14, 0, 0, 0, 1, 1, 0), "a field is longer"},
		"length below zero":           {raw(1, 0, 1, 0, 0, 0, 1, 1, 0), "a field is longer"},
		"length without end":          {raw(1, 0, long...), "a number is cut off or too long"},
		"length of nothing":           {raw(1, 0, 0), "a record is cut off"},
		"length too short for fields": {raw(1, 0, 10, 0, 0, 0, 1, 1, 0), "a number is cut off"},
		"length beyond the fields":    {raw(1, 0, 14, 0, 0, 0, 1, 1, 0, 0), "a record is longer than its fields"},
		"key length of -2":            {raw(1, 0, 12, 0, 0, 0, 3, 1, 0), "a field is longer"},
		"key beyond the record":       {raw(1, 0, 12, 0, 0, 0, 100, 1, 0), "a field is longer"},
		"value length of -2":          {raw(1, 0, 12, 0, 0, 0, 1, 3, 0), "a field is longer"},
		"headers below zero":          {raw(1, 0, 12, 0, 0, 0, 1, 1, 1), "more headers than bytes"},
		"headers without bytes":       {raw(1, 0, 12, 0, 0, 0, 1, 1, 2), "more headers than bytes"},
		"header without a key":        {raw(1, 0, 16, 0, 0, 0, 1, 1, 2, 1, 1), "a field is longer"},
		"header value cut off":        {raw(1, 0, 16, 0, 0, 0, 1, 1, 2, 0, 2), "a field is longer"},
		"offset above the last":       {raw(1, 0, record1...), "offsets do not rise within the range"},
		"offset below zero":           {raw(1, 0, 12, 0, 0, 1, 1, 1, 0), "offsets do not rise"},
		"offset twice":                {raw(2, 1, slices.Concat(record0, record0)...), "record 1 of 2: offsets do not rise"},
		"offset falls":                {raw(2, 1, slices.Concat(record1, record0)...), "offsets do not rise"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, c.batch.Check(), "only decoding shows it")
			_, err := iterate(c.batch)
			require.ErrorContains(t, err, c.want)
			require.ErrorIs(t, err, ErrCorrupt)
			require.ErrorAs(t, err, new(*BatchError))
		})
	}
}

func TestCompactedBatchKeepsTheOffsetsOfWhatIsLeft(t *testing.T) {
	b := raw(2, 9, slices.Concat(record0, []byte{12, 0, 0, 14, 1, 1, 0})...)
	b.Stamp(100, 1)
	got, err := iterate(b)
	require.NoError(t, err)
	require.Equal(t, []Offset{100, 107}, []Offset{got[0].Offset, got[1].Offset})
	require.Equal(t, Offset(110), b.NextOffset())

	got, err = iterate(raw(0, 9))
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestLogAppendTimeIsTheTimeOfAllRecords(t *testing.T) {
	b := build(t, BatchOptions{}, Record{Time: time.UnixMilli(1)}, Record{Time: time.UnixMilli(2)})
	b[atAttributes+1] |= attrLogAppendTime
	binary.BigEndian.PutUint64(b[atMaxTimestamp:], 5000)
	b.seal(nil)
	require.True(t, b.HasLogAppendTime())
	got, err := iterate(b)
	require.NoError(t, err)
	require.Equal(t, time.UnixMilli(5000), got[0].Time)
	require.Equal(t, time.UnixMilli(5000), got[1].Time)
}

func TestNilAndEmptyAreNotTheSame(t *testing.T) {
	want := []Record{
		{Time: time.UnixMilli(1)},
		{Time: time.UnixMilli(1), Key: []byte{}, Value: []byte{}, Headers: []Header{{}, {Key: "k", Value: []byte{}}}},
	}
	got, err := iterate(build(t, BatchOptions{}, want...))
	require.NoError(t, err)
	require.Nil(t, got[0].Key)
	require.Nil(t, got[0].Value)
	require.Nil(t, got[0].Headers)
	require.NotNil(t, got[1].Key)
	require.NotNil(t, got[1].Value)
	require.Equal(t, want[1].Headers, got[1].Headers)
}

// TestKeptRecordsStayAsTheyWere reads many batches with one iterator, writes
// behind the end of every slice it got, and looks at all of them afterwards.
func TestKeptRecordsStayAsTheyWere(t *testing.T) {
	rnd := source(t)
	var (
		it         Iterator
		want, kept []Record
	)
	for i := range 20 {
		records := randomRecords(rnd, 50)
		want = append(want, records...)
		require.NoError(t, it.Reset(build(t, BatchOptions{Codec: codecs[i%len(codecs)]}, records...)))
		var r Record
		for it.Next(&r) {
			kept = append(kept, r)
			_ = append(r.Key, "XXXX"...)
			_ = append(r.Value, "XXXX"...)
			_ = append(r.Headers, Header{Key: "XXXX"})
			for _, h := range r.Headers {
				_ = append(h.Value, "XXXX"...)
			}
		}
		require.NoError(t, it.Err())
	}
	require.Equal(t, want, kept)
}

func TestNextLeavesTopicAndPartitionAlone(t *testing.T) {
	var it Iterator
	require.NoError(t, it.Reset(sample(t)))
	r := Record{Topic: "orders", Partition: 3, Headers: []Header{{Key: "old"}}}
	require.True(t, it.Next(&r))
	require.Equal(t, TopicPartition{"orders", 3}, r.TopicPartition())
	require.Nil(t, r.Headers)
}

func TestIteratorEndsOnceAndStartsAgain(t *testing.T) {
	var (
		it Iterator
		r  Record
	)
	require.False(t, it.Next(&r), "nothing to read yet")
	require.NoError(t, it.Err())

	require.Error(t, it.Reset(nil))
	require.False(t, it.Next(&r))
	require.Error(t, it.Err())

	for range 2 {
		require.NoError(t, it.Reset(sample(t)))
		for range 3 {
			require.True(t, it.Next(&r))
		}
		require.False(t, it.Next(&r))
		require.False(t, it.Next(&r))
		require.NoError(t, it.Err())
	}

	require.NoError(t, it.Reset(raw(2, 1, record0...)))
	require.True(t, it.Next(&r))
	require.False(t, it.Next(&r))
	require.False(t, it.Next(&r), "an error lasts")
	require.Error(t, it.Err())
	require.NoError(t, it.Reset(sample(t)))
	require.NoError(t, it.Err())
}

func TestReadingAllocatesNothingPerRecord(t *testing.T) {
	records := hundred(1000)
	plain := build(t, BatchOptions{}, records...)
	for i := range records {
		records[i].Headers = []Header{{Key: "trace", Value: []byte("0123456789abcdef")}}
	}
	traced := build(t, BatchOptions{}, records...)

	var (
		it Iterator
		r  Record
	)
	read := func(b Batch) func() {
		return func() {
			require.NoError(t, it.Reset(b))
			for it.Next(&r) {
			}
		}
	}
	require.Zero(t, testing.AllocsPerRun(20, read(plain)))
	require.LessOrEqual(t, testing.AllocsPerRun(20, read(traced)), 1000.0/slabHeaders+1)
	require.Zero(t, testing.AllocsPerRun(20, func() { _ = plain.Check() }))
}

func TestAppendingAllocatesNothingPerRecord(t *testing.T) {
	records := hundred(1000)
	records[0].Headers = []Header{{Key: "trace", Value: []byte("0123")}}
	var b Builder
	require.Zero(t, testing.AllocsPerRun(20, func() { // the run before the first counted one makes the room
		b.Reset()
		for i := range records {
			_ = b.Append(&records[i])
		}
	}))
	require.Equal(t, int32(1000), b.Count())
	require.Equal(t, 1.0, testing.AllocsPerRun(20, func() { _, _ = b.Build(BatchOptions{}) }))
}

func TestVarintSizeIsWhatIsWritten(t *testing.T) {
	values := []int64{0, math.MaxInt64, math.MinInt64}
	for shift := range 63 {
		for near := range int64(3) {
			v := int64(1)<<shift + near - 1
			values = append(values, v, -v)
		}
	}
	for _, v := range values {
		buf := binary.AppendVarint(nil, v)
		require.Equal(t, len(buf), varintSize(v), "%d", v)
		r := reader{buf: buf}
		require.Equal(t, v, r.varint())
		require.Empty(t, r.bad)
		require.Zero(t, r.left())
	}
}
