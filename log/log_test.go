package log

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

func TestConfigReportsAllThatIsWrong(t *testing.T) {
	require.NoError(t, Config{FS: vfs.NewMem()}.Validate())
	err := Config{Partition: -1, SegmentBytes: 10, IndexBytes: -1, Flush: -5}.Validate()
	for _, text := range []string{"FS is nil", "partition is -1", "SegmentBytes is 10", "IndexBytes is -1", "flush interval"} {
		require.ErrorContains(t, err, text)
	}
	_, err = Open(context.Background(), testDir, Config{})
	require.ErrorContains(t, err, "FS is nil")
}

func TestFlushPoliciesHaveNames(t *testing.T) {
	require.Equal(t, "each", FlushPolicy(0).String())
	require.Equal(t, "never", FlushNever.String())
	require.Equal(t, "every 1.5s", FlushEvery(1500*time.Millisecond).String())
}

func TestANewLogIsEmptyAndBeginsAtEntryOne(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	l := open(t, cfg)
	require.Equal(t, Bounds{First: 1, Next: 1}, l.Bounds())
	batches, err := l.Read(0, math.MaxInt64, 1)
	require.NoError(t, err)
	require.Empty(t, batches)
	_, err = l.ReadEntry(1)
	rangeErr := (*EntryRangeError)(nil)
	require.ErrorAs(t, err, &rangeErr)
	require.Equal(t, &EntryRangeError{Number: 1, First: 1, Next: 1}, rangeErr)
	require.NoError(t, l.Append(nil))
	require.NoError(t, l.TruncateTo(1))
	require.NoError(t, l.Close())
	l = open(t, cfg)
	require.Equal(t, Bounds{First: 1, Next: 1}, l.Bounds())
	require.NoError(t, l.Close())
}

// TestEntriesThatDoNotContinueTheLogAreRefused offers a good entry and a bad
// one behind it: neither may be in the log afterwards.
func TestEntriesThatDoNotContinueTheLogAreRefused(t *testing.T) {
	l := open(t, testConfig(vfs.NewMem()))
	rng := testRand(t)
	o := newOracle()
	first := segment.Entry{Number: 1, Term: 5, Kind: segment.KindBatch, Data: batch(t, rng, 0, 5, 3, 10)}
	require.NoError(t, l.Append([]segment.Entry{first}))
	o = o.with(first)
	good := segment.Entry{Number: 2, Term: 5, Kind: segment.KindBatch, Offset: 3, Data: batch(t, rng, 3, 5, 2, 10)}
	for _, c := range []struct {
		name  string
		bad   segment.Entry
		class error
	}{
		{"number again", segment.Entry{Number: 2, Term: 5, Kind: segment.KindNoop, Offset: 5}, record.ErrInvalid},
		{"gap in numbers", segment.Entry{Number: 4, Term: 5, Kind: segment.KindNoop, Offset: 5}, record.ErrInvalid},
		{"offset below", segment.Entry{Number: 3, Term: 5, Kind: segment.KindNoop, Offset: 4}, record.ErrInvalid},
		{"offset above", segment.Entry{Number: 3, Term: 5, Kind: segment.KindNoop, Offset: 6}, record.ErrInvalid},
		{"older term", segment.Entry{Number: 3, Term: 4, Kind: segment.KindNoop, Offset: 5}, record.ErrInvalid},
		{"unknown kind", segment.Entry{Number: 3, Term: 5, Kind: 99, Offset: 5}, record.ErrInvalid},
		{"batch not stamped", segment.Entry{Number: 3, Term: 5, Kind: segment.KindBatch, Offset: 5, Data: batch(t, rng, 0, 5, 1, 1)}, record.ErrInvalid},
		{"no batch", segment.Entry{Number: 3, Term: 5, Kind: segment.KindBatch, Offset: 5, Data: []byte("text")}, record.ErrCorrupt},
		{"too large", segment.Entry{Number: 3, Term: 5, Kind: segment.KindNoop, Offset: 5, Data: make([]byte, segment.MaxPayload+1)}, record.ErrTooLarge},
	} {
		require.ErrorIs(t, l.Append([]segment.Entry{good, c.bad}), c.class, c.name)
		requireSame(t, l, o, c.name)
	}
	require.NoError(t, l.Append([]segment.Entry{good}))
	requireSame(t, l, o.with(good), "at the end")
}

func TestAppendKeepsNothingOfWhatItWasGiven(t *testing.T) {
	l := open(t, testConfig(vfs.NewMem()))
	o := newOracle()
	rng := testRand(t)
	entries := o.make(t, rng, 10)
	o = o.with(slices.Clone(entries)...)
	for i := range o.entries {
		o.entries[i].Data = bytes.Clone(o.entries[i].Data)
	}
	require.NoError(t, l.Append(entries))
	for i := range entries {
		clear(entries[i].Data)
	}
	requireSame(t, l, o, "after the caller's buffers were reused")
	e, err := l.ReadEntry(3)
	require.NoError(t, err)
	for i := range e.Data { // what is read is the reader's
		e.Data[i] = 0xff
	}
	requireSame(t, l, o, "after a reader's buffer was written to")
}

// TestReadAgreesWithAListAtEveryOffset reads from each offset to each bound.
func TestReadAgreesWithAListAtEveryOffset(t *testing.T) {
	l := open(t, testConfig(vfs.NewMem()))
	entries := newOracle().make(t, testRand(t), 25)
	require.NoError(t, l.Append(entries))
	end := l.Bounds().End
	for from := range end + 1 {
		for bound := range end + 1 {
			var want []byte
			for i := range entries {
				if e := &entries[i]; e.Kind == segment.KindBatch && e.Next() > from && e.Next() <= bound {
					want = e.Data
					break
				}
			}
			batches, err := l.Read(from, bound, 1)
			require.NoError(t, err)
			if from >= bound || len(want) == 0 {
				require.Empty(t, batches, "from %d, bound %d", from, bound)
				continue
			}
			require.Equal(t, want, []byte(batches[0]), "from %d, bound %d", from, bound)
			require.LessOrEqual(t, batches[len(batches)-1].NextOffset(), bound)
		}
	}
	for _, from := range []record.Offset{-1, end + 1, math.MaxInt64} {
		_, err := l.Read(from, math.MaxInt64, 1)
		rangeErr := (*record.OffsetRangeError)(nil)
		require.ErrorAs(t, err, &rangeErr)
		require.Equal(t, from, rangeErr.Offset)
		require.Equal(t, end, rangeErr.End)
	}
}

func TestASegmentWithoutOffsetsDoesNotRoll(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	l := open(t, cfg)
	o := newOracle()
	rng := testRand(t)
	for n := range 100 { // 4 KB and more, in segments of 1 KiB
		e := segment.Entry{Number: record.EntryNumber(n + 1), Term: 1, Kind: segment.KindNoop, Data: []byte{}}
		require.NoError(t, l.Append([]segment.Entry{e}))
		o = o.with(e)
	}
	require.Equal(t, []string{"00000000000000000000.log"}, logNames(t, cfg))
	for n := range 2 {
		e := segment.Entry{Number: record.EntryNumber(n + 101), Term: 1, Kind: segment.KindBatch, Offset: record.Offset(n), Data: batch(t, rng, record.Offset(n), 1, 1, 5)}
		require.NoError(t, l.Append([]segment.Entry{e}))
		o = o.with(e)
	}
	require.Equal(t, []string{"00000000000000000000.log", "00000000000000000001.log"}, logNames(t, cfg))
	requireSame(t, l, o, "rolled at last")
	require.NoError(t, l.Close())
	l = open(t, cfg)
	requireSame(t, l, o, "opened again")
}

func logNames(t *testing.T, cfg Config) []string {
	names, err := cfg.FS.List(testDir)
	require.NoError(t, err)
	return slices.DeleteFunc(names, func(name string) bool { return filepath.Ext(name) != segment.LogSuffix })
}

// TestTheLogRollsBeforeRelativeOffsetsLeave32Bits uses batches that take a
// billion offsets each, as a compacted log may have.
func TestTheLogRollsBeforeRelativeOffsetsLeave32Bits(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	cfg.SegmentBytes = 1 << 20
	l := open(t, cfg)
	o := newOracle()
	rng := testRand(t)
	for range 10 {
		n := o.next()
		b := batch(t, rng, o.offset(n), 1, 1, 1)
		copy(b[23:], []byte{0x3b, 0x9a, 0xc9, 0xff}) // last offset delta
		b = withRightSum(b)
		e := segment.Entry{Number: n, Term: 1, Kind: segment.KindBatch, Offset: o.offset(n), Data: b}
		require.NoError(t, l.Append([]segment.Entry{e}))
		o = o.with(e)
	}
	require.Len(t, logNames(t, cfg), 3) // four fit
	requireSame(t, l, o, "sparse")
	require.NoError(t, l.Close())
	l = open(t, cfg)
	requireSame(t, l, o, "sparse, opened again")
}

func TestTheEndSurvivesWhenAllRecordsAreTrimmed(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	l := open(t, cfg)
	o := newOracle()
	entries := o.make(t, testRand(t), 40)
	require.NoError(t, l.Append(entries))
	o = o.with(entries...)
	_, err := l.TrimTo(math.MaxInt64)
	require.NoError(t, err)
	b := l.Bounds()
	require.Equal(t, l.view.Load().active.seg.BaseOffset, b.Start)
	require.NoError(t, l.TruncateTo(b.First))
	require.NoError(t, l.Close())
	l = open(t, cfg)
	b.Next, b.End, b.LastTerm = b.First, b.Start, b.PrevTerm
	require.Equal(t, b, l.Bounds())
	requireSame(t, l, o.cut(b.First).trimmed(b.First), "empty, not at the beginning")
}

func TestTruncateAndResetRefuseWhatIsNotThere(t *testing.T) {
	l := open(t, testConfig(vfs.NewMem()))
	o := newOracle()
	entries := o.make(t, testRand(t), 5)
	require.NoError(t, l.Append(entries))
	o = o.with(entries...)
	for _, n := range []record.EntryNumber{0, 7, math.MaxUint64} {
		require.ErrorIs(t, l.TruncateTo(n), ErrNoEntry)
	}
	require.ErrorIs(t, l.Reset(0, 1, 1), record.ErrInvalid)
	require.ErrorIs(t, l.Reset(1, 1, -1), record.ErrInvalid)
	requireSame(t, l, o, "nothing was done")
}

func TestAReadErrorIsNotDamage(t *testing.T) {
	disk := vfs.NewMem()
	l := open(t, testConfig(disk))
	o := newOracle()
	entries := o.make(t, testRand(t), 30)
	require.NoError(t, l.Append(entries))
	disk.Fail(func(op vfs.Op, _ string) error {
		if op == vfs.OpRead {
			return context.DeadlineExceeded
		}
		return nil
	})
	_, err := l.ReadEntry(3)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, record.ErrCorrupt)
	_, err = l.Read(0, 1, 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, record.ErrCorrupt)
	disk.Fail(nil)
	requireSame(t, l, o.with(entries...), "after it")
}

func TestOpenEndsWithItsContext(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	l := open(t, cfg)
	require.NoError(t, l.Append(newOracle().make(t, testRand(t), 30)))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := Open(ctx, testDir, cfg) // the other one was not closed: there is something to scan
	require.ErrorIs(t, err, context.Canceled)
}

// TestTheLogWorksOnARealDisk runs the story where files are files.
func TestTheLogWorksOnARealDisk(t *testing.T) {
	t.Chdir(t.TempDir())
	r := newRun(t, testRand(t).Uint64(), testConfig(vfs.OS))
	require.NoError(t, r.story())
	require.NoError(t, r.open())
	requireSame(t, r.l, r.o, "at the end")
	require.NoError(t, r.close())
}

func TestReadingOnNeedsNoIndex(t *testing.T) {
	l := open(t, Config{FS: vfs.NewMem(), IndexBytes: 1 << 40}) // one slot in all
	o := newOracle()
	rng := rand.New(rand.NewPCG(1, 1))
	entries := o.make(t, rng, 200)
	require.NoError(t, l.Append(entries))
	reads := 0
	l.cfg.FS.(*vfs.Mem).Fail(func(op vfs.Op, _ string) error {
		if op == vfs.OpRead {
			reads++
		}
		return nil
	})
	for n := range 200 {
		_, err := l.ReadEntry(record.EntryNumber(n + 1))
		require.NoError(t, err)
	}
	require.LessOrEqual(t, reads, 2*200)
}
