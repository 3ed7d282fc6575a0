package log

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

const testDir = "data/orders-0"

var testTopic = record.TopicID{1, 2, 3}

// testConfig has the smallest segments, so that a few entries roll.
func testConfig(fsys vfs.FS) Config {
	return Config{FS: fsys, TopicID: testTopic, Partition: 7, SegmentBytes: minSegmentBytes, IndexBytes: 300}
}

func open(t testing.TB, cfg Config) *Log {
	t.Helper()
	l, err := Open(context.Background(), testDir, cfg)
	require.NoError(t, err)
	return l
}

// testRand is seeded by QUORUMLOG_SEED, or anew, and says by what.
func testRand(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	if s := os.Getenv("QUORUMLOG_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("QUORUMLOG_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// batch returns a stamped batch of records with values of size bytes.
func batch(t testing.TB, rng *rand.Rand, offset record.Offset, term uint64, records, size int) record.Batch {
	var b record.Builder
	for range records {
		value := make([]byte, size)
		for i := range value {
			value[i] = byte(rng.Uint32())
		}
		require.NoError(t, b.Append(&record.Record{Time: time.UnixMilli(1), Value: value}))
	}
	built, err := b.Build(record.BatchOptions{})
	require.NoError(t, err)
	built.Stamp(offset, record.LeaderEpoch(term))
	return built
}

// oracle is a log as a slice. It is a value; methods return the changed one.
type oracle struct {
	base    record.EntryNumber // number of entries[0]
	prev    uint64             // term before it
	start   record.Offset      // and offset there
	entries []segment.Entry
	first   record.EntryNumber // below it, trimmed
}

func newOracle() oracle { return oracle{base: 1, first: 1} }

func (o oracle) next() record.EntryNumber { return o.base + record.EntryNumber(len(o.entries)) }

func (o oracle) entry(n record.EntryNumber) segment.Entry { return o.entries[n-o.base] }

// offset returns the offset at which entry n, or the one that follows, begins.
func (o oracle) offset(n record.EntryNumber) record.Offset {
	if n == o.base {
		return o.start
	}
	e := o.entry(n - 1)
	return e.Next()
}

// term returns the term of the entry before n.
func (o oracle) term(n record.EntryNumber) uint64 {
	if n == o.base {
		return o.prev
	}
	return o.entry(n - 1).Term
}

func (o oracle) bounds() Bounds {
	return Bounds{
		First: o.first, Next: o.next(), PrevTerm: o.term(o.first), LastTerm: o.term(o.next()),
		Start: o.offset(o.first), End: o.offset(o.next()),
	}
}

func (o oracle) with(entries ...segment.Entry) oracle {
	o.entries = append(o.entries[:len(o.entries):len(o.entries)], entries...)
	return o
}

func (o oracle) cut(n record.EntryNumber) oracle {
	o.entries = o.entries[:n-o.base]
	return o
}

func (o oracle) trimmed(first record.EntryNumber) oracle {
	o.first = first
	return o
}

// make returns n entries that continue o, of all kinds and many sizes.
func (o oracle) make(t testing.TB, rng *rand.Rand, n int) []segment.Entry {
	var entries []segment.Entry
	for range n {
		at := o.next()
		e := segment.Entry{Number: at, Term: max(o.term(at), 1) + uint64(rng.IntN(8)/7), Offset: o.offset(at)}
		switch rng.IntN(8) {
		case 0:
			e.Kind, e.Data = segment.KindNoop, []byte{}
		case 1:
			e.Kind, e.Data = segment.KindConfiguration, []byte("members")
		case 2:
			e.Kind, e.Data = segment.KindBarrier, []byte{}
		default:
			e.Kind = segment.KindBatch
			e.Data = batch(t, rng, e.Offset, e.Term, 1+rng.IntN(3), []int{0, 10, 100, 400, 1500}[rng.IntN(5)])
		}
		entries = append(entries, e)
		o = o.with(e)
	}
	return entries
}

// requireSame compares all that l answers with o.
func requireSame(t testing.TB, l *Log, o oracle, msg string) {
	t.Helper()
	require.Equal(t, o.bounds(), l.Bounds(), msg)
	var want []record.Batch
	for n := o.first; n < o.next(); n++ {
		e, err := l.ReadEntry(n)
		require.NoError(t, err, "%s: entry %d", msg, n)
		require.Equal(t, o.entry(n), e, "%s: entry %d", msg, n)
		if e.Kind == segment.KindBatch {
			want = append(want, e.Data)
		}
	}
	b := l.Bounds()
	require.Equal(t, want, readAll(t, l, b.Start, b.End, 1000), msg)
	_, err := l.ReadEntry(b.Next)
	require.ErrorIs(t, err, ErrNoEntry, msg)
	_, err = l.ReadEntry(b.First - 1)
	require.ErrorIs(t, err, ErrNoEntry, msg)
	_, err = l.Read(b.End+1, b.End+1, 1)
	require.ErrorIs(t, err, record.ErrOffsetOutOfRange, msg)
}

func readAll(t testing.TB, l *Log, from, bound record.Offset, maxBytes int) []record.Batch {
	var all []record.Batch
	for from < bound {
		batches, err := l.Read(from, bound, maxBytes)
		require.NoError(t, err)
		require.NotEmpty(t, batches, "nothing at offset %d of %d", from, bound)
		all = append(all, batches...)
		from = batches[len(batches)-1].NextOffset()
	}
	return all
}

// allowed is a set of logs: those that a crash may leave.
type allowed struct {
	of               oracle
	firstLo, firstHi record.EntryNumber
	nextLo, nextHi   record.EntryNumber
}

func exactly(o oracle) allowed {
	return allowed{of: o, firstLo: o.first, firstHi: o.first, nextLo: o.next(), nextHi: o.next()}
}

// pick returns the oracle among the allowed ones that has the bounds of l.
func pick(t testing.TB, l *Log, sets []allowed, msg string) oracle {
	t.Helper()
	b := l.Bounds()
	for _, a := range sets {
		if a.firstLo <= b.First && b.First <= a.firstHi && a.nextLo <= b.Next && b.Next <= a.nextHi {
			if o := a.of.cut(b.Next).trimmed(b.First); o.bounds() == b { // a log that was reset may begin at the same entry, and elsewhere
				return o
			}
		}
	}
	for _, a := range sets {
		msg += fmt.Sprintf("; first %d..%d and next %d..%d", a.firstLo, a.firstHi, a.nextLo, a.nextHi)
	}
	require.Fail(t, "log is none of those allowed", "%+v: %s", b, msg)
	return oracle{}
}

// run is a life of one log on one disk, and what may be there after it.
type run struct {
	t     testing.TB
	rng   *rand.Rand
	cfg   Config
	l     *Log
	o     oracle
	scale int                // of the number of entries that the story appends
	sync  record.EntryNumber // entries below are durable
	after []allowed          // what may be found from now on
	hit   func(op string, err error) error
	// lasting: what fails goes on failing, so an append may not be taken back.
	lasting bool
}

func newRun(t testing.TB, seed uint64, cfg Config) *run {
	r := &run{t: t, rng: rand.New(rand.NewPCG(seed, 7)), cfg: cfg, o: newOracle(), scale: 1, sync: 1}
	r.after = []allowed{exactly(r.o)}
	r.hit = func(_ string, err error) error { return err }
	return r
}

// settle says that o is there now, of it all below sync for certain.
func (r *run) settle(o oracle) {
	r.o = o
	if r.cfg.Flush == FlushEach {
		r.sync = o.next()
	}
	r.sync = min(r.sync, o.next())
	a := exactly(o)
	a.nextLo = r.sync
	r.after = []allowed{a}
}

func (r *run) open() (err error) {
	for range 3 {
		r.l, err = Open(context.Background(), testDir, r.cfg)
		if err == nil {
			r.o = pick(r.t, r.l, r.after, "reopen")
			r.sync = r.o.next()
			r.settle(r.o)
			return nil
		}
		if err = r.hit("open", err); err != nil {
			return err
		}
	}
	return errors.New("does not open at the third try")
}

func (r *run) append(n int) error {
	entries := r.o.make(r.t, r.rng, n*r.scale)
	o := r.o.with(entries...)
	before := r.o
	a := exactly(o)
	a.nextLo = min(r.sync, before.next())
	r.after = []allowed{a}
	if err := r.l.Append(entries); err != nil {
		b := exactly(before)
		b.nextLo = r.sync
		if errors.Is(err, vfs.ErrCrashed) {
			return err
		}
		if !r.lasting || !errors.Is(err, ErrSync) {
			r.after = []allowed{b} // not in the log, and never will be
		}
		requireBounds(r.t, r.l, before)
		return r.hit("append", err)
	}
	r.settle(o)
	return nil
}

func requireBounds(t testing.TB, l *Log, o oracle) {
	t.Helper()
	require.Equal(t, o.bounds(), l.Bounds())
}

func (r *run) truncate(back int) error {
	n := r.o.next() - min(record.EntryNumber(back), r.o.next()-r.o.first)
	a := exactly(r.o)
	a.nextLo = min(n, r.sync)
	r.after = []allowed{a}
	if err := r.l.TruncateTo(n); err != nil {
		return r.hit("truncate", err)
	}
	r.sync = min(r.sync, n)
	if n < r.o.next() {
		r.sync = n
	}
	r.settle(r.o.cut(n))
	return nil
}

func (r *run) trim(offset record.Offset) error {
	o := r.o
	first := o.first
	for n := o.first; n <= o.next(); n++ {
		if o.offset(n) <= offset {
			first = n
		}
	}
	a := exactly(o)
	a.firstHi, a.nextLo = first, r.sync
	r.after = []allowed{a}
	start, err := r.l.TrimTo(offset)
	b := r.l.Bounds()
	require.Equal(r.t, b.Start, start)
	if err != nil {
		return r.hit("trim", err)
	}
	require.LessOrEqual(r.t, b.First, max(first, o.first))
	if start > o.offset(o.first) {
		require.LessOrEqual(r.t, start, offset)
	}
	r.settle(o.trimmed(b.First))
	return nil
}

func (r *run) reset(next record.EntryNumber, term uint64, offset record.Offset) error {
	o := oracle{base: next, first: next, prev: term, start: offset}
	old := exactly(r.o)
	old.nextLo = r.sync
	r.after = []allowed{exactly(o), old}
	if err := r.l.Reset(next, term, offset); err != nil {
		return r.hit("reset", err)
	}
	r.sync = next
	r.settle(o)
	return nil
}

func (r *run) close() error {
	err := r.l.Close()
	if err != nil {
		return r.hit("close", err)
	}
	return nil
}

// story is a life with everything in it. Steps fail with what the disk did.
func (r *run) story() error {
	steps := []func() error{
		r.open,
		func() error { return r.append(1) },
		func() error { return r.append(7) },
		func() error { return r.truncate(2) },
		func() error { return r.append(3) },
		func() error { return r.append(9) },
		func() error { return r.truncate(6) }, // over segments
		func() error { return r.append(2) },
		func() error { return r.append(6) },
		r.close,
		r.open,
		func() error { return r.truncate(1) }, // below what the index speaks of
		func() error { return r.append(5) },
		func() error { return r.trim(r.o.offset(r.o.next()) / 2) },
		func() error { return r.append(4) },
		func() error { return r.trim(r.o.offset(r.o.next())) },
		func() error { return r.truncate(100) }, // all of it
		func() error { return r.append(4) },
		func() error { return r.reset(r.o.next()+5, 40, r.o.offset(r.o.next())+11) },
		r.close,
		r.open,
		func() error { return r.append(6) },
		func() error { return r.reset(r.o.base, 40, r.o.start) }, // to a name that is there
		func() error { return r.append(3) },
		r.close,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// withRightSum sets the checksum of a batch whose bytes a test has changed.
func withRightSum(b record.Batch) record.Batch {
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}
