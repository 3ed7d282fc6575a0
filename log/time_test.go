package log

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

// timedBatch returns a stamped batch of records with those times.
func timedBatch(t testing.TB, opt record.BatchOptions, offset record.Offset, times ...int64) record.Batch {
	var b record.Builder
	for _, ms := range times {
		require.NoError(t, b.Append(&record.Record{Time: time.UnixMilli(ms), Value: []byte("a value of some length")}))
	}
	built, err := b.Build(opt)
	require.NoError(t, err)
	built.Stamp(offset, 1)
	return built
}

// withHeader returns b with change made to it, and its checksum right again.
func withHeader(b record.Batch, change func(b record.Batch)) record.Batch {
	change(b)
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

func setLogAppendTime(b record.Batch) { b[22] |= 8 }
func setMaxTimestamp(ms int64) func(record.Batch) {
	return func(b record.Batch) { binary.BigEndian.PutUint64(b[35:], uint64(ms)) }
}

func batchEntry(n record.EntryNumber, b record.Batch) segment.Entry {
	return segment.Entry{Number: n, Term: 1, Kind: segment.KindBatch, Offset: b.BaseOffset(), Data: b}
}

// clock makes times of one kind.
type clock func(rng *rand.Rand) int64

// clocks are the kinds of times that producers send.
func clocks() map[string]clock {
	var now int64 = 1_700_000_000_000
	return map[string]clock{
		"rising":   func(rng *rand.Rand) int64 { now += rng.Int64N(3); return now },
		"jumping":  func(rng *rand.Rand) int64 { now += rng.Int64N(100) - 45; return now },
		"falling":  func(rng *rand.Rand) int64 { now -= rng.Int64N(50); return now },
		"constant": func(*rand.Rand) int64 { return 5 },
		"few":      func(rng *rand.Rand) int64 { return rng.Int64N(5) - 2 },
		"any":      func(rng *rand.Rand) int64 { return int64(rng.Uint64()) },
		"extreme": func(rng *rand.Rand) int64 {
			return []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, math.MaxInt64 - 1, math.MaxInt64}[rng.IntN(7)]
		},
		"mostly early": func(rng *rand.Rand) int64 {
			if rng.IntN(30) == 0 {
				return rng.Int64N(1000)
			}
			return -rng.Int64N(10)
		},
	}
}

// makeTimed returns n entries that continue o, with times of a clock: batches of all
// codecs, some with log append time, some control batches, some entries that are no batches.
func (o oracle) makeTimed(t testing.TB, rng *rand.Rand, c clock, n int) []segment.Entry {
	var entries []segment.Entry
	for range n {
		at := o.next()
		e := segment.Entry{Number: at, Term: max(o.term(at), 1), Kind: segment.KindNoop, Offset: o.offset(at), Data: []byte{}}
		if kind := rng.IntN(12); kind > 0 {
			times := make([]int64, 1+rng.IntN(4))
			for i := range times {
				times[i] = c(rng)
			}
			opt := record.BatchOptions{Codec: record.Codec(rng.IntN(5)), Control: kind == 1}
			b := timedBatch(t, opt, e.Offset, times...)
			if kind == 2 {
				b = withHeader(b, setLogAppendTime)
			}
			b.Stamp(e.Offset, record.LeaderEpoch(e.Term))
			e.Kind, e.Data = segment.KindBatch, b
		}
		entries = append(entries, e)
		o = o.with(e)
	}
	return entries
}

// stamps are the offsets and times of all records of a log: the oracle of questions.
type stamps []stamp

type stamp struct {
	offset record.Offset
	ms     int64
}

func (o oracle) stamps(t testing.TB) stamps {
	var all stamps
	var it record.Iterator
	for n := o.first; n < o.next(); n++ {
		e := o.entry(n)
		if e.Kind != segment.KindBatch || record.Batch(e.Data).IsControl() {
			continue
		}
		require.NoError(t, it.Reset(e.Data))
		for r := (record.Record{}); it.Next(&r); {
			all = append(all, stamp{r.Offset, r.Time.UnixMilli()})
		}
		require.NoError(t, it.Err())
	}
	return all
}

func (s stamps) find(ms int64, from, bound record.Offset) (record.Offset, bool) {
	for _, r := range s {
		if r.offset >= from && r.offset < bound && r.ms >= ms {
			return r.offset, true
		}
	}
	return record.NoOffset, false
}

// questions are n of the times at which an answer may change, in any order; all if n is 0.
func (s stamps) questions(rng *rand.Rand, n int) []int64 {
	times := []int64{math.MinInt64, -1, 0, 1, math.MaxInt64}
	for _, r := range s {
		times = append(times, r.ms, r.ms+1) // wraps from the last to the first
	}
	slices.Sort(times)
	times = slices.Compact(times)
	if n > 0 {
		rng.Shuffle(len(times), func(i, j int) { times[i], times[j] = times[j], times[i] })
		times = times[:min(n, len(times))]
	}
	return times
}

// requireSameTimes compares the answers for all times with those of o.
func requireSameTimes(t testing.TB, l *Log, o oracle, msg string) {
	t.Helper()
	s := o.stamps(t)
	requireAnswers(t, l, s, s.questions(nil, 0), 0, math.MaxInt64, msg)
}

func requireAnswers(t testing.TB, l *Log, s stamps, times []int64, from, bound record.Offset, msg string) {
	t.Helper()
	for _, ms := range times {
		want, wantOK := s.find(ms, from, bound)
		got, ok, err := l.OffsetForTime(t.Context(), ms, from, bound)
		if err != nil || got != want || ok != wantOK {
			require.Fail(t, "wrong answer", "%s: time %d in [%d, %d): %d, %v, %v; want %d, %v", msg, ms, from, bound, got, ok, err, want, wantOK)
		}
	}
}

// timedLife does random things to a log and compares the answers after each.
type timedLife struct {
	t   *testing.T
	rng *rand.Rand
	cfg Config
	l   *Log
	o   oracle
}

func (f *timedLife) step(c clock) string {
	switch k := f.rng.IntN(12); {
	case k < 6:
		entries := f.o.makeTimed(f.t, f.rng, c, 1+f.rng.IntN(20))
		require.NoError(f.t, f.l.Append(entries))
		f.o = f.o.with(entries...)
		return "append"
	case k == 6:
		n := f.o.next() - record.EntryNumber(f.rng.Uint64N(min(30, uint64(f.o.next()-f.o.first+1))))
		require.NoError(f.t, f.l.TruncateTo(n))
		f.o = f.o.cut(n)
		return "truncate"
	case k == 7:
		b := f.l.Bounds()
		_, err := f.l.TrimTo(b.Start + (b.End-b.Start)*record.Offset(f.rng.IntN(3))/4)
		require.NoError(f.t, err)
		f.o = f.o.trimmed(f.l.Bounds().First)
		return "trim"
	case k == 8 && f.rng.IntN(6) == 0:
		o := oracle{base: f.o.next() + 2, first: f.o.next() + 2, prev: 1, start: f.o.offset(f.o.next()) + 5}
		require.NoError(f.t, f.l.Reset(o.base, o.prev, o.start))
		f.o = o
		return "reset"
	case k == 9: // without Close, as after a kill
		require.NoError(f.t, f.l.release())
		f.dropTimes(f.rng.IntN(3))
		f.l = open(f.t, f.cfg)
		return "kill"
	default:
		require.NoError(f.t, f.l.Close())
		f.dropTimes(f.rng.IntN(3))
		f.l = open(f.t, f.cfg)
		return "reopen"
	}
}

// requireNoOrphans fails for an index without its .log: a later segment of that
// name would take it for its own.
func (f *timedLife) requireNoOrphans(msg string) {
	all := readFiles(f.t, f.cfg.FS)
	for name := range all {
		require.Contains(f.t, all, strings.TrimSuffix(name, path.Ext(name))+segment.LogSuffix, msg)
	}
}

// dropTimes deletes no time index, some, or all.
func (f *timedLife) dropTimes(which int) {
	names, err := f.cfg.FS.List(testDir)
	require.NoError(f.t, err)
	for _, name := range names {
		if strings.HasSuffix(name, segment.TimeIndexSuffix) && f.rng.IntN(2) < which {
			require.NoError(f.t, f.cfg.FS.Remove(path.Join(testDir, name)))
		}
	}
}

// TestOffsetForTimeIsThatOfALinearScan compares every answer with that of one who
// reads everything, over random lives with every kind of times.
func TestOffsetForTimeIsThatOfALinearScan(t *testing.T) {
	for name, c := range clocks() {
		t.Run(name, func(t *testing.T) {
			rng := testRand(t)
			for life := range 3 {
				cfg := testConfig(vfs.NewMem())
				cfg.SegmentBytes, cfg.IndexBytes = []int64{minSegmentBytes, 8 << 10, 64 << 10}[life%3], 1+rng.Int64N(300)
				f := &timedLife{t: t, rng: rng, cfg: cfg, l: open(t, cfg), o: newOracle()}
				for step := range 40 {
					msg := fmt.Sprintf("life %d, step %d, after %s", life, step, f.step(c))
					f.requireNoOrphans(msg)
					s := f.o.stamps(t)
					requireAnswers(t, f.l, s, s.questions(rng, 20), 0, math.MaxInt64, msg)
					active := f.l.view.Load().active
					scanned, _, err := active.seg.Scan(t.Context(), active.seg.Empty(), active.ext.Size)
					require.NoError(t, err)
					require.Equal(t, scanned.Times.Latest(), active.ext.Times.Latest(), "not rolled back: "+msg)
					b := f.l.Bounds()
					from := b.Start + record.Offset(rng.Int64N(int64(b.End-b.Start)+1))
					bound := from + record.Offset(rng.Int64N(int64(b.End-from)+1))
					requireAnswers(t, f.l, s, s.questions(rng, 20), from, bound, msg)
				}
				requireSameTimes(t, f.l, f.o, fmt.Sprintf("life %d, at its end", life))
				require.NoError(t, f.l.Close())
			}
		})
	}
}

func TestOffsetForTimeIsExactInsideABatch(t *testing.T) {
	for codec := record.None; codec <= record.Zstd; codec++ {
		l := open(t, testConfig(vfs.NewMem()))
		opt := record.BatchOptions{Codec: codec}
		require.NoError(t, l.Append([]segment.Entry{
			batchEntry(1, timedBatch(t, opt, 0, 10, 30, 20, 30)),
			batchEntry(2, timedBatch(t, record.BatchOptions{Control: true}, 4, 1000)),
			batchEntry(3, timedBatch(t, opt, 5, 15, math.MinInt64)),
			batchEntry(4, withHeader(timedBatch(t, opt, 7, 1, 40), setLogAppendTime)),
			batchEntry(5, timedBatch(t, opt, 9, 35, 60, math.MaxInt64)),
		}))
		for _, c := range []struct {
			t           int64
			from, bound record.Offset
			want        record.Offset
		}{
			{math.MinInt64, 0, 12, 0},
			{-1, 0, 12, 0},
			{0, 0, 12, 0},
			{10, 0, 12, 0},
			{11, 0, 12, 1},
			{30, 0, 12, 1},
			{31, 0, 12, 7},
			{40, 0, 12, 7}, // by the append time, that of both records
			{41, 0, 12, 10},
			{61, 0, 12, 11},
			{math.MaxInt64, 0, 12, 11},
			{math.MaxInt64, 0, 11, record.NoOffset}, // the bound lies in the batch
			{41, 0, 10, record.NoOffset},
			{20, 2, 12, 2}, // from does
			{15, 4, 12, 5},
			{math.MinInt64, 6, 7, 6},
			{math.MinInt64, 4, 5, record.NoOffset}, // a control batch has no records
			{0, 12, 12, record.NoOffset},
			{0, 13, math.MaxInt64, record.NoOffset},
			{0, 3, 2, record.NoOffset},
		} {
			got, ok, err := l.OffsetForTime(t.Context(), c.t, c.from, c.bound)
			require.NoError(t, err)
			require.Equal(t, c.want, got, "%v: %+v", codec, c)
			require.Equal(t, c.want != record.NoOffset, ok, "%v: %+v", codec, c)
		}
		require.NoError(t, l.Close())
		_, _, err := l.OffsetForTime(t.Context(), 0, 0, 1)
		require.ErrorIs(t, err, record.ErrClosed)
	}
}

// TestABatchWithAWrongMaxTimestampIsPassedOverOrLookedThrough holds for foreign
// batches: the rule is in FindTime's comment.
func TestABatchWithAWrongMaxTimestampIsPassedOverOrLookedThrough(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	l := open(t, cfg)
	require.NoError(t, l.Append([]segment.Entry{
		batchEntry(1, withHeader(timedBatch(t, record.BatchOptions{}, 0, 10, 50), setMaxTimestamp(10))),
		batchEntry(2, withHeader(timedBatch(t, record.BatchOptions{}, 2, 20), setMaxTimestamp(math.MaxInt64))),
		batchEntry(3, timedBatch(t, record.BatchOptions{}, 3, 30)),
	}))
	for reopened := range 2 {
		for ms, want := range map[int64]record.Offset{10: 0, 11: 2, 20: 2, 21: 3, 30: 3, 31: record.NoOffset} {
			got, _, err := l.OffsetForTime(t.Context(), ms, 0, 4)
			require.NoError(t, err)
			require.Equal(t, want, got, "time %d, reopened %d", ms, reopened)
		}
		require.NoError(t, l.Close())
		l = open(t, cfg)
	}
	require.NoError(t, l.Close())
}

func TestABatchThatCannotBeDecodedIsAnError(t *testing.T) {
	l := open(t, testConfig(vfs.NewMem()))
	bad := withHeader(timedBatch(t, record.BatchOptions{}, 1, 20, 30), func(b record.Batch) {
		for i := record.HeaderSize; i < len(b); i++ {
			b[i] = 0xff
		}
	})
	require.NoError(t, l.Append([]segment.Entry{
		batchEntry(1, timedBatch(t, record.BatchOptions{}, 0, 10)),
		batchEntry(2, bad),
		batchEntry(3, timedBatch(t, record.BatchOptions{}, 3, 40)),
	}))
	_, _, err := l.OffsetForTime(t.Context(), 15, 0, 4)
	require.ErrorIs(t, err, record.ErrCorrupt)
	require.ErrorContains(t, err, ".log")
	got, ok, err := l.OffsetForTime(t.Context(), 10, 0, 4)
	require.NoError(t, err)
	require.True(t, ok)
	require.Zero(t, got)
	got, _, err = l.OffsetForTime(t.Context(), 35, 0, 4)
	require.NoError(t, err, "its header says that it does not matter")
	require.EqualValues(t, 3, got)
	require.NoError(t, l.Close())
}

// timedLog writes a log of several segments whose times jump, and closes it.
func timedLog(t testing.TB) (oracle, files) {
	disk := vfs.NewMem()
	cfg := testConfig(disk)
	cfg.SegmentBytes, cfg.IndexBytes = 3<<10, 50
	l := open(t, cfg)
	rng := testRand(t)
	o := newOracle()
	c := clocks()["jumping"]
	for len(l.view.Load().sealed) < 3 || l.Bounds().Next < l.view.Load().active.seg.BaseEntry+9 {
		e := o.makeTimed(t, rng, c, 1)
		require.NoError(t, l.Append(e))
		o = o.with(e...)
	}
	require.NoError(t, l.Close())
	return o, readFiles(t, disk)
}

// TestAnswersAreTheSameWhateverATimeIndexHolds replaces each time index by rubbish.
func TestAnswersAreTheSameWhateverATimeIndexHolds(t *testing.T) {
	o, f := timedLog(t)
	s := o.stamps(t)
	rng := testRand(t)
	for name, content := range f {
		if !strings.HasSuffix(name, segment.TimeIndexSuffix) {
			continue
		}
		noise := make([]byte, len(content))
		for i := range noise {
			noise[i] = byte(rng.Uint32())
		}
		variants := map[string][]byte{
			"missing": nil, "empty": {}, "zero": make([]byte, len(content)), "noise": noise, "longer": append(slices.Clone(content), 0),
			"padded": slices.Concat(content, make([]byte, 4096)), "doubled": slices.Concat(content, content),
		}
		for other, b := range f {
			variants["that is "+other] = b
		}
		for i := range content {
			variants[fmt.Sprintf("cut at %d", i)] = content[:i]
			flipped := slices.Clone(content)
			flipped[i] ^= 1 << rng.IntN(8)
			variants[fmt.Sprintf("flipped at %d", i)] = flipped
		}
		delete(variants, "that is "+name)
		for what, b := range variants {
			disk := f.disk(t, name, b)
			cfg := testConfig(disk)
			cfg.SegmentBytes, cfg.IndexBytes = 3<<10, 50
			l := open(t, cfg)
			if active := path.Base(l.view.Load().active.seg.Name("")); name == active+segment.TimeIndexSuffix {
				require.Equal(t, []string{name}, l.Recovery().RebuiltIndexes, what)
			} else {
				require.Zero(t, l.Recovery().ScannedBytes, "nobody has asked for a time yet")
			}
			requireAnswers(t, l, s, append(s.questions(rng, 20), math.MaxInt64), 0, math.MaxInt64, name+" "+what)
			require.NoError(t, l.Close())
			require.Equal(t, f, readFiles(t, disk), "%s was %s", name, what)
		}
	}
}

// TestLeftoversOfTimeIndexesAreRemoved has what crashes may leave, and none of it counts.
func TestLeftoversOfTimeIndexesAreRemoved(t *testing.T) {
	o, f := timedLog(t)
	clean := len(f)
	f["00000000000000099977.timeindex"] = f["00000000000000000000.timeindex"]
	f["00000000000000000000.timeindex.tmp"] = []byte("never renamed")
	cfg := testConfig(f.disk(t, "", nil))
	l := open(t, cfg)
	require.ElementsMatch(t, []string{"00000000000000099977.timeindex", "00000000000000000000.timeindex.tmp"}, l.Recovery().Removed)
	requireSameTimes(t, l, o, "with leftovers")
	require.NoError(t, l.Close())
	require.Len(t, readFiles(t, cfg.FS), clean)
}

// TestATimeIndexOfAnEarlierEndDoesNotCount puts the time index of a log back that was
// cut since, and appended to with other times up to the same size.
func TestATimeIndexOfAnEarlierEndDoesNotCount(t *testing.T) {
	const name = "00000000000000000000.timeindex"
	disk := vfs.NewMem()
	cfg := testConfig(disk)
	cfg.SegmentBytes, cfg.IndexBytes = 1<<20, 50
	l := open(t, cfg)
	write := func(ms int64, term uint64) oracle {
		o := newOracle()
		for n := range 40 {
			b := timedBatch(t, record.BatchOptions{}, record.Offset(n), ms-int64(n))
			b.Stamp(record.Offset(n), record.LeaderEpoch(term))
			o = o.with(segment.Entry{Number: record.EntryNumber(n + 1), Term: term, Kind: segment.KindBatch, Offset: record.Offset(n), Data: b})
		}
		require.NoError(t, l.Append(o.entries))
		return o
	}
	write(1000, 1)
	require.NoError(t, l.Close())
	old := readFiles(t, disk)[name]

	l = open(t, cfg)
	require.NoError(t, l.TruncateTo(1))
	require.NotContains(t, readFiles(t, disk), name, "it speaks of what is gone")
	o := write(5000, 2)
	requireSameTimes(t, l, o, "after the cut")
	require.NoError(t, l.Close())
	cfg.FS = readFiles(t, disk).disk(t, name, old)
	l = open(t, cfg)
	require.Equal(t, []string{name}, l.Recovery().RebuiltIndexes)
	require.NotContains(t, readFiles(t, cfg.FS), name, "it may fit some day, by chance")
	requireSameTimes(t, l, o, "with the old file")
	require.NoError(t, l.Close())
}

// TestSealedSegmentsAreScannedForTimesOnlyWhenAsked opens a log without a time index.
func TestSealedSegmentsAreScannedForTimesOnlyWhenAsked(t *testing.T) {
	o, f := timedLog(t)
	bare := files{}
	for name, b := range f {
		if !strings.HasSuffix(name, segment.TimeIndexSuffix) {
			bare[name] = b
		}
	}
	for _, full := range []bool{false, true} {
		disk := bare.disk(t, "", nil)
		if full {
			disk.SetCapacity(disk.Used())
		}
		cfg := testConfig(disk)
		cfg.IndexBytes = 50
		l := open(t, cfg)
		active := l.view.Load().active
		require.Equal(t, active.ext.Size-segment.HeaderSize, l.Recovery().ScannedBytes)
		require.NoError(t, l.Close())
		n := 0
		for name := range readFiles(t, disk) {
			if strings.HasSuffix(name, segment.TimeIndexSuffix) {
				n++
			}
		}
		require.Equal(t, map[bool]int{false: 1, true: 0}[full], n, "nobody has asked")

		l = open(t, cfg)
		requireSameTimes(t, l, o, "without files")
		require.NoError(t, l.Close())
		if !full {
			require.Equal(t, f, readFiles(t, disk))
		}
	}
}

// TestDamageIsFoundByWhoMustReadIt flips bits of a segment. An answer is right, or
// there is none but a *CorruptError: with a time index, and when it must be built.
func TestDamageIsFoundByWhoMustReadIt(t *testing.T) {
	o, f := timedLog(t)
	rng := testRand(t)
	s := o.stamps(t)
	const name = "00000000000000000000.log"
	for i := segment.HeaderSize; i < len(f[name]); i += 1 + rng.IntN(20) {
		b := slices.Clone(f[name])
		b[i] ^= 1 << rng.IntN(8)
		disk := f.disk(t, name, b)
		if i%2 == 0 {
			require.NoError(t, disk.Remove(path.Join(testDir, "00000000000000000000.timeindex")))
		}
		cfg := testConfig(disk)
		l, err := Open(t.Context(), testDir, cfg)
		if err != nil {
			require.ErrorIs(t, err, record.ErrCorrupt)
			continue
		}
		for _, ms := range s.questions(rng, 20) {
			want, wantOK := s.find(ms, 0, math.MaxInt64)
			got, ok, err := l.OffsetForTime(t.Context(), ms, 0, math.MaxInt64)
			if err != nil {
				corrupt := (*CorruptError)(nil)
				require.ErrorAs(t, err, &corrupt)
				continue
			}
			require.Equal(t, want, got, "byte %d, time %d", i, ms)
			require.Equal(t, wantOK, ok)
		}
		require.NoError(t, l.Close())
	}
}

// TestAnswersAreRightAfterACrashAtAnyCall crashes a life of appends, rolls,
// truncations, trims, resets and questions at every mutating call.
func TestAnswersAreRightAfterACrashAtAnyCall(t *testing.T) {
	t.Parallel()
	rng := testRand(t)
	seed := rng.Uint64()
	c := clocks()["few"]
	for point := 0; ; point++ {
		disk := vfs.NewMem()
		disk.CrashAfter(point)
		cfg := testConfig(disk)
		cfg.IndexBytes = 50
		r := newRun(t, seed, cfg)
		err := r.timedStory(c)
		if !disk.Crashed() {
			require.NoError(t, err)
			t.Logf("%d crash points", point)
			return
		}
		for _, reboot := range []uint64{0, 1, 2 + rng.Uint64N(100)} {
			msg := fmt.Sprintf("point %d, reboot %d", point, reboot)
			cfg.FS = disk.Reboot(reboot)
			l := open(t, cfg)
			o := pick(t, l, r.after, msg)
			requireSameTimes(t, l, o, msg)
			more := o.makeTimed(t, rng, c, 4)
			require.NoError(t, l.Append(more))
			require.NoError(t, l.Close())
			l = open(t, cfg)
			requireSameTimes(t, l, o.with(more...), msg+", appended to, opened again")
			require.NoError(t, l.Close())
		}
	}
}

func (r *run) timedStory(c clock) error {
	add := func(n int) func() error {
		return func() error {
			entries := r.o.makeTimed(r.t, r.rng, c, n)
			a := exactly(r.o.with(entries...))
			a.nextLo = r.sync
			r.after = []allowed{a}
			if err := r.l.Append(entries); err != nil {
				return err
			}
			r.settle(r.o.with(entries...))
			requireSameTimes(r.t, r.l, r.o, "in the story")
			return nil
		}
	}
	forget := func() error { // a time index, so that it is built and saved
		const name = "00000000000000000000.timeindex"
		return r.cfg.FS.Remove(path.Join(testDir, name))
	}
	for _, step := range []func() error{
		r.open, add(12), r.close,
		r.open, add(15), func() error { return r.truncate(5) }, add(3), r.close, forget,
		r.open, add(1), func() error { return r.truncate(14) }, add(12), // into a sealed segment
		func() error { return r.trim(r.o.offset(r.o.next()) / 2) }, r.close,
		r.open, add(2), func() error { return r.reset(r.o.next(), 1, r.o.offset(r.o.next())) }, add(9), r.close,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// TestQuestionsRaceEverything asks while the log is appended to, cut and trimmed.
// The time of each record is its offset, so a right answer is known without a lock.
func TestQuestionsRaceEverything(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	cfg.SegmentBytes, cfg.Flush = 4<<10, FlushNever
	l := open(t, cfg)
	rng := testRand(t)
	number, offset := record.EntryNumber(1), record.Offset(0)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		rng := rand.New(rand.NewPCG(rng.Uint64(), 1))
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				b := l.Bounds()
				ms := int64(b.Start) + rng.Int64N(int64(b.End-b.Start)+1)
				got, ok, err := l.OffsetForTime(t.Context(), ms, 0, math.MaxInt64)
				if err != nil || ok && int64(got) != ms && (int64(got) < ms || got > l.Bounds().Start) {
					t.Errorf("time %d: %d, %v, %v", ms, got, ok, err)
					return
				}
			}
		})
	}
	for range 400 {
		switch k := rng.IntN(10); {
		case k < 7:
			var entries []segment.Entry
			for range 1 + rng.IntN(10) {
				times := []int64{int64(offset), int64(offset) + 1, int64(offset) + 2}
				entries = append(entries, batchEntry(number, timedBatch(t, record.BatchOptions{Codec: record.Codec(rng.IntN(5))}, offset, times...)))
				number, offset = number+1, offset+3
			}
			require.NoError(t, l.Append(entries))
		case k == 7:
			b := l.Bounds()
			back := rng.Uint64N(min(20, uint64(b.Next-b.First)+1))
			number, offset = number-record.EntryNumber(back), offset-3*record.Offset(back)
			require.NoError(t, l.TruncateTo(number))
		case k == 8:
			b := l.Bounds()
			_, err := l.TrimTo(b.Start + (b.End-b.Start)/4)
			require.NoError(t, err)
		case rng.IntN(4) == 0:
			number, offset = number+1, offset+10
			require.NoError(t, l.Reset(number, 1, offset))
		}
	}
	close(done)
	wg.Wait()
	require.NoError(t, l.Close())
}

// TestReadersThatBuildATimeIndexShareIt asks a log without one from many
// goroutines, and ends the ctx of one.
func TestReadersThatBuildATimeIndexShareIt(t *testing.T) {
	o, f := timedLog(t)
	f.dropAll(segment.TimeIndexSuffix)
	l := open(t, testConfig(f.disk(t, "", nil)))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { requireSameTimes(t, l, o, "at once") })
	}
	wg.Wait()
	require.NoError(t, l.Close())
}

func (f files) dropAll(suffix string) {
	for name := range f {
		if strings.HasSuffix(name, suffix) {
			delete(f, name)
		}
	}
}

// TestAnInterruptedScanForTimesGoesOn asks with a ctx that ends after a few
// looks at it, again and again: each call gets further.
func TestAnInterruptedScanForTimesGoesOn(t *testing.T) {
	disk := vfs.NewMem()
	cfg := testConfig(disk)
	cfg.SegmentBytes, cfg.Flush = 8<<20, FlushNever
	l := open(t, cfg)
	rng := testRand(t)
	for n := record.EntryNumber(1); len(l.view.Load().sealed) == 0; n++ {
		require.NoError(t, l.Append([]segment.Entry{batchEntry(n, batch(t, rng, record.Offset(n-1), 1, 1, 300<<10))}))
	}
	end := l.Bounds().End
	require.NoError(t, l.Close())
	require.NoError(t, disk.Remove(path.Join(testDir, "00000000000000000000.timeindex")))
	l = open(t, cfg)
	calls := 1
	for ; ; calls++ {
		_, ok, err := l.OffsetForTime(&shortContext{Context: t.Context(), left: 3}, 2, 0, end)
		require.False(t, ok)
		if err == nil {
			break
		}
		require.ErrorIs(t, err, context.Canceled)
		require.Less(t, calls, 20)
	}
	require.Greater(t, calls, 2)
	requireAnswers(t, l, stamps{{0, 1}}, []int64{1, 2}, 0, end, "at last")
	require.NoError(t, l.Close())
	require.Contains(t, readFiles(t, disk), "00000000000000000000.timeindex")
}

// shortContext ends when it has been looked at a number of times.
type shortContext struct {
	context.Context
	left int
}

func (c *shortContext) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}
