package consumer

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

// timed appends a batch of records with those times; each value is its time.
func (p *partition) timed(t testing.TB, times ...int64) {
	var b record.Builder
	for _, ms := range times {
		require.NoError(t, b.Append(&record.Record{Time: time.UnixMilli(ms), Value: []byte(time.UnixMilli(ms).UTC().Format("05"))}))
	}
	batch, err := b.Build(record.BatchOptions{})
	require.NoError(t, err)
	p.append(batch)
}

func TestReadFromATimeBeginsInsideABatch(t *testing.T) {
	m := newMemory("orders", 3)
	m["orders"][0].timed(t, 1000, 2000, 3000)
	m["orders"][1].timed(t, 1000)
	m["orders"][2].timed(t, 2000, 1000)
	got, err := collect(Read(t.Context(), m, "orders", FromTime(time.UnixMilli(1001)), UntilEnd()), 100)
	require.ErrorIs(t, err, errEndOfSequence)
	require.Equal(t, []string{"02", "03", "02", "01"}, got, "partition 1 has none")
	_, err = collect(Read(t.Context(), m, "orders", FromTime(time.UnixMilli(3001)), UntilEnd()), 1)
	require.ErrorIs(t, err, errEndOfSequence)
	got, err = collect(Read(t.Context(), m, "orders", FromTime(time.Time{}), UntilEnd()), 100)
	require.ErrorIs(t, err, errEndOfSequence)
	require.Len(t, got, 6)
}

func TestReadFromATimeNobodyHasReachedFollowsTheEnd(t *testing.T) {
	m := newMemory("orders", 1)
	p := m["orders"][0]
	p.timed(t, 1000)
	src := &afterOffsets{memory: m, then: func() { p.timed(t, 2000, 9000) }}
	got, err := collect(Read(t.Context(), src, "orders", FromTime(time.UnixMilli(8000))), 2)
	require.NoError(t, err)
	require.Equal(t, []string{"02", "09"}, got, "the end is that at the start of the read")
	src = &afterOffsets{memory: m, then: func() { p.timed(t, 20000) }}
	_, err = collect(Read(t.Context(), src, "orders", FromTime(time.UnixMilli(10000)), UntilEnd()), 1)
	require.ErrorIs(t, err, errEndOfSequence)
}

func TestReadFromATimeOutlivesATrim(t *testing.T) {
	m := newMemory("orders", 1)
	p := m["orders"][0]
	p.timed(t, 1000)
	p.timed(t, 2000)
	p.timed(t, 3000)
	src := &afterTime{memory: m, then: func() { p.trim(2) }}
	got, err := collect(Read(t.Context(), src, "orders", FromTime(time.UnixMilli(2000)), UntilEnd()), 100)
	require.ErrorIs(t, err, errEndOfSequence)
	require.Equal(t, []string{"03"}, got)
}

// afterOffsets and afterTime do something once, just after the reader has asked.
type afterOffsets struct {
	memory
	then func()
}

func (s *afterOffsets) Offsets(ctx context.Context, tp record.TopicPartition, iso record.Isolation) (start, high record.Offset, err error) {
	defer s.then()
	return s.memory.Offsets(ctx, tp, iso)
}

type afterTime struct {
	memory
	then func()
}

func (s *afterTime) OffsetForTime(ctx context.Context, tp record.TopicPartition, t time.Time) (record.Offset, bool, error) {
	defer s.then()
	return s.memory.OffsetForTime(ctx, tp, t)
}
