package main

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEachRowOfEachScenarioMeasuresSomething(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.id, func(t *testing.T) {
			t.Parallel()
			r := runner{size: 100, duration: time.Millisecond, rounds: 1, limit: time.Minute}
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
	s := scenario{id: "P0", title: "none"}
	printRows(&out, s, []result{
		{row: row{who: "ours", config: "c", durable: "d"}, samples: []sample{{records: 3000, took: time.Second, waits: []time.Duration{time.Millisecond}}}},
		{row: row{who: "theirs", config: "c", durable: "d"}, disturbed: 1, samples: []sample{{records: 1000, took: time.Second, waits: []time.Duration{4 * time.Millisecond}}}},
		{row: row{who: "nobody", config: "c", durable: "d"}, err: errors.New("down")},
	})
	require.Equal(t, `| **P0** | **none** | | | | | | | | |
| P0 | ours | 3,000 |  | 1000 µs | 1000 µs |  | 1 | c | d |
| P0 | theirs | 1,000 | 3.00 | 4000 µs | 4000 µs | 0.25 | 1, all disturbed | c | d |
| P0 | nobody | failed | | | | | | c | d |
`, out.String())
}

func TestARunThatWasDisturbedIsLeftOutWhileThereAreOthers(t *testing.T) {
	res := result{samples: make([]sample, 2), disturbed: 1}
	require.Equal(t, "2, 1 disturbed left out", res.runs())
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
	require.Error(t, bench(t.Context(), []string{"-only", "P99"}, io.Discard, io.Discard))
}
