package replica

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
)

func TestAnswersSayWhetherThePolicyHasSynced(t *testing.T) {
	for _, flush := range []log.FlushPolicy{log.FlushEach, log.FlushEvery(time.Hour), log.FlushNever} {
		c := newTrio(t, "a")
		c.stop("a")
		c.flush = flush
		c.start("a")
		h := c.leader()
		each := flush == log.FlushEach
		for acks, want := range map[record.Acks]bool{record.AckQuorum: each, record.AckLeader: each, record.AckNone: false} {
			o := c.get(h.send(buildBatch(t, record.ProducerID(1+acks), 0, 0, 1), AppendOptions{Acks: acks}))
			require.NoError(t, o.err)
			require.Equal(t, want, o.Synced, "flush %v, acks %v", flush, acks)
		}
		again := c.get(h.send(buildBatch(t, record.ProducerID(1+record.AckQuorum), 0, 0, 1), AppendOptions{}))
		require.NoError(t, again.err)
		require.True(t, again.Duplicate)
		require.Equal(t, each, again.Synced, "a duplicate, flush %v", flush)
	}
}
