package producer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/record"
)

func startTransactional(t *testing.T, f *fake) *producer.Transactional {
	f.identities = func() error { return errors.New("not to be asked") }
	p, err := producer.NewTransactional(f, producer.Config{BatchBytes: 1 << 10})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
	return p
}

func TestEachTransactionHasItsIdentityAndBeginsAtSequenceZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		p := startTransactional(t, f)
		_, err := p.Send(t.Context(), rec("x"))
		require.ErrorIs(t, err, record.ErrInvalid, "no transaction is open")
		for epoch := range record.ProducerEpoch(3) {
			require.NoError(t, p.Begin(7, epoch))
			sendAsync(p.Producer, alone("1"), alone("2"), alone("3"))
			require.ErrorIs(t, p.Begin(7, epoch+1), record.ErrInvalid, "records are left")
			require.NoError(t, p.End(t.Context()))
			_, err = p.Send(t.Context(), rec("x"))
			require.ErrorIs(t, err, record.ErrInvalid)
		}
		for i, b := range f.log(record.TopicPartition{Topic: "t"}).batches {
			require.True(t, b.IsTransactional())
			require.EqualValues(t, 7, b.ProducerID())
			require.EqualValues(t, i/3, b.ProducerEpoch())
			require.EqualValues(t, i%3, b.BaseSequence())
		}
		require.Len(t, f.tried(), 9)
	})
}

func TestAGapIsTheEndOfATransactionAndNotOfItsProducer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		p := startTransactional(t, f)
		require.NoError(t, p.Begin(7, 0))
		_, err := p.Send(t.Context(), rec("0"))
		require.NoError(t, err)
		f.judge = script(fate{refuse: record.ErrInvalid})
		outs := sendAsync(p.Producer, alone("refused"), alone("1"), alone("2"))
		require.NoError(t, p.Flush(t.Context()))
		for _, o := range outs {
			require.ErrorIs(t, o.err, producer.ErrNotWritten)
		}
		_, err = p.Send(t.Context(), rec("x"))
		require.ErrorContains(t, err, "transaction cannot be completed")
		require.NoError(t, p.Discard(t.Context(), errors.New("aborted")))
		require.NoError(t, p.Begin(7, 1))
		_, err = p.Send(t.Context(), rec("3"))
		require.NoError(t, err)
		require.NoError(t, p.End(t.Context()))
		require.Equal(t, []string{"0", "3"}, f.values(0))
	})
}

func TestAFencedTransactionFailsUntilTheNextBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		old, young := startTransactional(t, f), startTransactional(t, f)
		require.NoError(t, old.Begin(7, 0))
		require.NoError(t, young.Begin(7, 1))
		_, err := young.Send(t.Context(), rec("young"))
		require.NoError(t, err)
		for range 2 {
			_, err = old.Send(t.Context(), rec("old"))
			require.ErrorIs(t, err, record.ErrFenced)
		}
		require.NoError(t, old.Discard(t.Context(), err))
		require.NoError(t, old.Begin(7, 2))
		_, err = old.Send(t.Context(), rec("again"))
		require.NoError(t, err)
	})
}

func TestDiscardWaitsForWhatIsInFlightAndGivesUpTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		f.judge = script(fate{answer: 2 * time.Second})
		p := startTransactional(t, f)
		require.NoError(t, p.Begin(7, 0))
		outs := sendAsync(p.Producer, alone("in flight"), alone("waits"), rec("open"))
		synctest.Wait()
		aborted := errors.New("aborted")
		begin := time.Now()
		require.NoError(t, p.Discard(t.Context(), aborted))
		require.Equal(t, 2*time.Second, time.Since(begin))
		require.NoError(t, outs[0].err)
		for _, o := range outs[1:] {
			require.ErrorIs(t, o.err, aborted)
			require.ErrorIs(t, o.err, producer.ErrNotWritten)
		}
		require.NoError(t, p.Begin(7, 1))
		require.NoError(t, p.Discard(t.Context(), nil), "nothing was sent")
		require.NoError(t, p.Begin(7, 2))
		_, err := p.Send(t.Context(), rec("next"))
		require.NoError(t, err)
		require.Equal(t, []string{"in flight", "next"}, heads(f.values(0)))
	})
}

// A record that is past its delivery timeout has its result, but its batch may
// still be in flight.
func TestDiscardWaitsForBatchesThatAreLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		f.judge = script(fate{refuse: notLeader, answer: 28 * time.Second}, fate{never: true})
		p := startTransactional(t, f)
		require.NoError(t, p.Begin(7, 0))
		_, err := p.Send(t.Context(), rec("late"))
		require.ErrorIs(t, err, record.ErrOutcomeUnknown)
		require.ErrorIs(t, p.Begin(7, 1), record.ErrInvalid)
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.ErrorIs(t, p.Discard(short, err), context.DeadlineExceeded)
		require.NoError(t, p.Discard(t.Context(), err))
		require.NoError(t, p.Begin(7, 1))
	})
}

func TestATransactionalProducerRefusesSettingsThatMakeNoSense(t *testing.T) {
	for says, cfg := range map[string]producer.Config{
		"Name":               {Name: "n"},
		"DisableIdempotence": {DisableIdempotence: true},
		"quorum or all":      {Acks: record.AckLeader},
	} {
		_, err := producer.NewTransactional(newFake(t, 1), cfg)
		require.ErrorIs(t, err, record.ErrInvalid)
		require.ErrorContains(t, err, says)
	}
	p, err := producer.NewTransactional(newFake(t, 1), producer.Config{})
	require.NoError(t, err)
	require.NoError(t, p.Close(t.Context()))
	require.ErrorIs(t, p.Begin(7, 0), record.ErrClosed)
}
