package torture

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

// testFleet is a fleet of three disks, without nodes.
func testFleet() *fleet {
	s := newStory(func(string) {})
	f, _ := newFleet(Config{Seed: 1}.withDefaults(), newHistory(s), s) // without sockets it never fails
	f.placed = map[record.TopicPartition][]string{testPart: f.ids()}
	return f
}

const testDir = dataDir + "/partitions/orders.00000000-1"

// write puts a log with these values on the machine's disk.
func write(t *testing.T, m *machine, values ...string) {
	t.Helper()
	l, err := log.Open(t.Context(), testDir, log.Config{FS: m.disk, Partition: 1})
	require.NoError(t, err)
	appendValues(t, l, values...)
	require.NoError(t, l.Close())
}

func appendValues(t *testing.T, l *log.Log, values ...string) {
	t.Helper()
	for _, v := range values {
		var b record.Builder
		require.NoError(t, b.Append(&record.Record{Value: []byte(v), Time: time.UnixMilli(1)}))
		batch, err := b.Build(record.BatchOptions{})
		require.NoError(t, err)
		at := l.Bounds()
		batch.Stamp(at.End, 1)
		require.NoError(t, l.Append([]segment.Entry{{Number: at.Next, Term: 1, Kind: segment.KindBatch, Offset: at.End, Data: batch}}))
	}
}

func TestCompareFindsReplicasThatDiffer(t *testing.T) {
	for _, c := range []struct {
		name string
		want Kind
		logs [3][]string
	}{
		{"equal", "", [3][]string{{"a", "b"}, {"a", "b"}, {"a", "b"}}},
		{"different above the high watermark", "", [3][]string{{"a", "b", "c"}, {"a", "b", "d"}, {"a", "b"}}},
		{"different below it", Diverged, [3][]string{{"a", "b"}, {"a", "x"}, {"a", "b"}}},
		{"too short", Diverged, [3][]string{{"a", "b"}, {"a", "b"}, {"a"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := testFleet()
			for i, m := range f.machines {
				write(t, m, c.logs[i]...)
			}
			f.compare(t.Context(), map[record.TopicPartition]record.Offset{testPart: 2})
			if c.want == "" {
				require.Empty(t, f.history.report().Violations)
			} else {
				require.True(t, f.history.report().Has(c.want))
			}
		})
	}
}

func TestCompareFindsThatRetentionHasTakenTooMuch(t *testing.T) {
	f := testFleet()
	l, err := log.Open(t.Context(), "log", log.Config{FS: vfs.NewMem()})
	require.NoError(t, err)
	defer l.Close()
	appendValues(t, l, "short")
	f.compareRetention(trimmedPart, l)
	require.Empty(t, f.history.report().Violations, "nothing was trimmed")
	f.history.overtaken("a", trimmedPart, 0, 1)
	f.compareRetention(trimmedPart, l)
	require.True(t, f.history.report().Has(Overtrimmed))

	f = testFleet()
	f.history.overtaken("a", trimmedPart, 0, 1)
	appendValues(t, l, strings.Repeat("long", int(topicOf("metrics").retention)))
	f.compareRetention(trimmedPart, l)
	require.Empty(t, f.history.report().Violations)
}

func TestCompareFindsAMissingAndADamagedReplica(t *testing.T) {
	f := testFleet()
	for _, m := range f.machines[1:] {
		write(t, m, "a")
	}
	require.NoError(t, f.machines[0].disk.MkdirAll(dataDir+"/partitions"))
	f.compare(t.Context(), map[record.TopicPartition]record.Offset{testPart: 1})
	require.True(t, f.history.report().Has(Diverged))

	f = testFleet()
	for _, m := range f.machines {
		write(t, m, "a", "b")
	}
	file, err := f.machines[1].disk.Open(testDir + "/00000000000000000000.log")
	require.NoError(t, err)
	_, err = file.WriteAt([]byte{0xff, 0xff, 0xff}, segment.HeaderSize+50)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	f.compare(t.Context(), map[record.TopicPartition]record.Offset{testPart: 2})
	require.True(t, f.history.found())
}

func TestANodeThatDoesNotStartIsFound(t *testing.T) {
	f := testFleet()
	e, err := f.network.Join(f.machines[0].id)
	require.NoError(t, err)
	f.start(t.Context(), f.machines[0])
	require.True(t, f.history.report().Has(Unopened))
	require.NoError(t, e.Close())
}

func TestWhatDoesNotEndIsNoProgress(t *testing.T) {
	f := testFleet()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.False(t, f.within(ctx, "wait", func(ctx context.Context) error { return ctx.Err() }))
	require.True(t, f.history.report().Has(NoProgress))
}

func TestAReplicaThatStopsWithoutAFaultOfItsDiskIsFound(t *testing.T) {
	f := testFleet()
	logger := slog.New(&listener{fleet: f, machine: f.machines[0]})
	logger.Error("replica stopped", "error", errDisk)
	logger.Error("replica stopped", "error", vfs.ErrCrashed)
	logger.Warn("failed", "error", errors.New("the replicas differ"))
	require.False(t, f.history.found())
	logger.With("partition", "orders/1").Error("replica stopped", "error", errors.New("the replicas differ"))
	require.True(t, f.history.report().Has(Stopped))
}

func TestAGoroutineLeftBehindIsFound(t *testing.T) {
	f := testFleet()
	r := &run{cfg: f.cfg, story: f.story, history: f.history, fleet: f}
	r.leaks(t.Context(), 1<<20)
	require.False(t, f.history.found())

	// This one is there all the time. How many others there are depends on the
	// tests before, which may be on their way out.
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	r.leaks(ctx, 0)
	require.True(t, f.history.report().Has(Leak))
}
