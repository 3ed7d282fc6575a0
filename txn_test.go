package quorumlog_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog"
)

func openMemory(t *testing.T, topics ...string) *quorumlog.Node {
	t.Helper()
	n, err := quorumlog.OpenMemory(quorumlog.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	for _, topic := range topics {
		require.NoError(t, n.CreateTopic(within(t, 10*time.Second), quorumlog.TopicConfig{Name: topic, Partitions: 3}))
	}
	return n
}

func openTxn(t *testing.T, n *quorumlog.Node, id string, cfg quorumlog.TxnConfig) *quorumlog.Txn {
	t.Helper()
	c, err := n.Txn(id, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(within(t, 10*time.Second))) })
	return c
}

func rec(topic, key, value string) quorumlog.Record {
	return quorumlog.Record{Topic: topic, Key: []byte(key), Value: []byte(value)}
}

func TestATransactionCountsInAllPartitionsOrInNone(t *testing.T) {
	n := openMemory(t, "debits", "credits")
	c := openTxn(t, n, "bank", quorumlog.TxnConfig{})
	ctx := within(t, 20*time.Second)
	boom := errors.New("boom")
	transfer := func(i int, err error) func(tx *quorumlog.Tx) error {
		return func(tx *quorumlog.Tx) error {
			for k := range 5 {
				key := fmt.Sprint(k)
				require.NoError(t, tx.Send(rec("debits", key, fmt.Sprintf("%d.%d", i, k))))
				require.NoError(t, tx.Send(rec("credits", key, fmt.Sprintf("%d.%d", i, k))))
			}
			return err
		}
	}
	require.NoError(t, c.Do(ctx, transfer(1, nil)))
	err := c.Do(ctx, transfer(2, boom))
	require.ErrorIs(t, err, quorumlog.ErrAborted)
	require.ErrorIs(t, err, boom)
	require.NoError(t, c.Do(ctx, func(*quorumlog.Tx) error { return nil }), "nothing to do")
	require.Panics(t, func() {
		_ = c.Do(ctx, func(tx *quorumlog.Tx) error { _ = transfer(3, nil)(tx); panic("oops") })
	})
	require.NoError(t, c.Do(ctx, transfer(4, nil)))
	for _, topic := range []string{"debits", "credits"} {
		var want []string
		for _, i := range []int{1, 4} {
			for k := range 5 {
				want = append(want, fmt.Sprintf("%d.%d", i, k))
			}
		}
		require.ElementsMatch(t, want, values(t, ctx, n, topic, quorumlog.UntilEnd()))
		open, err := n.OpenTransactions(ctx, topic)
		require.NoError(t, err)
		require.Empty(t, open)
	}
}

func TestTheLongFormOfATransaction(t *testing.T) {
	n := openMemory(t, "t")
	c := openTxn(t, n, "x", quorumlog.TxnConfig{})
	ctx := within(t, 20*time.Second)
	tx, err := c.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, tx.Send(rec("t", "a", "1")))
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	_, err = c.Begin(short)
	require.ErrorIs(t, err, context.DeadlineExceeded, "one at a time")
	require.NoError(t, tx.Commit(ctx))
	require.ErrorIs(t, tx.Commit(ctx), quorumlog.ErrInvalid)
	require.ErrorIs(t, tx.Abort(ctx), quorumlog.ErrInvalid)
	require.ErrorIs(t, tx.Send(rec("t", "a", "late")), quorumlog.ErrInvalid)
	tx, err = c.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, tx.Send(rec("t", "a", "2")))
	require.NoError(t, tx.Abort(ctx))
	require.Equal(t, []string{"1"}, values(t, ctx, n, "t", quorumlog.UntilEnd()))
}

// Whoever has committed reads what it wrote, though the record that says that the
// transaction is complete comes later.
func TestWhatWasCommittedIsReadAtOnceOnEveryNode(t *testing.T) {
	nodes, _ := openThree(t)
	ctx := within(t, 40*time.Second)
	require.NoError(t, nodes["a"].CreateTopic(ctx, quorumlog.TopicConfig{Name: "t", Partitions: 3}))
	c := openTxn(t, nodes["a"], "x", quorumlog.TxnConfig{})
	var want []string
	for i := range 20 {
		require.NoError(t, c.Do(ctx, func(tx *quorumlog.Tx) error {
			for k := range 3 {
				want = append(want, fmt.Sprintf("%d.%d", i, k))
				if err := tx.Send(rec("t", fmt.Sprint(i, k), want[len(want)-1])); err != nil {
					return err
				}
			}
			return nil
		}))
		for _, n := range nodes {
			require.ElementsMatch(t, want, values(t, ctx, n, "t", quorumlog.UntilEnd()))
		}
	}
}

func TestReadersWaitForTransactionsThatAreOpenAndNoLonger(t *testing.T) {
	n := openMemory(t, "t")
	c := openTxn(t, n, "x", quorumlog.TxnConfig{})
	ctx := within(t, 20*time.Second)
	tx, err := c.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, tx.Send(rec("t", "a", "in")))
	require.Eventually(t, func() bool {
		open, err := n.OpenTransactions(ctx, "t")
		require.NoError(t, err)
		return len(open) == 1
	}, 10*time.Second, time.Millisecond)
	_, err = n.Produce(ctx, "t", rec("", "a", "behind"))
	require.NoError(t, err)
	require.Empty(t, values(t, ctx, n, "t", quorumlog.UntilEnd()))

	open, err := n.OpenTransactions(ctx, "t")
	require.NoError(t, err)
	require.Equal(t, "x", open[0].ID)
	require.Zero(t, open[0].First)
	require.EqualValues(t, "ongoing", open[0].State)
	require.Less(t, open[0].Age, 20*time.Second)
	s, err := n.Status(ctx, "t")
	require.NoError(t, err)
	p := s.Partitions[open[0].Partition]
	require.Equal(t, []quorumlog.Offset{0, 2}, []quorumlog.Offset{p.LastStableOffset, p.HighWatermark})

	got := make(chan string, 2)
	read, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		for r, err := range n.Read(read, "t") {
			if err != nil {
				return
			}
			got <- string(r.Value)
		}
	}()
	require.NoError(t, tx.Commit(ctx))
	require.Equal(t, "in", <-got)
	require.Equal(t, "behind", <-got)
}

func TestWhoBlocksCanBeNamedAndAborted(t *testing.T) {
	n := openMemory(t, "t")
	c := openTxn(t, n, "stuck", quorumlog.TxnConfig{})
	ctx := within(t, 20*time.Second)
	tx, err := c.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, tx.Send(rec("t", "a", "never")))
	var open []quorumlog.OpenTransaction
	require.Eventually(t, func() bool {
		open, err = n.OpenTransactions(ctx, "t")
		require.NoError(t, err)
		return len(open) == 1
	}, 10*time.Second, time.Millisecond)
	_, err = n.Produce(ctx, "t", rec("", "a", "behind"))
	require.NoError(t, err)
	require.NoError(t, n.AbortTransaction(ctx, "t", open[0]))
	require.Equal(t, []string{"behind"}, values(t, ctx, n, "t", quorumlog.UntilEnd()))
	err = tx.Commit(ctx)
	require.ErrorIs(t, err, quorumlog.ErrAborted)
	var ended *quorumlog.EndedError
	require.ErrorAs(t, err, &ended)
	require.NoError(t, c.Do(ctx, func(tx *quorumlog.Tx) error { return tx.Send(rec("t", "a", "next")) }), "its client goes on")
	require.Equal(t, []string{"behind", "next"}, values(t, ctx, n, "t", quorumlog.UntilEnd()))
}

func TestANewHolderOfAnIDEndsAndFencesTheOld(t *testing.T) {
	n := openMemory(t, "t")
	ctx := within(t, 20*time.Second)
	old := openTxn(t, n, "x", quorumlog.TxnConfig{})
	tx, err := old.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, tx.Send(rec("t", "a", "old")))
	next := openTxn(t, n, "x", quorumlog.TxnConfig{})
	require.NoError(t, next.Do(ctx, func(tx *quorumlog.Tx) error { return tx.Send(rec("t", "a", "new")) }))
	_ = tx.Send(rec("t", "b", "zombie"))
	require.Error(t, tx.Commit(ctx))
	err = old.Do(ctx, func(tx *quorumlog.Tx) error { return tx.Send(rec("t", "a", "zombie")) })
	require.ErrorIs(t, err, quorumlog.ErrFenced)
	require.Equal(t, []string{"new"}, values(t, ctx, n, "t", quorumlog.UntilEnd()))
}

func TestATransactionThatIsLeftOpenIsAbortedAfterItsTimeout(t *testing.T) {
	n := openMemory(t, "t")
	c := openTxn(t, n, "x", quorumlog.TxnConfig{Timeout: 200 * time.Millisecond})
	ctx := within(t, 20*time.Second)
	tx, err := c.Begin(ctx)
	require.NoError(t, err)
	require.NoError(t, tx.Send(rec("t", "a", "slow")))
	require.Eventually(t, func() bool {
		return len(values(t, ctx, n, "t", quorumlog.UntilEnd(), quorumlog.ReadUncommitted())) == 1
	}, 10*time.Second, time.Millisecond)
	require.Eventually(t, func() bool {
		open, err := n.OpenTransactions(ctx, "t")
		require.NoError(t, err)
		return len(open) == 0
	}, 10*time.Second, time.Millisecond)
	require.ErrorIs(t, tx.Commit(ctx), quorumlog.ErrAborted)
	require.Empty(t, values(t, ctx, n, "t", quorumlog.UntilEnd()))
}

func TestSeveralRecordsInOneCallAreThereAsAWholeOrNotAtAll(t *testing.T) {
	n := openMemory(t, "a", "b")
	ctx := within(t, 20*time.Second)
	require.NoError(t, n.ProduceAll(ctx))
	require.NoError(t, n.ProduceAll(ctx, rec("a", "k", "1"), rec("a", "k", "2")), "one batch")
	_, err := n.Status(ctx, "__transaction_state")
	require.ErrorIs(t, err, quorumlog.ErrUnknownTopic, "no coordinator was asked")
	require.NoError(t, n.ProduceAll(ctx, rec("a", "k", "3"), rec("a", "x", "4"), rec("b", "k", "5")))
	require.ElementsMatch(t, []string{"1", "2", "3", "4"}, values(t, ctx, n, "a", quorumlog.UntilEnd()))
	require.Equal(t, []string{"5"}, values(t, ctx, n, "b", quorumlog.UntilEnd()))
	require.ErrorIs(t, n.ProduceAll(ctx, rec("a", "k", "6"), rec("", "k", "7")), quorumlog.ErrInvalid)
	err = n.ProduceAll(ctx, rec("a", "k", "6"), quorumlog.Record{Topic: "b", Value: make([]byte, 65<<20)})
	require.ErrorIs(t, err, quorumlog.ErrTooLarge)
	require.NotContains(t, values(t, ctx, n, "a", quorumlog.UntilEnd()), "6")
}
