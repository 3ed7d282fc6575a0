package vfs_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
)

func benchmarkAppend(b *testing.B, fsys vfs.FS, dir string, sync bool) {
	f, err := fsys.Create(dir + "/a")
	require.NoError(b, err)
	defer f.Close()
	bufs := [][]byte{make([]byte, 40), make([]byte, 16<<10)}
	const record = 40 + 16<<10
	b.SetBytes(record)
	b.ReportAllocs()
	var off int64
	for b.Loop() {
		if off > 1<<28 { // begin again, so that b.N does not decide about memory
			require.NoError(b, f.Truncate(0))
			off = 0
		}
		if _, err := f.WriteVecAt(bufs, off); err != nil {
			b.Fatal(err)
		}
		off += record
		if sync {
			if err := f.Sync(); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, sync := range []bool{false, true} {
		name := map[bool]string{false: "write", true: "write and sync"}[sync]
		b.Run("Mem/"+name, func(b *testing.B) { benchmarkAppend(b, vfs.NewMem(), "", sync) })
		b.Run("OS/"+name, func(b *testing.B) { benchmarkAppend(b, vfs.OS, filepath.ToSlash(b.TempDir()), sync) })
	}
}
