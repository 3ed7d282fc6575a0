package log

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

const hour = int64(time.Hour / time.Millisecond)

// dated returns segments of ten offsets and 100 bytes each, made at those hours by a
// clock that is right now and then.
func dated(hours ...int64) (segs []held) {
	latest := int64(math.MinInt64)
	for i, h := range hours {
		latest = max(latest, h*hour)
		segs = append(segs, held{
			Expired: Expired{File: fmt.Sprint(i), Start: record.Offset(10 * i), End: record.Offset(10*i + 10), Bytes: 100},
			created: h * hour, latest: latest,
		})
	}
	return segs
}

func TestRetentionRules(t *testing.T) {
	const all = record.Offset(math.MaxInt64)
	none := int64(math.MinInt64)
	for name, c := range map[string]struct {
		keep    Retention
		hours   []int64 // when segments were made; it is hour 100
		bound   record.Offset
		records []int64 // the hours of the segments' latest records
		want    string  // the reasons for which segments go
	}{
		"nothing is asked for":                       {Retention{}, []int64{0, 1, 2}, all, nil, ""},
		"one segment is active":                      {Retention{MaxAge: time.Hour, MaxBytes: 1}, []int64{0}, all, nil, ""},
		"the next one was made long ago":             {Retention{MaxAge: 10 * time.Hour}, []int64{0, 50, 89, 95, 99}, all, nil, "AA"},
		"the next one was made just that long ago":   {Retention{MaxAge: 10 * time.Hour}, []int64{0, 90, 99}, all, nil, ""},
		"all are old, the last is active":            {Retention{MaxAge: 10 * time.Hour}, []int64{0, 1, 2, 3}, all, nil, "AAA"},
		"less than a millisecond is an age":          {Retention{MaxAge: 1}, []int64{0, 99, 100}, all, nil, "A"},
		"what remains has just the size":             {Retention{MaxBytes: 300}, []int64{0, 1, 2, 3}, all, nil, "B"},
		"what remained would be too little":          {Retention{MaxBytes: 301}, []int64{0, 1, 2, 3}, all, nil, ""},
		"any size is too much":                       {Retention{MaxBytes: 1}, []int64{0, 1, 2, 3}, all, nil, "BBB"},
		"both rules, age first":                      {Retention{MaxAge: 50 * time.Hour, MaxBytes: 200}, []int64{0, 1, 90, 95, 96}, all, nil, "ABB"},
		"never past the bound":                       {Retention{MaxAge: time.Hour, MaxBytes: 1}, []int64{0, 1, 2, 3}, 29, nil, "AA"},
		"up to the bound":                            {Retention{MaxAge: time.Hour}, []int64{0, 1, 2, 3}, 30, nil, "AAA"},
		"nothing is below the bound":                 {Retention{MaxAge: time.Hour}, []int64{0, 1, 2, 3}, 0, nil, ""},
		"old records, appended lately":               {Retention{MaxAge: time.Hour, ByRecordTime: true}, []int64{99, 99, 99}, all, []int64{5, 6}, "AA"},
		"late records, appended long ago":            {Retention{MaxAge: time.Hour, ByRecordTime: true}, []int64{0, 1, 2, 3}, all, []int64{5, 100, 7}, "A"},
		"no record has just that age":                {Retention{MaxAge: time.Hour, ByRecordTime: true}, []int64{0, 1, 2}, all, []int64{99, 99}, ""},
		"without records, by append time":            {Retention{MaxAge: time.Hour, ByRecordTime: true}, []int64{0, 1, 2, 100}, all, []int64{none, none, none}, "AA"},
		"records of the future stay":                 {Retention{MaxAge: time.Hour, ByRecordTime: true}, []int64{0, 1, 2}, all, []int64{1000, 5}, ""},
		"the next was made in the future":            {Retention{MaxAge: time.Hour}, []int64{0, 1, 200}, all, nil, "A"},
		"all were made in the future":                {Retention{MaxAge: time.Hour}, []int64{200, 201, 202}, all, nil, ""},
		"one of the future, and one after that":      {Retention{MaxAge: time.Hour}, []int64{0, 1, 200, 50, 100}, all, nil, "AAA"},
		"made while the clock was set back":          {Retention{MaxAge: time.Hour}, []int64{95, -1000, -999, 96, 100}, all, nil, "AAA"},
		"still set back when the active one is made": {Retention{MaxAge: time.Hour}, []int64{0, 95, -1000, -999}, all, nil, "A"},
	} {
		t.Run(name, func(t *testing.T) {
			segs := dated(c.hours...)
			plan, err := c.keep.plan(segs, 100*hour, c.bound, func(i int) (int64, error) {
				if c.records[i] == none {
					return none, nil
				}
				return c.records[i] * hour, nil
			})
			require.NoError(t, err)
			var got string
			for i, s := range plan.Segments {
				want := segs[i].Expired
				want.Reason = s.Reason
				require.Equal(t, want, s)
				got += map[Reason]string{ReasonAge: "A", ReasonBytes: "B"}[s.Reason]
			}
			require.Equal(t, c.want, got)
			require.Equal(t, segs[len(got)].Start, plan.Start)
			require.Equal(t, int64(100*len(got)), plan.Bytes())
		})
	}
}

// TestRetentionKeepsWhatItMust plans at random, with clocks set at random.
func TestRetentionKeepsWhatItMust(t *testing.T) {
	rng := testRand(t)
	trimmed := 0
	for range 20_000 {
		var segs []held
		hours := make([]int64, 1+rng.IntN(8))
		real := rng.Int64N(50) // when segments were made
		right := true          // the clock was, all the time
		var made, records []int64
		for i := range hours {
			real += rng.Int64N(20)
			made, hours[i] = append(made, real), real
			records = append(records, rng.Int64N(200)*hour)
			if rng.IntN(6) == 0 {
				hours[i] += rng.Int64N(4000) - 2000
				right = false
			}
		}
		now := real + rng.Int64N(20)
		segs = dated(hours...)
		for i := range segs {
			segs[i].Bytes = 1 + rng.Int64N(1000)
		}
		if rng.IntN(3) == 0 { // older ones went before
			n := rng.IntN(len(segs))
			segs, made, records = segs[n:], made[n:], records[n:]
		}
		newest := func(records []int64) func(int) (int64, error) {
			return func(i int) (int64, error) { return records[i], nil }
		}
		keep := Retention{MaxAge: time.Duration(rng.IntN(60)) * time.Hour, MaxBytes: rng.Int64N(3000), ByRecordTime: rng.IntN(3) == 0}
		bound := segs[0].Start + record.Offset(rng.IntN(100))
		plan, err := keep.plan(segs, now*hour, bound, newest(records))
		require.NoError(t, err)
		n := len(plan.Segments)
		trimmed += n
		require.Less(t, n, len(segs), "the active one stays")
		require.LessOrEqual(t, plan.Start, max(bound, segs[0].Start))
		var rest int64
		for _, s := range segs[n:] {
			rest += s.Bytes
		}
		for i, s := range plan.Segments {
			switch {
			case s.Reason == ReasonBytes && i == n-1:
				require.GreaterOrEqual(t, rest, keep.MaxBytes)
			case s.Reason == ReasonAge && !keep.ByRecordTime && right:
				require.Less(t, made[i+1], now-int64(keep.MaxAge/time.Hour))
			}
		}

		again, err := keep.plan(segs[n:], now*hour, bound, newest(records[n:]))
		require.NoError(t, err)
		require.Empty(t, again.Segments, "what went once is all that goes")

		longer := keep
		if longer.MaxAge > 0 {
			longer.MaxAge += time.Duration(1+rng.IntN(20)) * time.Hour
		}
		more, err := longer.plan(segs, now*hour, bound, newest(records))
		require.NoError(t, err)
		require.LessOrEqual(t, len(more.Segments), n, "whoever keeps longer keeps more")
	}
	require.Greater(t, trimmed, 1000)
}

// TestNothingGoesEarlyThatWasAppendedByAWrongClock has the clock wrong for one
// while, back or ahead, and right before, after and now. It may be behind without
// a date that shows it, and then the age is wrong by as much.
func TestNothingGoesEarlyThatWasAppendedByAWrongClock(t *testing.T) {
	rng := testRand(t)
	for range 20_000 {
		n := 3 + rng.IntN(6)
		from := 1 + rng.IntN(n-2)
		to := from + 1 + rng.IntN(n-1-from) // at least the first and the last are right
		step := rng.Int64N(4000) - 2000
		if rng.IntN(2) == 0 {
			step = rng.Int64N(40) - 20
		}
		made, hours := make([]int64, n), make([]int64, n)
		at := int64(0)
		for i := range made {
			at += 1 + rng.Int64N(10)
			made[i], hours[i] = at, at
			if from <= i && i < to {
				hours[i] += step
			}
		}
		now := at + rng.Int64N(30)
		segs := dated(hours...)
		gone := rng.IntN(from + 1) // by size, say
		ended := ends(segs[gone:], now*hour)
		behind := int64(0)
		if hours[to-1] >= hours[from-1] {
			behind = max(0, -step)
		}
		for i := range ended[:len(ended)-1] {
			require.GreaterOrEqual(t, ended[i], (made[gone+i+1]-behind)*hour, "segment %d, %v of %v at %d", i, hours, made, now)
		}
		if hours[to-1] > now { // a date in the future holds nothing up
			require.NotEqual(t, int64(math.MaxInt64), ended[0])
		}
	}
}

func TestWatchDoesNotFollowAClockThatIsSetAhead(t *testing.T) {
	start := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	type at struct {
		elapsed, wall time.Duration // since start
		want          time.Duration
		ahead         time.Duration
	}
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		floor time.Duration
		ats   []at
	}{
		"in step":         {0, []at{{0, 0, 0, 0}, {day, day, day, 0}, {400 * day, 400 * day, 400 * day, 0}}},
		"a little faster": {0, []at{{day, day + time.Hour, day + time.Hour, 0}, {2 * day, 2*day + 2*time.Hour, 2*day + 2*time.Hour, 0}}},
		"ahead for good":  {0, []at{{day, 100 * day, day, 99 * day}, {2 * day, 101 * day, 2 * day, 0}}},
		"ahead and back":  {0, []at{{day, 100 * day, day, 99 * day}, {2 * day, 2 * day, 2 * day, 0}, {3 * day, 90 * day, 3 * day, 87 * day}}},
		"back and right":  {0, []at{{day, -100 * day, -100 * day, 0}, {2 * day, 2 * day, 2 * day, 0}, {3 * day, 3 * day, 3 * day, 0}}},
		"back for good":   {0, []at{{day, -100 * day, -100 * day, 0}, {50 * day, -51 * day, -51 * day, 0}}},
		"behind at first": {day, []at{{0, 0, 0, 0}, {time.Minute, 10 * day, 10 * day, 0}, {time.Hour, 20 * day, 10*day + 59*time.Minute, 10*day - 59*time.Minute + 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatch(func() time.Time { return start })
			w.floor = start.Add(c.floor)
			for _, a := range c.ats {
				w.read = func() (time.Time, time.Duration) { return start.Add(a.wall), a.elapsed }
				now, ahead := w.now()
				require.Equal(t, a.want, now.Sub(start))
				require.Equal(t, a.ahead, ahead)
			}
		})
	}
}

// hand is a clock that a test moves. Its times have no monotonic reading.
type hand struct{ at time.Time }

func newHand() *hand                      { return &hand{time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)} }
func (h *hand) now() time.Time            { return h.at }
func (h *hand) pass(d time.Duration)      { h.at = h.at.Add(d) }
func (h *hand) config(fsys vfs.FS) Config { c := testConfig(fsys); c.Now = h.now; return c }

// appendOne appends a batch of one record of that time to l.
func appendOne(t *testing.T, l *Log, at time.Time) {
	t.Helper()
	var b record.Builder
	require.NoError(t, b.Append(&record.Record{Time: at, Value: []byte("some value")}))
	built, err := b.Build(record.BatchOptions{})
	require.NoError(t, err)
	end := l.Bounds()
	built.Stamp(end.End, 1)
	require.NoError(t, l.Append([]segment.Entry{{Number: end.Next, Term: 1, Kind: segment.KindBatch, Offset: end.End, Data: built}}))
}

func planOf(t *testing.T, l *Log, keep Retention, bound record.Offset) Plan {
	t.Helper()
	plan, err := l.PlanRetention(context.Background(), keep, bound)
	require.NoError(t, err)
	return plan
}

func TestTheActiveSegmentRollsByAge(t *testing.T) {
	clock := newHand()
	cfg := clock.config(vfs.NewMem())
	cfg.SegmentAge = time.Hour
	l := open(t, cfg)
	defer func() { require.NoError(t, l.Close()) }()
	segments := func() int { return len(l.view.Load().sealed) + 1 }

	clock.pass(2 * time.Hour)
	require.NoError(t, l.Append([]segment.Entry{{Number: 1, Term: 1, Kind: segment.KindNoop}}))
	require.Equal(t, 1, segments(), "without an offset it never rolls")
	appendOne(t, l, clock.at)
	require.Equal(t, 1, segments())
	appendOne(t, l, clock.at)
	require.Equal(t, 2, segments(), "the first append after its age")
	clock.pass(time.Hour - 1)
	appendOne(t, l, clock.at)
	require.Equal(t, 2, segments())
	clock.pass(1)
	appendOne(t, l, clock.at)
	require.Equal(t, 3, segments())
	clock.pass(-59 * time.Minute)
	appendOne(t, l, clock.at)
	require.Equal(t, 3, segments(), "set back a little")
	clock.pass(-time.Minute)
	appendOne(t, l, clock.at)
	require.Equal(t, 4, segments(), "set back by an age: its date is worth nothing")
	appendOne(t, l, clock.at)
	require.Equal(t, 4, segments())

	seg := l.view.Load().active.seg
	require.Equal(t, clock.at.UnixMilli(), seg.Created)
	require.Equal(t, clock.at.Add(time.Hour).UnixMilli(), seg.Latest)
}

// threeDays appends a record an hour for three days, a segment a day; record
// times run backwards.
func threeDays(t *testing.T, clock *hand, cfg Config) *Log {
	cfg.SegmentAge, cfg.SegmentBytes = 24*time.Hour, 1<<20
	l := open(t, cfg)
	first := clock.at
	for i := range 72 {
		appendOne(t, l, first.Add(-time.Duration(i)*time.Hour))
		clock.pass(time.Hour)
	}
	appendOne(t, l, first)
	require.Len(t, l.view.Load().sealed, 3)
	return l
}

func TestRetentionByAppendTimeAndByRecordTime(t *testing.T) {
	clock := newHand()
	disk := vfs.NewMem()
	cfg := clock.config(disk)
	l := threeDays(t, clock, cfg) // segments of the hours [0, 24), [24, 48), [48, 72) and [72, 73)

	day := 24 * time.Hour
	require.Empty(t, planOf(t, l, Retention{MaxAge: 2 * day}, 1000).Segments)
	clock.pass(time.Millisecond)
	plan := planOf(t, l, Retention{MaxAge: 2 * day}, 1000)
	require.Equal(t, record.Offset(24), plan.Start)
	require.Equal(t, []Expired{{
		File: "00000000000000000000.log", Start: 0, End: 24, Bytes: l.view.Load().sealed[0].ext.Size, Reason: ReasonAge,
	}}, plan.Segments)
	require.Equal(t, record.Offset(72), planOf(t, l, Retention{MaxAge: 1}, 1000).Start)
	require.Equal(t, record.Offset(48), planOf(t, l, Retention{MaxAge: 1}, 71).Start, "not past the bound")

	// The latest record of the first segment is three days old, that of the second four.
	byRecord := Retention{MaxAge: 3 * day, ByRecordTime: true}
	require.Equal(t, record.Offset(72), planOf(t, l, byRecord, 1000).Start)
	byRecord.MaxAge = 3*day + time.Hour
	require.Equal(t, record.Offset(0), planOf(t, l, byRecord, 1000).Start, "the first one holds up the others")

	// A plan changes nothing, and done once it is done.
	require.Equal(t, record.Offset(0), l.Bounds().Start)
	start, err := l.TrimTo(plan.Start)
	require.NoError(t, err)
	require.Equal(t, plan.Start, start)
	require.Empty(t, planOf(t, l, Retention{MaxAge: 2 * day}, 1000).Segments)

	// All of it is on disk.
	want := planOf(t, l, Retention{MaxAge: day}, 1000)
	require.Len(t, want.Segments, 1)
	require.NoError(t, l.Close())
	l = open(t, cfg)
	require.Equal(t, want, planOf(t, l, Retention{MaxAge: day}, 1000))

	_, err = l.PlanRetention(context.Background(), Retention{MaxAge: -1}, 0)
	require.ErrorIs(t, err, record.ErrInvalid)
	require.NoError(t, l.Close())
	_, err = l.PlanRetention(context.Background(), Retention{}, 0)
	require.ErrorIs(t, err, record.ErrClosed)
}

func TestAClockSetAheadTakesNothingAndIsToldOnce(t *testing.T) {
	clock := newHand()
	var told bytes.Buffer
	cfg := clock.config(vfs.NewMem())
	cfg.Logger = slog.New(slog.NewTextHandler(&told, nil))
	l := threeDays(t, clock, cfg)
	elapsed := 73 * time.Hour
	l.watch.read = func() (time.Time, time.Duration) { return clock.at, elapsed }
	keep := Retention{MaxAge: 50 * time.Hour}
	require.Empty(t, planOf(t, l, keep, 1000).Segments)
	require.Empty(t, told.String())

	clock.pass(1000 * 24 * time.Hour)
	for range 3 {
		require.Empty(t, planOf(t, l, keep, 1000).Segments)
	}
	require.Equal(t, 1, bytes.Count(told.Bytes(), []byte("the clock was set ahead")), told.String())

	clock.pass(4 * time.Hour) // as long as must pass, it passes
	elapsed += 4 * time.Hour
	require.Equal(t, record.Offset(24), planOf(t, l, keep, 1000).Start)

	clock.pass(-2000 * 24 * time.Hour) // set back: it was no older then
	require.Empty(t, planOf(t, l, keep, 1000).Segments)
	clock.pass(1000 * 24 * time.Hour) // set right
	require.Equal(t, record.Offset(24), planOf(t, l, keep, 1000).Start)
	require.NoError(t, l.Close())
}

// TestATrimIsDoneOrGoesOnAfterACrash crashes the disk at every call of a trim.
func TestATrimIsDoneOrGoesOnAfterACrash(t *testing.T) {
	seed := testRand(t).Uint64()
	keep := Retention{MaxBytes: 2000}
	for point := 0; ; point++ {
		disk := vfs.NewMem()
		cfg := testConfig(disk)
		l := open(t, cfg)
		o := newOracle()
		entries := o.make(t, rand.New(rand.NewPCG(seed, 1)), 40)
		require.NoError(t, l.Append(entries))
		o = o.with(entries...)
		plan := planOf(t, l, keep, o.offset(o.next()))
		require.NotEmpty(t, plan.Segments)
		starts := []record.Offset{0}
		for _, s := range plan.Segments {
			starts = append(starts, s.End)
		}
		disk.CrashAfter(point)
		_, err := l.TrimTo(plan.Start)
		if !disk.Crashed() {
			require.NoError(t, err)
			require.NoError(t, l.Close())
			return // every point has been tried
		}
		for _, reboot := range []uint64{0, 1, 2 + seed%97, 2 + seed%89} {
			msg := fmt.Sprintf("point %d, reboot %d", point, reboot)
			cfg.FS = disk.Reboot(reboot)
			l := open(t, cfg)
			b := l.Bounds()
			require.Contains(t, starts, b.Start, msg)
			requireSame(t, l, o.trimmed(b.First), msg)

			again := planOf(t, l, keep, b.End)
			require.Equal(t, plan.Start, again.Start, msg)
			_, err := l.TrimTo(again.Start)
			require.NoError(t, err)
			require.Equal(t, plan.Start, l.Bounds().Start)
			require.NoError(t, l.Close())
		}
	}
}

func TestRetentionThatMakesNoSenseIsRefused(t *testing.T) {
	require.NoError(t, Retention{}.Validate())
	require.NoError(t, Retention{MaxAge: 1, MaxBytes: 1, ByRecordTime: true}.Validate())
	err := Retention{MaxAge: -1, MaxBytes: -1}.Validate()
	require.ErrorContains(t, err, "age is -1ns")
	require.ErrorContains(t, err, "size is -1")
	require.ErrorContains(t, Retention{ByRecordTime: true}.Validate(), "of any age")
}
