package replica

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

// within builds a transactional batch of n records.
func transactionalBatch(t testing.TB, id record.ProducerID, epoch record.ProducerEpoch, first record.Sequence, n int) record.Batch {
	t.Helper()
	var b record.Builder
	for i := range n {
		r := record.Record{Value: fmt.Appendf(nil, "%d/%d.%d", id, epoch, int(first)+i), Time: time.UnixMilli(1_700_000_000_000)}
		require.NoError(t, b.Append(&r))
	}
	batch, err := b.Build(record.BatchOptions{
		Producer: &record.ProducerStamp{ID: id, Epoch: epoch, Sequence: first}, Transactional: true,
	})
	require.NoError(t, err)
	return batch
}

func markerBatch(t testing.TB, m record.Marker) record.Batch {
	t.Helper()
	b, err := m.Batch()
	require.NoError(t, err)
	return b
}

func commitOf(id record.ProducerID, epoch record.ProducerEpoch) record.Marker {
	return record.Marker{Producer: id, Epoch: epoch + 1, Commit: true, Coordinator: 1}
}

func abortOf(id record.ProducerID, epoch record.ProducerEpoch) record.Marker {
	return record.Marker{Producer: id, Epoch: epoch + 1, Coordinator: 1}
}

func TestATransactionalBatchMustBelongToTheTransactionThatIsOpen(t *testing.T) {
	const id, term = 7, 3
	plain := func(epoch record.ProducerEpoch) record.Batch { return buildBatch(t, id, epoch, 0, 1) }
	inside := func(epoch record.ProducerEpoch) record.Batch { return transactionalBatch(t, id, epoch, 0, 1) }
	for _, tc := range []struct {
		name  string
		log   []record.Batch // what is stored
		allow *permit
		batch record.Batch
		want  error
	}{
		{name: "nothing is open", batch: inside(4), want: record.ErrNotInTransaction},
		{name: "the coordinator has opened it", allow: &permit{4, term}, batch: inside(4)},
		{name: "it has opened another one", allow: &permit{5, term}, batch: inside(4), want: record.ErrNotInTransaction},
		{name: "it has opened it in an older epoch", allow: &permit{4, term - 1}, batch: inside(4), want: record.ErrNotInTransaction},
		{name: "a batch is in the log", log: []record.Batch{inside(4)}, batch: inside(4)},
		{name: "of a later transaction", log: []record.Batch{inside(4)}, batch: inside(5), want: record.ErrNotInTransaction},
		{name: "of a later one that is opened before the marker is here", log: []record.Batch{inside(4)}, allow: &permit{5, term}, batch: inside(5), want: record.ErrNotInTransaction},
		{name: "of an earlier transaction", log: []record.Batch{inside(4)}, batch: inside(3), want: record.ErrFenced},
		{name: "late, after the commit", log: []record.Batch{inside(4), markerBatch(t, commitOf(id, 4))}, batch: inside(4), want: record.ErrFenced},
		{name: "late, after the abort", log: []record.Batch{inside(4), markerBatch(t, abortOf(id, 4))}, batch: inside(4), want: record.ErrFenced},
		{name: "late, where nothing was written", log: []record.Batch{markerBatch(t, abortOf(id, 4))}, allow: &permit{4, term}, batch: inside(4), want: record.ErrFenced},
		{name: "of the next one, not opened", log: []record.Batch{inside(4), markerBatch(t, commitOf(id, 4))}, batch: inside(5), want: record.ErrNotInTransaction},
		{name: "of the next one, opened", log: []record.Batch{inside(4), markerBatch(t, commitOf(id, 4))}, allow: &permit{5, term}, batch: inside(5)},
		{name: "plain, while one is open", log: []record.Batch{inside(4)}, batch: plain(4), want: record.ErrNotInTransaction},
		{name: "plain, of an old epoch", log: []record.Batch{markerBatch(t, commitOf(id, 4))}, batch: plain(4), want: record.ErrFenced},
		{name: "plain, while none is open", log: []record.Batch{inside(4), markerBatch(t, commitOf(id, 4))}, batch: plain(5)},
		{name: "of another producer", log: []record.Batch{inside(4)}, batch: buildBatch(t, 8, 0, 0, 1)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			txs := newTransactions()
			for i, b := range tc.log {
				b := append(record.Batch{}, b...)
				b.Stamp(record.Offset(i), term)
				txs.add(b)
			}
			if tc.allow != nil {
				txs.permits[id] = *tc.allow
			}
			require.ErrorIs(t, txs.check(tc.batch, term).err, tc.want)
		})
	}
}

func TestAMarkerCountsOnceAndNeverAgainstALaterTransaction(t *testing.T) {
	const id = 7
	txs := newTransactions()
	end := record.Offset(0)
	store := func(b record.Batch) {
		b.Stamp(end, 1)
		txs.add(b)
		end = b.NextOffset()
	}
	store(transactionalBatch(t, id, 4, 0, 3))
	require.True(t, txs.checkMarker(markerBatch(t, commitOf(id, 4))).accepted())
	store(markerBatch(t, commitOf(id, 4)))
	require.Equal(t, verdict{duplicate: true, offset: 3}, txs.checkMarker(markerBatch(t, commitOf(id, 4))))
	store(transactionalBatch(t, id, 5, 0, 1))
	for _, late := range []record.Marker{commitOf(id, 3), commitOf(id, 4), abortOf(id, 4)} {
		require.True(t, txs.checkMarker(markerBatch(t, late)).duplicate, "%+v", late)
	}
	require.True(t, txs.get(id).open())
	old := commitOf(id, 5)
	old.Coordinator = 0
	require.ErrorIs(t, txs.checkMarker(markerBatch(t, old)).err, record.ErrFenced)
	require.True(t, txs.checkMarker(markerBatch(t, abortOf(id, 5))).accepted())
}

func TestEndsAreForgottenAndOpenTransactionsAreNot(t *testing.T) {
	txs := newTransactions()
	for i, b := range []record.Batch{
		transactionalBatch(t, 1, 0, 0, 1), transactionalBatch(t, 2, 0, 0, 1), markerBatch(t, commitOf(2, 0)),
		transactionalBatch(t, 3, 0, 0, 1), markerBatch(t, abortOf(3, 0)),
	} {
		b.Stamp(record.Offset(i), 1)
		txs.apply(b)
	}
	txs.forget(4)
	require.True(t, txs.get(1).open())
	require.NotContains(t, txs.applied, record.ProducerID(2))
	require.Contains(t, txs.applied, record.ProducerID(3))
}

// TestTransactionsAreTheSameHoweverTheyCameAbout stores, cuts, applies and saves at
// random, and compares with what a log read from its start adds up to.
func TestTransactionsAreTheSameHoweverTheyCameAbout(t *testing.T) {
	seed := testSeed(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	txs, seen := newTransactions(), aborted{}
	var log []record.Batch
	applied := 0
	end := func() record.Offset {
		if len(log) == 0 {
			return 0
		}
		return log[len(log)-1].NextOffset()
	}
	for step := range 3000 {
		switch rnd.IntN(10) {
		case 0: // a new leader cuts the tail
			keep := applied + rnd.IntN(len(log)-applied+1)
			log = log[:keep]
			txs.cut(end())
		case 1, 2: // commit
			for range rnd.IntN(len(log) - applied + 1) {
				if s, ok := txs.apply(log[applied]); ok {
					seen.add(s)
				}
				applied++
			}
		case 3: // a restart
			s := state{transactions: txs, aborted: seen.all()}
			got, err := decodeState(s.encode())
			require.NoError(t, err)
			txs, seen = got.transactions, aborted{}
			seen.replace(got.aborted)
			for _, b := range log[applied:] {
				txs.add(b)
			}
		default:
			id := record.ProducerID(rnd.IntN(4))
			epoch := max(txs.get(id).epoch, 0) + record.ProducerEpoch(rnd.IntN(2))
			var b record.Batch
			if rnd.IntN(3) == 0 {
				m := record.Marker{Producer: id, Epoch: epoch, Commit: rnd.IntN(2) == 0, Coordinator: 1}
				if b = markerBatch(t, m); !txs.checkMarker(b).accepted() {
					continue
				}
			} else {
				b = transactionalBatch(t, id, epoch, 0, 1+rnd.IntN(3))
				txs.permits[id] = permit{epoch, 1}
				if !txs.check(b, 1).accepted() {
					continue
				}
			}
			b.Stamp(end(), 1)
			txs.add(b)
			log = append(log, b)
		}
		want, wantAborted := newTransactions(), aborted{}
		for _, b := range log[:applied] {
			if s, ok := want.apply(b); ok {
				wantAborted.add(s)
			}
		}
		require.Equal(t, want.applied, txs.applied, "step %d", step)
		require.Equal(t, want.open, txs.open, "step %d", step)
		for _, b := range log[applied:] {
			want.add(b)
		}
		for id := range record.ProducerID(4) {
			require.Equal(t, want.get(id), txs.get(id), "step %d", step)
			require.Equal(t, wantAborted.spans[id], seen.spans[id], "step %d", step)
		}
		if len(log) > 60 { // begin anew, it is quadratic
			txs, seen, log, applied = newTransactions(), aborted{}, nil, 0
		}
	}
}
