package quorumlog_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog"
)

func TestANodeStaysInItsDirectoryWhenTheProgramLeavesIts(t *testing.T) {
	t.Chdir(t.TempDir())
	ctx := within(t, 30*time.Second)
	n := openNode(t, "data", quorumlog.Config{})
	elsewhere := t.TempDir()
	t.Chdir(elsewhere)
	_, err := n.Produce(ctx, "orders", quorumlog.Record{Value: []byte("one")})
	require.NoError(t, err)
	require.Equal(t, []string{"one"}, values(t, ctx, n, "orders"))
	entries, err := os.ReadDir(elsewhere)
	require.NoError(t, err)
	require.Empty(t, entries)
}
