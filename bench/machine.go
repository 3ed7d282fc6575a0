package main

import (
	"context"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sync/errgroup"
)

const inPlace = "nothing" // what is durable where nothing is written

// machine has the limits of the machine, which nobody exceeds.
func machine() []scenario {
	return []scenario{
		{id: "M/bytes", title: "limits of this machine, 1 MiB at a time", unit: megabytesPerSecond, by: byNothing, rows: []row{
			{"write", "one file", "page cache", goal{}, limitWrite(false)},
			{"write, fdatasync", "one file, each 1 MiB synced", "fdatasync", goal{}, limitWrite(true)},
			{"read", "one file of 64 MiB", pageCacheRead, goal{}, limitRead},
			{"crc32c", "hash/crc32, Castagnoli", inPlace, goal{}, limitCRC},
			{"copy", "64 MiB from memory to memory", inPlace, goal{}, limitCopy},
		}},
		{id: "M/syncs", title: "limits of this machine, a record's value at a time", unit: syncsPerSecond, by: byNothing, rows: []row{
			{"write, fdatasync", "one file", "fdatasync", goal{}, limitSyncs(1)},
			{"write, fdatasync", "3 files at once", "fdatasync", goal{}, limitSyncs(3)},
		}},
	}
}

const block = 1 << 20

func limitWrite(sync bool) func(context.Context, env) (sample, error) {
	return func(_ context.Context, e env) (sample, error) {
		f, err := os.Create(filepath.Join(e.dir, "f"))
		if err != nil {
			return sample{}, err
		}
		b := make([]byte, block)
		s, err := calls(e.duration, block, func() error {
			_, err := f.Write(b)
			if err == nil && sync {
				err = dataSync(f)
			}
			return err
		})
		return s, errors.Join(err, f.Close())
	}
}

func limitRead(_ context.Context, e env) (sample, error) {
	f, err := os.Create(filepath.Join(e.dir, "f"))
	if err != nil {
		return sample{}, err
	}
	b := make([]byte, block)
	const blocks = 64
	for range blocks {
		if _, err := f.Write(b); err != nil {
			return sample{}, errors.Join(err, f.Close())
		}
	}
	i := 0
	s, err := calls(e.duration, block, func() error {
		i = (i + 1) % blocks
		_, err := f.ReadAt(b, int64(i)*block)
		if errors.Is(err, io.EOF) {
			err = nil // the last block ends where the file does
		}
		return err
	})
	return s, errors.Join(err, f.Close())
}

func limitCRC(_ context.Context, e env) (sample, error) {
	b, table := make([]byte, block), crc32.MakeTable(crc32.Castagnoli)
	var sum uint32
	s, err := calls(e.duration, block, func() error {
		sum = crc32.Update(sum, table, b)
		return nil
	})
	if sum == 0 {
		err = errors.Join(err, errors.New("nothing was computed"))
	}
	return s, err
}

func limitCopy(_ context.Context, e env) (sample, error) {
	from, to := make([]byte, 64*block), make([]byte, 64*block)
	i := 0
	return calls(e.duration, block, func() error {
		i = (i + block) % len(from)
		copy(to[i:i+block], from[i:])
		return nil
	})
}

// limitSyncs appends a record's value and syncs it, in each of so many files.
func limitSyncs(files int) func(context.Context, env) (sample, error) {
	return func(_ context.Context, e env) (sample, error) {
		each := make([]sample, files)
		var g errgroup.Group
		for i := range each {
			g.Go(func() (err error) {
				each[i], err = appendAndSync(e, blockingFile, strconv.Itoa(i))
				return err
			})
		}
		err := g.Wait()
		return together(each), err
	}
}

// syncer is a file that grows.
type syncer interface {
	io.WriterAt
	io.Closer
	Sync() error
}

// blockingFile makes a file whose Sync holds up a thread.
func blockingFile(name string) (syncer, error) {
	f, err := os.Create(name)
	return dataSynced{f}, err
}

type dataSynced struct{ *os.File }

func (d dataSynced) Sync() error { return dataSync(d.File) }

// appendAndSync appends a record's value to a file and waits until it is synced, again
// and again.
func appendAndSync(e env, create func(name string) (syncer, error), name string) (sample, error) {
	f, err := create(filepath.Join(e.dir, name))
	if err != nil {
		return sample{}, err
	}
	value, end := e.value(), int64(0)
	s, err := calls(e.duration, 1, func() error {
		_, err := f.WriteAt(value, end)
		end += int64(len(value))
		return errors.Join(err, f.Sync())
	})
	return s, errors.Join(err, f.Close())
}
