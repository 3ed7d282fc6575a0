package log

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
)

var campaign = flag.Duration("campaign", 300*time.Millisecond, "how long TestCampaign goes on")

// TestCampaign lives lives of random length out of random steps, each on a disk
// that either crashes at some call or lets a few calls fail, and compares what
// is there afterwards with what may be there. A longer one:
//
//	go test ./log -run TestCampaign -campaign 30m
//
// A seed that failed is played again with QUORUMLOG_SEED, as the first life.
func TestCampaign(t *testing.T) {
	seeds := testRand(t)
	seed := seeds.Uint64()
	end := time.Now().Add(*campaign)
	lives, crashes, faults := 0, 0, 0
	for ; time.Now().Before(end) && !t.Failed(); lives++ {
		rng := rand.New(rand.NewPCG(seed, 1))
		if ok := t.Run(fmt.Sprintf("life %d", lives), func(t *testing.T) {
			if rng.IntN(2) == 0 {
				crashes += crashingLife(t, rng)
			} else {
				faults += failingLife(t, rng)
			}
		}); !ok {
			t.Logf("life %d had seed %d", lives, seed)
		}
		seed = seeds.Uint64()
	}
	t.Logf("%d lives, %d crashes, %d failed calls", lives, crashes, faults)
}

func randomConfig(rng *rand.Rand, disk vfs.FS) Config {
	cfg := testConfig(disk)
	cfg.Flush = []FlushPolicy{FlushEach, FlushNever}[rng.IntN(2)]
	cfg.SegmentBytes = []int64{minSegmentBytes, 8 << 10, 48 << 10}[rng.IntN(3)]
	cfg.IndexBytes = []int64{1, 300, 4 << 10}[rng.IntN(3)]
	return cfg
}

// step does one thing at random. The log is open before and after.
func (r *run) step() error {
	switch r.rng.IntN(20) {
	case 0, 1:
		return r.truncate(r.rng.IntN(12))
	case 2:
		return r.truncate(1000)
	case 3, 4:
		b := r.l.Bounds()
		return r.trim(b.Start + record.Offset(r.rng.Int64N(int64(b.End-b.Start)+3)))
	case 5:
		return r.reset(record.EntryNumber(1+r.rng.IntN(1000)), uint64(r.rng.IntN(50)), record.Offset(r.rng.IntN(1000)))
	case 6, 7:
		if err := r.close(); err != nil {
			return err
		}
		return r.open()
	case 8:
		if err := r.l.Sync(); err != nil {
			return r.hit("sync", err)
		}
		r.sync = r.o.next()
		r.settle(r.o)
		return nil
	default:
		return r.append(1 + r.rng.IntN(10))
	}
}

// crashingLife ends at a random call and is looked at after several reboots.
func crashingLife(t *testing.T, rng *rand.Rand) int {
	disk := vfs.NewMem()
	cfg := randomConfig(rng, disk)
	disk.CrashAfter(rng.IntN(400))
	r := newRun(t, rng.Uint64(), cfg)
	r.scale = 1 + rng.IntN(4)
	err := r.open()
	for err == nil && !disk.Crashed() && r.o.next()-r.o.first < 2000 {
		err = r.step()
	}
	if err != nil {
		require.ErrorIs(t, err, vfs.ErrCrashed)
	}
	disk.Crash()
	for _, reboot := range []uint64{0, 1, 2 + rng.Uint64N(1000), 2 + rng.Uint64N(1000)} {
		requireRecovers(t, disk.Reboot(reboot), cfg, r.after, fmt.Sprintf("reboot %d", reboot))
	}
	requireRecoversFromCrashesInRecovery(t, disk, cfg, r.after, rng.Uint64N(1000))
	return 1
}

// failingLife goes on over single calls that fail.
func failingLife(t *testing.T, rng *rand.Rand) (faults int) {
	disk := vfs.NewMem()
	cfg := randomConfig(rng, disk)
	kinds := []error{syscall.EIO, vfs.ErrNoSpace, &vfs.ShortWrite{N: 50, Err: vfs.ErrNoSpace}, syscall.EMFILE}
	var fault error // of the next call that fails, nil when none is to
	var calls atomic.Int64
	disk.Fail(func(vfs.Op, string) error {
		if fault != nil && calls.Add(-1) == 0 {
			faults++
			return fault
		}
		return nil
	})
	r := newRun(t, rng.Uint64(), cfg)
	r.hit = func(op string, err error) error {
		if op == "open" || op == "close" {
			return nil
		}
		if errors.Is(err, ErrSync) || op == "trim" { // files may be gone that the log still shows
			_ = r.l.Close() // the fault may be yet to come
			return r.open()
		}
		r.o = pick(t, r.l, r.after, op)
		r.settle(r.o)
		return nil
	}
	require.NoError(t, r.open())
	for range 5 + rng.IntN(60) {
		fault = kinds[rng.IntN(len(kinds))]
		calls.Store(1 + rng.Int64N(60))
		require.NoError(t, r.step())
	}
	fault = nil
	if err := r.l.Close(); err != nil {
		require.NotErrorIs(t, err, vfs.ErrCrashed)
	}
	require.NoError(t, r.open())
	requireSame(t, r.l, r.o, "at the end")
	require.NoError(t, r.l.Close())
	return faults
}
