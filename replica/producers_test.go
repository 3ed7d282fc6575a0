package replica

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

// batchOf builds a placed batch of n records by a producer.
func batchOf(t *testing.T, id record.ProducerID, epoch record.ProducerEpoch, first record.Sequence, n int, base record.Offset) record.Batch {
	t.Helper()
	b := buildBatch(t, id, epoch, first, n)
	b.Stamp(base, 1)
	return b
}

func TestProducersDecideLikeKafka(t *testing.T) {
	const id = 7
	// State: epoch 3, seven batches of two records, sequences 0..13, at offsets 100, 102, ...
	state := func(t *testing.T) producers {
		p := producers{}
		for i := range 7 {
			p.add(batchOf(t, id, 3, record.Sequence(2*i), 2, record.Offset(100+2*i)))
		}
		p.commit(id, 114)
		return p
	}
	for _, tc := range []struct {
		name  string
		empty bool // no state
		epoch record.ProducerEpoch
		first record.Sequence
		n     int

		accepted  bool
		duplicate record.Offset // 0 = none
		err       error
	}{
		{name: "next in line", epoch: 3, first: 14, n: 2, accepted: true},
		{name: "exact repeat of the newest", epoch: 3, first: 12, n: 2, duplicate: 112},
		{name: "exact repeat of the fifth last", epoch: 3, first: 4, n: 2, duplicate: 104},
		{name: "repeat older than the window", epoch: 3, first: 2, n: 2, err: record.ErrDuplicate},
		{name: "same first sequence, other length", epoch: 3, first: 12, n: 1, err: record.ErrDuplicate},
		{name: "a gap", epoch: 3, first: 16, n: 2, err: record.ErrOutOfOrder},
		{name: "older epoch", epoch: 2, first: 14, n: 2, err: record.ErrFenced},
		{name: "newer epoch from 0", epoch: 4, first: 0, n: 2, accepted: true},
		{name: "newer epoch not from 0", epoch: 4, first: 14, n: 2, err: record.ErrOutOfOrder},
		{name: "unknown producer from 0", empty: true, epoch: 0, first: 0, n: 2, accepted: true},
		{name: "unknown producer not from 0", empty: true, epoch: 0, first: 44, n: 2, err: record.ErrOutOfOrder},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := producers{}
			if !tc.empty {
				p = state(t)
			}
			v := p.check(buildBatch(t, id, tc.epoch, tc.first, tc.n))
			require.Equal(t, tc.accepted, v.accepted())
			require.Equal(t, tc.duplicate != 0, v.duplicate)
			require.Equal(t, tc.duplicate, v.offset)
			require.ErrorIs(t, v.err, tc.err)
		})
	}
}

func TestProducersWrapTheirSequences(t *testing.T) {
	const last = record.Sequence(1<<31 - 1)
	p := producers{}
	p.add(batchOf(t, 1, 0, last-1, 1, 50)) // ends one before the last sequence
	require.True(t, p.check(buildBatch(t, 1, 0, last, 1)).accepted())

	inside := batchOf(t, 1, 0, last, 3, 51) // wraps inside: last, 0, 1
	require.True(t, p.check(inside).accepted())
	p.add(inside)
	require.Equal(t, record.Sequence(1), inside.LastSequence())
	require.True(t, p.check(buildBatch(t, 1, 0, 2, 1)).accepted())
	require.ErrorIs(t, p.check(buildBatch(t, 1, 0, 3, 1)).err, record.ErrOutOfOrder)
	require.Equal(t, record.Offset(51), p.check(inside).offset)
	require.ErrorIs(t, p.check(buildBatch(t, 1, 0, last-5, 1)).err, record.ErrDuplicate)
}

func TestCutForgetsWhatATruncationTook(t *testing.T) {
	p := producers{}
	for i := range 8 {
		p.add(batchOf(t, 1, 0, record.Sequence(i), 1, record.Offset(i)))
	}
	p.add(batchOf(t, 2, 0, 0, 1, 8))
	p.commit(1, 3) // offsets 0..2 are committed, 3..7 are not: nothing may be forgotten yet
	require.Len(t, p[1], 8)

	p.cut(5)
	require.NotContains(t, p, record.ProducerID(2))
	require.True(t, p.check(buildBatch(t, 1, 0, 5, 1)).accepted())
	require.ErrorIs(t, p.check(buildBatch(t, 1, 0, 6, 1)).err, record.ErrOutOfOrder)
	require.True(t, p.check(buildBatch(t, 1, 0, 0, 1)).duplicate)
}

func TestStateSurvivesItsBytes(t *testing.T) {
	p := producers{}
	for i := range 7 {
		p.add(batchOf(t, 9, 2, record.Sequence(3*i), 3, record.Offset(3*i)))
	}
	p.add(batchOf(t, 4, 0, 0, 1, 21))
	p.commit(9, 21)
	txs := newTransactions()
	txs.applied[9] = transactional{epoch: 2, coordinator: 4, first: 18, last: 3, time: 1e12}
	txs.applied[5] = transactional{epoch: 7, coordinator: 4, first: record.NoOffset, last: 20, time: 1e12}
	txs.open[9] = true
	in := state{
		entry: 9, term: 3, high: 21, folded: 21, start: 4, producers: p, // offset 21 is not committed
		transactions: txs, aborted: map[record.ProducerID][]span{5: {{5, 4, 6}, {5, 10, 20}}, 6: {{6, 0, 19}}},
	}
	b := in.encode()
	got, err := decodeState(b)
	require.NoError(t, err)
	require.NotContains(t, got.producers, record.ProducerID(4))
	require.Equal(t, p[9], got.producers[9])
	got.producers, in.producers = nil, nil
	require.Equal(t, in, got)

	for n := range b {
		_, err := decodeState(b[:n])
		require.Error(t, err, "cut at %d", n)
	}
	_, err = decodeState(append(b, 0))
	require.Error(t, err)
	b[3] = 9
	_, err = decodeState(b)
	require.ErrorContains(t, err, "version 9")
}
