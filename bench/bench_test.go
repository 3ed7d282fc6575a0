package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain is the process that P13 kills, when P13 has started it.
func TestMain(m *testing.M) {
	if dir := os.Getenv(tailEnv); dir != "" {
		fmt.Fprintln(os.Stderr, writeTail(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestEachRowOfEachScenarioMeasuresSomething(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.id, func(t *testing.T) {
			t.Parallel()
			r := runner{size: 1024, duration: time.Millisecond, rounds: 1, limit: time.Minute, large: 8 << 20, partitions: 10}
			for _, res := range r.run(t.Context(), s) {
				require.NoError(t, res.err)
				require.Len(t, res.samples, 1, res.who)
				require.Positive(t, res.samples[0].records, res.who)
				require.Positive(t, res.samples[0].took, res.who)
				require.NotEmpty(t, res.durable, res.who)
			}
		})
	}
}

func TestTheTableHasARowForEachRunAndRatiosToTheFirst(t *testing.T) {
	var out bytes.Buffer
	s := scenario{id: "P0", title: "none", unit: recordsPerSecond}
	first := []sample{{records: 3000, took: time.Second, waits: []time.Duration{time.Millisecond}}}
	results := []result{
		{row: row{who: "ours", config: "c", durable: "d"}, samples: first},
		{row: row{who: "theirs", config: "c", durable: "d", goal: times(2)}, disturbed: 1, samples: []sample{
			{records: 1000, took: time.Second, waits: []time.Duration{4 * time.Millisecond}, note: "large"}}},
		{row: row{who: "nobody", config: "c", durable: "d", goal: times(2)}, err: errors.New("down")},
	}
	printRows(&out, s, results)
	require.Equal(t, `| **P0** | **none** | **records/s** | | |  | | | | |
| P0 | ours | 3,000 | 1000 µs | 1000 µs |  |  | c | d | 1 |
| P0 | theirs | 1,000 | 4000 µs | 4000 µs | 3.00 | ≥ 2: met | c, large | d | 1, all disturbed |
| P0 | nobody | failed | | | | not measured | c | d | |
`, out.String())
	out.Reset()
	s.by = byP50
	printRows(&out, s, results[:2])
	require.Contains(t, out.String(), "| 0.25 | ≥ 2: missed by 88 % |")
}

func TestAGoalSaysByHowMuchItIsMissed(t *testing.T) {
	require.Equal(t, "≥ 10: met", times(10).verdict(10, 0))
	require.Equal(t, "≥ 10: missed by 25 %", times(10).verdict(7.5, 0))
	require.Equal(t, "≤ 0.7: met", within(0.7).verdict(0.5, 0))
	require.Equal(t, "≤ 0.5: missed by 50 %", within(0.5).verdict(0.75, 0))
	require.Equal(t, "≤ 1: met", atMost(1).verdict(0, 1))
	require.Equal(t, "≤ 2: missed by 200 %", atMost(2).verdict(0, 6))
	require.Equal(t, "≥ 10: missed by 1 %", times(10).verdict(9.999, 0), "never by nothing")
}

func TestNumbersHaveThreeDigits(t *testing.T) {
	for f, text := range map[float64]string{0: "0.00", 0.054: "0.05", 3.142: "3.14", 31.42: "31.4", 99.99: "100.0", 314: "314", 3141592: "3,141,592"} {
		require.Equal(t, text, number(f))
	}
}

func TestAProfileSaysWhatItsRunDid(t *testing.T) {
	dir := t.TempDir()
	busy := func(_ context.Context, e env) (sample, error) {
		e.prepared()
		return limitCRC(t.Context(), e)
	}
	r := runner{size: 100, duration: time.Second, rounds: 1, limit: time.Minute, profiles: dir}
	res := r.run(t.Context(), scenario{id: "P0/1", rows: []row{{who: "busy", run: busy}}})[0]
	require.NoError(t, res.err)
	var out bytes.Buffer
	res.top.print(&out)
	require.Contains(t, out.String(), "hash/crc32.")
	require.FileExists(t, filepath.Join(dir, "P0-1.pprof"))
}

func TestARunThatWasDisturbedIsLeftOutWhileThereAreOthers(t *testing.T) {
	res := result{samples: make([]sample, 2), disturbed: 1}
	require.Equal(t, "2 of 3", res.runs())
	before := load{known: true}
	after := load{at: before.at.Add(time.Second), all: 3 * time.Second, ours: 3 * time.Second, known: true}
	require.Zero(t, after.others(before), "all that was done was ours")
	after.ours = time.Second
	require.Greater(t, after.others(before), disturbedAbove)
}

func TestOnlyNamesScenariosAndFamilies(t *testing.T) {
	all := []scenario{{id: "P1"}, {id: "P10/1"}, {id: "P10/10"}}
	require.Equal(t, all, pick(all, ""))
	require.Equal(t, all[:1], pick(all, "p1"))
	require.Equal(t, all[1:], pick(all, "P10"))
	require.Equal(t, all[2:], pick(all, "P10/10"))
	require.Error(t, bench(t.Context(), []string{"-size", "100,0"}, io.Discard, io.Discard))
	require.Error(t, bench(t.Context(), []string{"-only", "P99"}, io.Discard, io.Discard))
}
