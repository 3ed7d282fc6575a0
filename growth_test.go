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
	"github.com/quorumlog/quorumlog/consumer"
)

// seen counts records by value, and wakes who waits for so many.
type seen struct {
	mu      sync.Mutex
	values  map[string]int
	changed chan struct{}
}

func newSeen() *seen { return &seen{values: map[string]int{}, changed: make(chan struct{})} }

func (s *seen) add(r quorumlog.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[string(r.Value)]++
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *seen) await(ctx context.Context, t *testing.T, values ...string) {
	t.Helper()
	for {
		s.mu.Lock()
		changed, missing := s.changed, ""
		for _, v := range values {
			if s.values[v] == 0 {
				missing = v
			}
		}
		s.mu.Unlock()
		if missing == "" {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			require.FailNow(t, "record not seen", "%q", missing)
		}
	}
}

// TestOpenClientsTakeInThePartitionsThatATopicGets grows a topic under producers, a
// read, transactions, and groups that begin at the end, one of which nobody is in.
func TestOpenClientsTakeInThePartitionsThatATopicGets(t *testing.T) {
	ctx := within(t, 30*time.Second)
	nodes, _ := openThree(t)
	a, b, c := nodes["a"], nodes["b"], nodes["c"]
	require.NoError(t, a.CreateTopic(ctx, quorumlog.TopicConfig{Name: "orders", Partitions: 2}))
	send := func(values ...string) {
		t.Helper()
		for _, v := range values {
			_, err := a.Produce(ctx, "orders", quorumlog.Record{Key: []byte(v), Value: []byte(v)})
			require.NoError(t, err)
		}
	}
	send("old 1", "old 2", "old 3")
	strict, err := a.Producer(quorumlog.ProducerConfig{RefuseGrowth: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, strict.Close(ctx)) }()
	_, err = strict.Send(ctx, rec("orders", "k", "old 4"))
	require.NoError(t, err)
	tx := openTxn(t, b, "t", quorumlog.TxnConfig{})
	require.NoError(t, tx.Do(ctx, func(tx *quorumlog.Tx) error { return tx.Send(rec("orders", "k", "old 5")) }))

	// join has two members, each on its node, begin at the end, and returns when all
	// partitions are theirs.
	join := func(group string, got *seen) (leave func()) {
		running, stop := context.WithCancel(ctx)
		var wg sync.WaitGroup
		var members []*quorumlog.Group
		for _, n := range []*quorumlog.Node{b, c} {
			g, err := n.Group(ctx, group, []string{"orders"}, quorumlog.GroupConfig{StartAt: consumer.AtEnd})
			require.NoError(t, err)
			members = append(members, g)
			wg.Go(func() {
				_ = g.Run(running, func(_ context.Context, r quorumlog.Record) error { got.add(r); return nil })
			})
		}
		require.Eventually(t, func() bool { return len(members[0].Owned()) == 1 && len(members[1].Owned()) == 1 }, 20*time.Second, time.Millisecond)
		return func() {
			stop()
			wg.Wait()
			for _, g := range members {
				require.NoError(t, g.Close(ctx))
			}
		}
	}
	stayed, left, read := newSeen(), newSeen(), newSeen()
	leave := join("stays", stayed)
	defer leave()
	join("leaves", left)()
	reading, stop := context.WithCancel(ctx)
	caughtUp, over := make(chan struct{}), make(chan error, 1)
	go func() {
		for r, err := range c.Read(reading, "orders", quorumlog.FromEnd(), quorumlog.CaughtUp(func() { close(caughtUp) })) {
			if err != nil {
				over <- err
				return
			}
			read.add(r)
		}
	}()
	<-caughtUp

	require.ErrorIs(t, a.AddPartitions(ctx, "orders", 8), quorumlog.ErrUnsafeChange, "keys would move")
	require.NoError(t, a.AddPartitions(ctx, "orders", 8, quorumlog.MoveKeys()))
	_, err = strict.Send(ctx, rec("orders", "k", "refused"))
	require.ErrorIs(t, err, quorumlog.ErrTopicGrown)
	var values []string
	used := map[int32]bool{}
	for i := range 64 {
		v := fmt.Sprintf("new %d", i)
		values = append(values, v)
		res, err := a.Produce(ctx, "orders", rec("", v, v))
		require.NoError(t, err)
		used[res.Partition] = true
	}
	require.Len(t, used, 8)
	require.NoError(t, tx.Do(ctx, func(tx *quorumlog.Tx) error {
		for i := range 32 {
			v := fmt.Sprintf("atomic %d", i)
			values = append(values, v)
			if err := tx.Send(rec("orders", v, v)); err != nil {
				return err
			}
		}
		return nil
	}))

	read.await(ctx, t, values...)
	stayed.await(ctx, t, values...)
	require.Len(t, stayed.values, len(values), "nothing of what was there before the group")
	require.Len(t, read.values, len(values))
	g, err := a.Group(ctx, "leaves", []string{"orders"}, quorumlog.GroupConfig{StartAt: consumer.AtEnd})
	require.NoError(t, err)
	defer func() { require.NoError(t, g.Close(ctx)) }()
	for left.add(quorumlog.Record{}); len(left.values) <= len(values); {
		batch, err := g.Poll(ctx)
		require.NoError(t, err)
		for _, r := range batch.Records {
			left.add(r)
		}
	}
	left.await(ctx, t, values...)
	stop()
	require.ErrorIs(t, <-over, context.Canceled)
}

func TestRecordsAreTriedAgainThroughTopicsThatGrow(t *testing.T) {
	ctx := within(t, 30*time.Second)
	n := openMemory(t, "orders")
	running, stop := context.WithCancel(ctx)
	defer stop()
	g, err := n.Group(ctx, "billing", []string{"orders"}, quorumlog.GroupConfig{
		Retry: quorumlog.RetryPolicy{Delays: []time.Duration{100 * time.Millisecond, 100 * time.Millisecond}, KeyOrder: true},
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, g.Close(ctx)) }()
	got := newSeen()
	ended := make(chan error, 1)
	go func() {
		ended <- g.Run(running, func(_ context.Context, r quorumlog.Record) error {
			f, moved := quorumlog.FailureOf(r)
			if !moved || f.Attempts < 2 {
				return errors.New("not yet")
			}
			got.add(r)
			return nil
		})
	}()
	var values []string
	send := func(round string) {
		for i := range 10 {
			v := fmt.Sprintf("%s %d", round, i)
			values = append(values, v)
			_, err := n.Produce(ctx, "orders", rec("", v, v))
			require.NoError(t, err)
		}
	}
	send("before")
	got.await(ctx, t, values...)
	for _, topic := range []string{"orders", "billing.retry.1", "billing.retry.2"} {
		require.NoError(t, n.AddPartitions(ctx, topic, 6, quorumlog.MoveKeys()))
	}
	send("after")
	got.await(ctx, t, values...)
	stop()
	require.ErrorIs(t, <-ended, context.Canceled)
}
