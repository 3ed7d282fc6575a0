//go:build unix

package replica

import (
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
)

var idleSleep = flag.Duration("idle.sleep", -1, "measure them asleep: SleepAfter")

var idlePartitions = flag.String("idle", "", "measure what so many idle partitions cost, for example 1,100,1000")

// TestIdleCostIsMeasured prints a line of the table in docs/idle.md for each
// number of partitions in the flag -idle.
func TestIdleCostIsMeasured(t *testing.T) {
	if *idlePartitions == "" {
		t.Skip("takes a minute; run it with -idle 1,100,1000 -v")
	}
	for _, text := range strings.Split(*idlePartitions, ",") {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		t.Run(text, func(t *testing.T) {
			dir := t.TempDir()
			f := startFleet(t, n, vfs.OS, dir, func(node string) *Stable {
				s, err := OpenStable(filepath.Join(dir, node+".votes"))
				require.NoError(t, err)
				return s
			}, func(c *Config) { c.SleepAfter = *idleSleep })
			if *idleSleep > 0 {
				f.sleep(t)
			}
			measureIdle(t, f, 10*time.Second)
		})
	}
}

func measureIdle(t *testing.T, f *fleet, d time.Duration) {
	runtime.GC()
	cpu, sent, begin := cpuTime(t), f.sent.Load(), time.Now()
	<-time.After(d) // what is measured is the passing of time
	took := time.Since(begin).Seconds()
	cpu, sent = cpuTime(t)-cpu, f.sent.Load()-sent
	var mem runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&mem)
	t.Logf("| partitions | of one core | goroutines | heap | stacks | handles | messages/s |")
	t.Logf("| %d | %.1f %% | %d | %.1f MB | %.1f MB | %d | %.0f |", len(f.replicas)/3, 100*cpu.Seconds()/took, runtime.NumGoroutine(),
		float64(mem.HeapAlloc)/1e6, float64(mem.StackInuse)/1e6, handles(t), float64(sent)/took)
}

func cpuTime(t *testing.T) time.Duration {
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// handles counts the files that this process has open, 0 where nobody tells.
func handles(t *testing.T) int {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(open)
}
