package cluster

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

func TestAFetchAllocatesItsBufferAndItsBatches(t *testing.T) {
	c := startCluster(t, nil, "a")
	c.create("orders", 1)
	n, tp := c.node("a"), part("orders", 0)
	c.writer(n, tp).send(n, "one")
	client, ctx := n.Client(), c.ctx()
	_, _, err := client.Layout(ctx, "orders")
	require.NoError(t, err)
	allocated := testing.AllocsPerRun(20_000, func() {
		if f, err := client.Fetch(ctx, tp, 0, 0, record.ReadCommitted); err != nil || len(f.Batches) != 1 {
			t.Fatal(f, err)
		}
	})
	require.LessOrEqual(t, allocated, 3.0, "two, and what the rest of the node does meanwhile")
}
