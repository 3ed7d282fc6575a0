package cluster

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

// A producer that waited for the old leader's answer would hold up its partition
// for appendTimeout, long after there is a new one.
func TestABatchUnderWayIsGivenUpWhenAnotherLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, quickElections, "a", "b", "c")
		ctx, tp := context.Background(), part("orders", 0)
		c.create(tp.Topic, 1)
		old := c.leader(c.node("a"), tp)
		n := c.other(old)
		c.network.Isolate(old)
		began := time.Now()
		_, err := appendOnce(ctx, n, tp, testBatch(t, "x"), record.AckQuorum)
		require.ErrorIs(t, err, record.ErrOutcomeUnknown)
		require.Less(t, time.Since(began), n.appendTimeout, "the old leader was waited for though another leads")
		p, err := n.known(tp)
		require.NoError(t, err)
		hint, _ := p.leader()
		require.NotEqual(t, old, hint.node)
	})
}
