//go:build unix

package quorumlog_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog"
)

// TestMorePartitionsThanDescriptors takes away the process's descriptors, and
// has more open segments than there are left.
func TestMorePartitionsThanDescriptors(t *testing.T) {
	const descriptors, partitions = 256, 300
	var before syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
	t.Cleanup(func() { require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before)) })
	now := before
	now.Cur = descriptors
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &now))

	dir, ctx := t.TempDir(), within(t, time.Minute)
	n, err := quorumlog.Open(dir, quorumlog.Config{})
	require.NoError(t, err)
	require.NoError(t, n.CreateTopic(ctx, quorumlog.TopicConfig{Name: "orders", Partitions: partitions}))
	var want []string
	for i := range 2 * partitions {
		want = append(want, fmt.Sprint(i))
		_, err := n.Produce(ctx, "orders", quorumlog.Record{Key: fmt.Append(nil, i), Value: []byte(want[i])})
		require.NoError(t, err)
	}
	require.ElementsMatch(t, want, values(t, ctx, n, "orders"))
	require.NoError(t, n.Close())

	n = openNode(t, dir, quorumlog.Config{})
	require.NoError(t, n.WaitReady(ctx, "orders"))
	require.ElementsMatch(t, want, values(t, ctx, n, "orders"))
}
