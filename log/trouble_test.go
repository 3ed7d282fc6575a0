package log

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
)

// TestTroubleLastsUntilTheCallerIsTold lets all calls that can, from one on, fail
// until a call of the log does, so that taking back fails too, and index writes
// fail in a row. What was there stays, and an append that may not be gone says so.
func TestTroubleLastsUntilTheCallerIsTold(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		ops  []vfs.Op // that can fail like that; nil for all
	}{
		{"EIO", syscall.EIO, nil},
		{"ENOSPC", vfs.ErrNoSpace, []vfs.Op{vfs.OpCreate, vfs.OpWrite, vfs.OpRename, vfs.OpMkdir, vfs.OpSyncDir, vfs.OpSync}},
		{"short write", &vfs.ShortWrite{N: 90, Err: vfs.ErrNoSpace}, []vfs.Op{vfs.OpWrite}},
		{"EMFILE", syscall.EMFILE, []vfs.Op{vfs.OpOpen, vfs.OpReadFile, vfs.OpList, vfs.OpCreate, vfs.OpSyncDir, vfs.OpMkdir}},
		{"ENFILE where a file is made", syscall.ENFILE, []vfs.Op{vfs.OpCreate}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			seed := testRand(t).Uint64()
			for point := 0; ; point++ {
				if !troubleFrom(t, seed, point, c.err, c.ops) {
					t.Logf("%d points", point)
					return
				}
			}
		})
	}
}

func troubleFrom(t *testing.T, seed uint64, point int, fault error, ops []vfs.Op) bool {
	disk := vfs.NewMem()
	calls, begun, over := 0, "", false
	disk.Fail(func(op vfs.Op, name string) error {
		if ops != nil && !slices.Contains(ops, op) {
			return nil
		}
		if calls++; calls <= point || over {
			return nil
		}
		if begun == "" {
			begun = fmt.Sprintf("from call %d on, %v of %s", point, op, name)
		}
		return fault
	})
	r := newRun(t, seed, testConfig(disk))
	r.lasting = true
	r.hit = func(op string, err error) error {
		require.NotEmpty(t, begun, "%s: %v", op, err)
		msg := begun + ", in " + op
		require.ErrorIs(t, err, cause(fault), msg)
		if op == "append" {
			requireBounds(t, r.l, r.o)
		}
		over = true
		if op == "open" || op == "close" {
			return nil
		}
		if op == "append" {
			requireSame(t, r.l, r.o, msg)
		}
		if !errors.Is(err, ErrSync) {
			r.o = pick(t, r.l, r.after, msg)
			r.settle(r.o)
			requireSame(t, r.l, r.o, msg)
			return nil
		}
		require.ErrorIs(t, r.l.Append(r.o.make(t, r.rng, 1)), ErrSync, "not sticky: "+msg)
		require.NoError(t, r.l.Close())
		return r.open()
	}
	require.NoError(t, r.story(), begun)
	over = true
	require.NoError(t, r.open())
	requireSame(t, r.l, r.o, begun)
	require.NoError(t, r.close())
	return begun != ""
}

func cause(fault error) error {
	if short := (*vfs.ShortWrite)(nil); errors.As(fault, &short) {
		return short.Err
	}
	return fault
}

// TestADiskThatFillsAtAnyByteStopsNoReaderAndNoLaterWriter appends over several
// segments on a disk that has room for a part of it, of any size. What fails is
// gone, and the same append works as soon as there is room, without a new Open.
func TestADiskThatFillsAtAnyByteStopsNoReaderAndNoLaterWriter(t *testing.T) {
	disk := vfs.NewMem()
	cfg := testConfig(disk)
	l := open(t, cfg)
	o := fill(t, l, newOracle(), 2)
	rng := testRand(t)
	failed := 0
	for room := int64(0); ; room += 53 {
		disk.SetCapacity(disk.Used() + room)
		entries := o.make(t, rng, 12)
		msg := fmt.Sprintf("room for %d bytes", room)
		err := l.Append(entries)
		if err != nil {
			failed++
			require.ErrorIs(t, err, ErrNoSpace, msg)
			require.NotErrorIs(t, err, ErrSync, msg)
			requireSame(t, l, o, msg)
			if failed%5 == 0 { // opening needs no room
				require.NoError(t, l.Close())
				l = open(t, cfg)
				requireSame(t, l, o, msg+", opened while full")
			}
			disk.SetCapacity(vfs.Unlimited)
			require.NoError(t, l.Append(entries), msg)
		}
		o = o.with(entries...)
		requireSame(t, l, o, msg)
		if room > 12<<10 {
			break
		}
		_, err = l.TrimTo(o.offset(o.next()) - 50) // full or not
		require.NoError(t, err, msg)
		o = o.trimmed(l.Bounds().First)
	}
	require.Greater(t, failed, 50)
	require.NoError(t, l.Close())
	disk.SetCapacity(vfs.Unlimited)
	l = open(t, cfg)
	requireSame(t, l, o, "at the end")
	require.Empty(t, findings(t, l))
	require.NoError(t, l.Close())
}
