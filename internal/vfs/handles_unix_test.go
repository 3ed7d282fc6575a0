//go:build unix

package vfs_test

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
)

// TestAProcessOfFewDescriptorsHasManyFiles takes away the machine's descriptors:
// once with the limit that is the default then, and once with one that is so
// high that only the errors of the system keep the handles few.
func TestAProcessOfFewDescriptorsHasManyFiles(t *testing.T) {
	const descriptors, files = 256, 500
	var before syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
	t.Cleanup(func() { require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before)) })
	now := before
	now.Cur = descriptors
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &now))

	require.Equal(t, descriptors/4, vfs.DefaultLimit())
	for _, limit := range []int{vfs.DefaultLimit(), 10 * files} {
		c, dir := vfs.NewCapped(vfs.OS, limit), filepath.ToSlash(t.TempDir())
		var all []vfs.File
		for i := range files {
			f, err := c.Create(fmt.Sprintf("%s/%d", dir, i))
			require.NoError(t, err)
			all = append(all, f)
		}
		for i, f := range all[:10] {
			_, err := f.WriteAt(fmt.Append(nil, i), 0)
			require.NoError(t, err)
			require.NoError(t, f.Sync())
		}
		for i, f := range all {
			size, err := f.Size()
			require.NoError(t, err)
			require.Equal(t, i < 10, size > 0)
		}
		names, err := c.List(dir)
		require.NoError(t, err)
		require.Len(t, names, files)
		require.NoError(t, c.SyncDir(dir))
		require.LessOrEqual(t, c.Handles().Open, min(limit, descriptors))
		require.Zero(t, c.Handles().Exceeded)
		for _, f := range all {
			require.NoError(t, f.Close())
		}
	}
}
