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

// TestClientsOfADeletedTopicDoNotReachTheNextOne deletes a topic under a producer, a
// group and a reader, and makes another with more or fewer partitions under its name.
func TestClientsOfADeletedTopicDoNotReachTheNextOne(t *testing.T) {
	for _, partitions := range [][2]int{{1, 8}, {8, 1}, {3, 3}} {
		t.Run(fmt.Sprintf("%d then %d", partitions[0], partitions[1]), func(t *testing.T) { deleteUnderClients(t, partitions[0], partitions[1]) })
	}
}

func deleteUnderClients(t *testing.T, first, second int) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	n, err := quorumlog.OpenMemory(quorumlog.Config{NoAutoCreate: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, n.Close()) }()
	require.NoError(t, n.CreateTopic(ctx, quorumlog.TopicConfig{Name: "orders", Partitions: first}))
	p, err := n.Producer(quorumlog.ProducerConfig{})
	require.NoError(t, err)
	for i := range 20 {
		_, err := p.Send(ctx, quorumlog.Record{Topic: "orders", Key: fmt.Append(nil, i), Value: []byte("old")})
		require.NoError(t, err)
	}
	g, err := n.Group(ctx, "billing", []string{"orders"}, quorumlog.GroupConfig{})
	require.NoError(t, err)
	old, err := g.Poll(ctx)
	require.NoError(t, err)
	reader := make(chan error, 1)
	go func() {
		for r, err := range n.Read(ctx, "orders") {
			if err != nil || string(r.Value) != "old" {
				reader <- errors.Join(err, fmt.Errorf("after %q", r.Value))
				return
			}
		}
	}()

	require.NoError(t, n.DeleteTopic(ctx, "orders"))
	require.ErrorIs(t, <-reader, quorumlog.ErrUnknownTopic)
	require.NoError(t, n.CreateTopic(ctx, quorumlog.TopicConfig{Name: "orders", Partitions: second}))
	require.ErrorIs(t, g.Commit(ctx, old), quorumlog.ErrUnknownTopic)
	for err = nil; err == nil; { // what was fetched before comes first
		var b quorumlog.Batch
		if b, err = g.Poll(ctx); err == nil {
			require.Equal(t, "old", string(b.Records[0].Value))
		}
	}
	require.ErrorIs(t, err, quorumlog.ErrUnknownTopic)
	require.NoError(t, g.Close(ctx))

	// The producer may say once that the topic it knew is gone. Then each key is
	// where it belongs among the new ones.
	where := map[string]int32{}
	for i := range 20 {
		r := quorumlog.Record{Topic: "orders", Key: fmt.Append(nil, i), Value: []byte("new")}
		res, err := p.Send(ctx, r)
		if errors.Is(err, quorumlog.ErrUnknownTopic) {
			res, err = p.Send(ctx, r)
		}
		require.NoError(t, err)
		where[string(r.Key)] = res.Partition
	}
	require.NoError(t, p.Close(ctx))
	fresh, err := n.Producer(quorumlog.ProducerConfig{})
	require.NoError(t, err)
	for key, partition := range where {
		res, err := fresh.Send(ctx, quorumlog.Record{Topic: "orders", Key: []byte(key), Value: []byte("new")})
		require.NoError(t, err)
		require.Equal(t, partition, res.Partition, "key %q", key)
	}
	require.NoError(t, fresh.Close(ctx))
	g, err = n.Group(ctx, "billing", []string{"orders"}, quorumlog.GroupConfig{})
	require.NoError(t, err)
	for seen := 0; seen < 40; {
		b, err := g.Poll(ctx)
		require.NoError(t, err)
		for _, r := range b.Records {
			require.Equal(t, "new", string(r.Value))
			seen++
		}
		require.NoError(t, g.Commit(ctx, b))
	}
	require.NoError(t, g.Close(ctx))
}
