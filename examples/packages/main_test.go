package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog"
)

func sampleEvents(t *testing.T) []event {
	events, err := parseLog(sample)
	require.NoError(t, err)
	return events
}

// lastLine runs the story and returns its last line, less the leader changes,
// which depend on who led what.
func lastLine(t *testing.T, dir string, events []event) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	err := run(ctx, &out, dir, events)
	t.Log("\n" + out.String())
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	line, _, _ := strings.Cut(lines[len(lines)-1], " leader-changes")
	return line
}

func TestEveryEventIsReadOnceAlthoughALeaderDies(t *testing.T) {
	dir, events := t.TempDir(), sampleEvents(t)
	require.Equal(t, "events 5064 packages 639 installed 623 lost 0 duplicated 0", lastLine(t, dir, events))
	require.Equal(t, "events 0 packages 0 installed 0 lost 0 duplicated 0", lastLine(t, dir, events), "a second run")
}

func TestAGrownInputGoesOnWhereTheLastRunEnded(t *testing.T) {
	dir, events := t.TempDir(), sampleEvents(t)
	require.Equal(t, "events 3 packages 1 installed 0 lost 0 duplicated 0", lastLine(t, dir, events[:3]))
	require.Contains(t, lastLine(t, dir, events[:40]), "events 37 ")

	err := run(t.Context(), &bytes.Buffer{}, dir, events[1:])
	require.ErrorContains(t, err, "not of this input")
}

func TestTheLedgerFindsWhatIsLostAndWhatComesTwice(t *testing.T) {
	events := sampleEvents(t)[:10]
	read := func(l *ledger, lines ...int) {
		for offset, line := range lines {
			r := events[line-1].record()
			r.Offset = quorumlog.Offset(offset)
			require.NoError(t, l.handle(r))
		}
	}
	all := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}

	l := newLedger(events, nil, nil)
	read(l, all...)
	require.NoError(t, l.result().check(l))

	l = newLedger(events, nil, nil)
	read(l, all[:9]...)
	require.Equal(t, 1, l.result().lost)
	require.Error(t, l.result().check(l))

	l = newLedger(events, nil, nil)
	read(l, append(all, 4)...)
	require.Equal(t, 1, l.result().duplicated)
	require.Error(t, l.result().check(l))

	// Lines 1 and 2 were read by an earlier run.
	earlier := stored{1: place{0, 0}, 2: place{0, 1}, 3: place{0, 2}}
	from := map[int32]quorumlog.Offset{0: 2}
	l = newLedger(events, earlier, from)
	require.Equal(t, 8, l.wanted)
	read(l, all[2:]...)
	require.NoError(t, l.result().check(l))
	read(l, 1)
	require.Equal(t, 1, l.result().duplicated, "a committed event came again")
}

func TestARecordOfAnotherInputIsRefused(t *testing.T) {
	events := sampleEvents(t)
	r := events[6].record()
	_, err := eventOf(r, events)
	require.NoError(t, err)
	r.Value = []byte(strings.Replace(string(r.Value), "2025", "2024", 1))
	_, err = eventOf(r, events)
	require.Error(t, err)
	r.Headers = nil
	_, err = eventOf(r, events)
	require.Error(t, err)
}

func TestWhatIsNotADpkgLogIsRefused(t *testing.T) {
	for _, text := range []string{"hello\n", "2025-06-24 14:36:25 status\n", "yesterday 14:36:25 status installed a:all 1\n", "\n"} {
		_, err := parseLog(text)
		require.Error(t, err, text)
	}
	events, err := parseLog("")
	require.NoError(t, err)
	require.Empty(t, events)
}
