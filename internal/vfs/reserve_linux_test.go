package vfs

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestAGrowingFileHasBlocksSetAsideUntilItIsClosed(t *testing.T) {
	o := NewOS()
	t.Cleanup(func() { require.NoError(t, o.Close()) })
	name := filepath.ToSlash(filepath.Join(t.TempDir(), "a"))
	f, err := o.Create(name)
	require.NoError(t, err)
	raw := f.(*osFile)
	if unix.Fallocate(int(raw.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, 1<<20) != nil {
		t.Skip("the file system cannot set blocks aside")
	}
	require.NoError(t, raw.Truncate(0))
	aside := func() int64 { // bytes on disk that are not in the file
		require.NoError(t, f.Sync())
		info, err := os.Stat(name)
		require.NoError(t, err)
		return info.Sys().(*syscall.Stat_t).Blocks*512 - info.Size()
	}
	const page = 8 << 10 // and one for the extents
	piece := bytes.Repeat([]byte("0123456789abcdef"), 4<<10)
	var want []byte
	write := func() {
		_, err := f.WriteVecAt([][]byte{piece[:100], piece[100:]}, int64(len(want)))
		require.NoError(t, err)
		want = append(want, piece...)
	}
	for len(want) < 1<<20 {
		write()
		require.Less(t, aside(), int64(page), "it is small")
	}
	for most := int64(0); len(want) < 6<<20; {
		write()
		now := aside()
		most = max(most, now)
		require.LessOrEqual(t, now, int64(len(want))/reserveShare+page)
		require.Positive(t, most)
	}
	size, err := f.Size()
	require.NoError(t, err)
	require.EqualValues(t, len(want), size)

	want = want[:3<<20]
	require.NoError(t, f.Truncate(int64(len(want))))
	require.Less(t, aside(), int64(page))
	write()
	require.Greater(t, aside(), int64(page), "again")
	_, err = f.WriteVecAt([][]byte{piece[:10]}, int64(len(want)))
	require.NoError(t, err)
	want = append(want, piece[:10]...)

	require.NoError(t, f.Close())
	f, err = o.Open(name)
	require.NoError(t, err)
	require.Less(t, aside(), int64(page))
	got, err := o.ReadFile(name)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, got))
	require.NoError(t, f.Close())
}
