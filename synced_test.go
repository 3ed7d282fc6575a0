package quorumlog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog"
)

// TestResultsSayWhetherAPowerCutCanTakeTheRecord asks every node, so that the
// answer comes from the node itself and over the network.
func TestResultsSayWhetherAPowerCutCanTakeTheRecord(t *testing.T) {
	nodes, _ := openThree(t)
	ctx := within(t, 30*time.Second)
	for topic, c := range map[string]struct {
		flush  quorumlog.FlushPolicy
		synced bool
	}{
		"each":  {quorumlog.FlushEach, true},
		"every": {quorumlog.FlushEvery(time.Millisecond), false},
		"never": {quorumlog.FlushNever, false},
	} {
		require.NoError(t, nodes["a"].CreateTopic(ctx, quorumlog.TopicConfig{Name: topic, Partitions: 1, Flush: c.flush}))
		for id, n := range nodes {
			res, err := n.Produce(ctx, topic, quorumlog.Record{Value: []byte(id)})
			require.NoError(t, err)
			require.Equal(t, c.synced, res.Synced, "topic %q, through node %q", topic, id)
		}
		require.Len(t, values(t, ctx, nodes["a"], topic), len(nodes))
	}
}
