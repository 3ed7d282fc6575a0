package quorumlog_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog"
)

func openGroup(t *testing.T, n *quorumlog.Node, name, topic string) *quorumlog.Group {
	t.Helper()
	g, err := n.Group(within(t, 20*time.Second), name, []string{topic}, quorumlog.GroupConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(within(t, 10*time.Second))) })
	return g
}

func TestABatchOfAnAbortedTransactionComesAgain(t *testing.T) {
	n := openMemory(t)
	ctx := within(t, 20*time.Second)
	for _, v := range []string{"1", "2"} {
		_, err := n.Produce(ctx, "orders", rec("", "k", v))
		require.NoError(t, err)
	}
	g := openGroup(t, n, "invoicing", "orders")
	c := openTxn(t, n, "invoicing-1", quorumlog.TxnConfig{})
	b, err := g.Poll(ctx)
	require.NoError(t, err)
	boom := errors.New("boom")
	err = c.Do(ctx, func(tx *quorumlog.Tx) error {
		require.NoError(t, tx.Consumed(g, b))
		require.NoError(t, tx.Send(rec("invoices", "k", "lost")))
		return boom
	})
	require.ErrorIs(t, err, boom)
	again, err := g.Poll(ctx)
	require.NoError(t, err)
	require.Equal(t, b.Records, again.Records)
	tp := again.TopicPartition()
	at, err := g.Committed(ctx, []quorumlog.TopicPartition{tp})
	require.NoError(t, err)
	require.Empty(t, at)
	require.NoError(t, c.Do(ctx, func(tx *quorumlog.Tx) error {
		for _, r := range again.Records {
			if err := tx.Send(rec("invoices", "k", "for "+string(r.Value))); err != nil {
				return err
			}
		}
		return tx.Consumed(g, again)
	}))
	at, err = g.Committed(ctx, []quorumlog.TopicPartition{tp})
	require.NoError(t, err)
	last := again.Records[len(again.Records)-1]
	require.Equal(t, last.Offset+1, at[tp])
	require.Len(t, values(t, ctx, n, "invoices", quorumlog.UntilEnd()), len(again.Records))
}

func TestATransactionMayBeOfConsumedOffsetsAlone(t *testing.T) {
	n := openMemory(t)
	ctx := within(t, 20*time.Second)
	_, err := n.Produce(ctx, "orders", rec("", "k", "1"))
	require.NoError(t, err)
	g := openGroup(t, n, "invoicing", "orders")
	c := openTxn(t, n, "invoicing-1", quorumlog.TxnConfig{})
	b, err := g.Poll(ctx)
	require.NoError(t, err)
	boom := errors.New("boom")
	require.ErrorIs(t, c.Do(ctx, func(tx *quorumlog.Tx) error { return errors.Join(tx.Consumed(g, b), boom) }), boom)
	tp := b.TopicPartition()
	at, err := g.Committed(ctx, []quorumlog.TopicPartition{tp})
	require.NoError(t, err)
	require.Empty(t, at)
	b, err = g.Poll(ctx)
	require.NoError(t, err)
	require.NoError(t, c.Do(ctx, func(tx *quorumlog.Tx) error { return tx.Consumed(g, b) }))
	at, err = g.Committed(ctx, []quorumlog.TopicPartition{tp})
	require.NoError(t, err)
	require.EqualValues(t, 1, at[tp])
}

func TestAMemberThatLostItsPartitionFailsTheTransaction(t *testing.T) {
	n := openMemory(t)
	ctx := within(t, 20*time.Second)
	_, err := n.Produce(ctx, "orders", rec("", "k", "1"))
	require.NoError(t, err)
	g := openGroup(t, n, "invoicing", "orders")
	c := openTxn(t, n, "invoicing-1", quorumlog.TxnConfig{})
	b, err := g.Poll(ctx)
	require.NoError(t, err)
	require.NoError(t, g.Close(ctx))
	next := openGroup(t, n, "invoicing", "orders")
	err = c.Do(ctx, func(tx *quorumlog.Tx) error {
		require.NoError(t, tx.Send(rec("invoices", "k", "twice")))
		return tx.Consumed(g, b)
	})
	require.ErrorIs(t, err, quorumlog.ErrAborted)
	again, err := next.Poll(ctx)
	require.NoError(t, err)
	require.Equal(t, b.Records, again.Records)
	require.Empty(t, values(t, ctx, n, "invoices", quorumlog.UntilEnd()))
}

// TestAPipeHandlesEachRecordOnceWhateverFails lets steps fail, instances be replaced
// in the middle of a transaction, and coordinators move.
func TestAPipeHandlesEachRecordOnceWhateverFails(t *testing.T) {
	nodes, _ := openThree(t)
	ctx := within(t, 60*time.Second)
	require.NoError(t, nodes["a"].CreateTopic(ctx, quorumlog.TopicConfig{Name: "orders", Partitions: 2}))
	require.NoError(t, nodes["a"].CreateTopic(ctx, quorumlog.TopicConfig{Name: "invoices", Partitions: 2}))
	const orders = 200
	var want []string
	for i := range orders {
		v := fmt.Sprint(i)
		want = append(want, v)
		_, err := nodes["a"].Produce(ctx, "orders", rec("", v, v))
		require.NoError(t, err)
	}
	boom := errors.New("boom")
	var mu sync.Mutex
	steps := 0
	run := func(ctx context.Context, n *quorumlog.Node, id string) error {
		g, err := n.Group(ctx, "invoicing", []string{"orders"}, quorumlog.GroupConfig{MaxPollBytes: 1})
		if err != nil {
			return err
		}
		defer g.Close(context.WithoutCancel(ctx))
		c, err := n.Txn(id, quorumlog.TxnConfig{})
		if err != nil {
			return err
		}
		defer c.Close(context.WithoutCancel(ctx))
		return quorumlog.Pipe(ctx, g, c, func(tx *quorumlog.Tx, b quorumlog.Batch) error {
			for _, r := range b.Records {
				if err := tx.Send(rec("invoices", string(r.Key), string(r.Value))); err != nil {
					return err
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if steps++; steps%4 == 0 {
				return boom
			}
			return nil
		})
	}
	pipes, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	for _, id := range []string{"a", "b"} {
		wg.Go(func() {
			for pipes.Err() == nil {
				life, cancel := context.WithTimeout(pipes, 300*time.Millisecond) // then it is "killed"
				err := run(life, nodes[id], "invoicing-"+id)
				cancel()
				if err != nil && life.Err() == nil && !errors.Is(err, boom) {
					t.Errorf("pipe %s: %v", id, err)
					return
				}
			}
		})
	}
	var got []string
	for r, err := range nodes["c"].Read(ctx, "invoices") {
		require.NoError(t, err)
		if got = append(got, string(r.Value)); len(got) == orders {
			break
		}
	}
	stop()
	wg.Wait()
	require.ElementsMatch(t, want, got)
	require.ElementsMatch(t, want, values(t, ctx, nodes["c"], "invoices", quorumlog.UntilEnd()))
}
