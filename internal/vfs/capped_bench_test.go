package vfs_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
)

// BenchmarkReadAt compares reading through a handle that is open with reading
// without Capped; parallel readers share one file.
func BenchmarkReadAt(b *testing.B) {
	for _, bench := range []struct {
		name string
		fs   vfs.FS
		dir  string
	}{
		{"OS", vfs.OS, filepath.ToSlash(b.TempDir())},
		{"Capped OS", vfs.NewCapped(vfs.OS, 3), filepath.ToSlash(b.TempDir())},
		{"Mem", vfs.NewMem(), ""},
		{"Capped Mem", vfs.NewCapped(vfs.NewMem(), 3), ""},
	} {
		f, err := bench.fs.Create(bench.dir + "/a")
		require.NoError(b, err)
		defer f.Close()
		_, err = f.WriteAt(make([]byte, 4096), 0)
		require.NoError(b, err)
		require.NoError(b, f.Sync())
		b.Run(bench.name, func(b *testing.B) {
			p := make([]byte, 512)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := f.ReadAt(p, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(bench.name+" parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				p := make([]byte, 512)
				for pb.Next() {
					if _, err := f.ReadAt(p, 0); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

// BenchmarkReopen reads two files in turn through one handle: the price of a
// read that has to open.
func BenchmarkReopen(b *testing.B) {
	c, dir := vfs.NewCapped(vfs.OS, 1), filepath.ToSlash(b.TempDir())
	var files [2]vfs.File
	for i := range files {
		f, err := c.Create(dir + "/" + string(rune('a'+i)))
		require.NoError(b, err)
		defer f.Close()
		_, err = f.WriteAt(make([]byte, 512), 0)
		require.NoError(b, err)
		require.NoError(b, f.Sync())
		files[i] = f
	}
	p := make([]byte, 512)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := files[i%2].ReadAt(p, 0); err != nil {
			b.Fatal(err)
		}
	}
}
