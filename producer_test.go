package quorumlog_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog"
)

// TestAProducerKeepsOrderWhileLeadersAreCutOff cuts off the leader of the moment
// while batches of one record each are in flight to it, so that answers get lost
// and batches are repeated at its successor. The buffer is small, so that a slow machine
// delivers what is in it long before its time is over.
func TestAProducerKeepsOrderWhileLeadersAreCutOff(t *testing.T) {
	for name, cfg := range map[string]quorumlog.ProducerConfig{
		"without a name": {BatchBytes: 1 << 10, BufferBytes: 64 << 10},
		"with a name":    {BatchBytes: 1 << 10, BufferBytes: 64 << 10, Name: "importer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes, nw := openThree(t)
			ctx := within(t, time.Minute)
			require.NoError(t, nodes["a"].CreateTopic(ctx, quorumlog.TopicConfig{Name: "orders", Partitions: 1, Replicas: 3, Flush: quorumlog.FlushNever}))
			first := leaderOf(t, ctx, nodes["a"], "")
			var from *quorumlog.Node // not the first leader: its batches go over the network
			for id, n := range nodes {
				if id != first {
					from = n
				}
			}
			p, err := from.Producer(cfg)
			require.NoError(t, err)

			var mu sync.Mutex
			var want, failed []string
			stop := make(chan struct{})
			var sending sync.WaitGroup
			sending.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					v := fmt.Sprintf("%d%0700d", i, 0)
					want = append(want, v)
					p.SendAsync(ctx, quorumlog.Record{Topic: "orders", Value: []byte(v)}, func(res quorumlog.Result, err error) {
						if err != nil || int(res.Offset) != i {
							mu.Lock()
							failed = append(failed, fmt.Sprint(i, " ", res, err))
							mu.Unlock()
						}
					})
				}
			})
			cut := first
			for range 2 {
				nw.Isolate(cut)
				for _, n := range nodes {
					if n.ID() != cut {
						next := leaderOf(t, ctx, n, cut)
						nw.Heal()
						if next != from.ID() {
							cut = next
						}
						break
					}
				}
			}
			close(stop)
			sending.Wait()
			require.NoError(t, p.Close(ctx))
			require.Empty(t, failed)
			require.Equal(t, want, values(t, ctx, from, "orders"), "nothing lost, nothing twice, in order")
		})
	}
}

// TestAProducerGoesOnWithATopicThatIsMadeAnew has one producer write to three
// topics of one name, one after the other, with different numbers of partitions.
func TestAProducerGoesOnWithATopicThatIsMadeAnew(t *testing.T) {
	nodes, _ := openThree(t)
	ctx := within(t, time.Minute)
	p, err := nodes["b"].Producer(quorumlog.ProducerConfig{Name: "importer", Dedupe: quorumlog.Dedupe{Header: "id"}})
	require.NoError(t, err)
	for round, partitions := range []int{4, 1, 8} {
		if round > 0 {
			require.NoError(t, nodes["a"].DeleteTopic(ctx, "orders"))
		}
		require.NoError(t, nodes["a"].CreateTopic(ctx, quorumlog.TopicConfig{Name: "orders", Partitions: partitions, Flush: quorumlog.FlushNever}))
		require.NoError(t, nodes["b"].WaitReady(ctx, "orders"))
		want := make(map[string]int32)
		send := func(i int) (quorumlog.Result, error) {
			v := fmt.Sprint(i)
			r := quorumlog.Record{Topic: "orders", Key: []byte(v), Value: []byte(v), Headers: []quorumlog.Header{{Key: "id", Value: []byte(v)}}}
			return p.Send(ctx, r)
		}
		// A record may be the one that finds out, and be lost with the old topic.
		for i := 0; i < 20; i++ {
			res, err := send(i)
			if err != nil {
				require.ErrorIs(t, err, quorumlog.ErrUnknownTopic)
				i--
				continue
			}
			require.False(t, res.Duplicate, "the old topic's ids are forgotten")
			want[fmt.Sprint(i)] = res.Partition
		}
		for i := range 20 {
			res, err := send(i)
			require.NoError(t, err)
			require.True(t, res.Duplicate)
		}
		got := make(map[string]int32)
		for r, err := range nodes["c"].Read(ctx, "orders", quorumlog.UntilEnd()) {
			require.NoError(t, err)
			_, twice := got[string(r.Value)]
			require.False(t, twice, "%s is there twice", r.Value)
			got[string(r.Value)] = r.Partition
		}
		require.Equal(t, want, got)
	}
	require.NoError(t, p.Close(ctx))
}

// leaderOf returns who leads partition 0 of "orders" when it is not the one given.
func leaderOf(t *testing.T, ctx context.Context, n *quorumlog.Node, not string) string {
	t.Helper()
	for {
		require.NoError(t, n.WaitReady(ctx, "orders"))
		s, err := n.Status(ctx, "orders")
		if err == nil && s.Partitions[0].Leader != "" && s.Partitions[0].Leader != not {
			return s.Partitions[0].Leader
		}
	}
}
