package torture_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/torture"
)

var (
	duration = flag.Duration("duration", 0, "how long the torture injects faults, for each number of nodes; 0 is a few seconds")
	seed     = flag.Uint64("seed", 0, "seed of the torture; 0 draws one, or takes QUORUMLOG_SEED")
	nodes    = flag.Int("nodes", 0, "number of nodes; 0 runs both 3 and 5")
	flush    = flag.String("flush", "", "when records are synced: each, or relaxed; by the seed by default")
	tcp      = flag.Bool("tcp", false, "machines talk over TCP")
	only     = flag.String("only", "", "faults to inject, apart by commas; all by default")
)

// pick returns the seed to run.
func pick(t *testing.T) uint64 {
	if *seed != 0 {
		return *seed
	}
	if s := os.Getenv("QUORUMLOG_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
		return n
	}
	return rand.Uint64N(1e9)
}

// slow is how much slower everything is with the race detector.
func slow() int {
	if raceDetector {
		return 3
	}
	return 1
}

func TestTorture(t *testing.T) {
	for _, n := range []int{3, 5} {
		if *nodes != 0 && *nodes != n {
			continue
		}
		t.Run(fmt.Sprintf("%d nodes", n), func(t *testing.T) {
			cfg := torture.Config{Seed: pick(t), Nodes: n, Duration: *duration, Slow: slow(), TCP: *tcp}
			cfg.Relaxed = *flush == "relaxed" || *flush == "" && cfg.Seed/2%2 == 1
			if *only != "" {
				cfg.Only = strings.Split(*only, ",")
			}
			if cfg.Duration == 0 {
				cfg.Duration = 2 * time.Second
				if testing.Short() {
					cfg.Duration = time.Second
				}
			}
			if testing.Verbose() {
				cfg.Log = func(step string) { fmt.Println(step) }
			}
			report, err := torture.Run(context.Background(), cfg)
			require.NoError(t, err)
			t.Log(report)
			require.False(t, report.Failed(), "go test ./internal/torture -run Torture -seed %d -nodes %d -duration %v", cfg.Seed, n, cfg.Duration)
		})
	}
}
