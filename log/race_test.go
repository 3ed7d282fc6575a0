package log

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

// history is all that was ever written to a log. Each truncation begins a new
// term, so offset and term name a batch, and of two batches it can be told
// whether they ever were in the log together.
type history struct {
	mu      sync.Mutex
	cutAt   []record.EntryNumber // by term: where it began
	batches map[batchKey]segment.Entry
}

type batchKey struct {
	offset record.Offset
	term   uint64
}

func (h *history) term() uint64 { return uint64(len(h.cutAt) - 1) }

func (h *history) cut(n record.EntryNumber) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cutAt = append(h.cutAt, n)
}

// write moves entries into the present term.
func (h *history) write(entries []segment.Entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range entries {
		e := &entries[i]
		e.Term = h.term()
		if e.Kind == segment.KindBatch {
			record.Batch(e.Data).Stamp(e.Offset, record.LeaderEpoch(e.Term))
			h.batches[batchKey{e.Offset, e.Term}] = *e
		}
	}
}

// check says what is wrong with batches that were read together.
func (h *history) check(batches []record.Batch) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, b := range batches {
		e, ok := h.batches[batchKey{b.BaseOffset(), uint64(b.LeaderEpoch())}]
		if !ok || !bytes.Equal(e.Data, b) {
			return fmt.Errorf("batch at %d of term %d was never written", b.BaseOffset(), b.LeaderEpoch())
		}
		for _, later := range batches[i+1:] {
			for term := e.Term + 1; term <= uint64(later.LeaderEpoch()); term++ {
				if h.cutAt[term] <= e.Number {
					return fmt.Errorf("entry %d of term %d was cut off before offset %d of term %d was there",
						e.Number, e.Term, later.BaseOffset(), later.LeaderEpoch())
				}
			}
		}
	}
	return nil
}

var raceFor = flag.Duration("race-for", 0, "how long readers race writers")

// TestReadersSeeOnlyWhatTheLogHeld lets readers run beside appends, rolls,
// truncations, trims, resets and Close.
func TestReadersSeeOnlyWhatTheLogHeld(t *testing.T) {
	rng := testRand(t)
	for began := time.Now(); ; {
		raceOneLog(t, rng)
		if time.Since(began) >= *raceFor {
			return
		}
	}
}

func raceOneLog(t *testing.T, rng *rand.Rand) {
	cfg := testConfig(vfs.NewMem())
	cfg.Flush = FlushNever
	l := open(t, cfg)
	h := &history{cutAt: []record.EntryNumber{0, 1}, batches: map[batchKey]segment.Entry{}}
	var (
		wg    sync.WaitGroup
		reads atomic.Int64
		found = make(chan error, 4)
	)
	for i := range cap(found) {
		rng := rand.New(rand.NewPCG(uint64(i), 0))
		wg.Go(func() {
			for {
				err := readSome(l, rng, h)
				switch {
				case errors.Is(err, record.ErrClosed):
					return
				case err != nil:
					found <- err
					return
				}
				reads.Add(1)
			}
		})
	}

	o := newOracle()
	for range 400 {
		switch rng.IntN(10) {
		case 0, 1:
			n := o.next() - min(o.next()-o.first, record.EntryNumber(rng.IntN(8)))
			h.cut(n)
			require.NoError(t, l.TruncateTo(n))
			o = o.cut(n)
		case 2:
			_, err := l.TrimTo(o.offset(o.next()) - record.Offset(rng.IntN(100)))
			require.NoError(t, err)
			o = o.trimmed(l.Bounds().First)
		case 3:
			if rng.IntN(5) > 0 {
				continue
			}
			next, prev, offset := o.next()+2, o.term(o.next()), o.offset(o.next())+record.Offset(rng.IntN(9))
			h.cut(0) // nothing of before is there with anything of after
			require.NoError(t, l.Reset(next, prev, offset))
			o = oracle{base: next, first: next, prev: prev, start: offset}
		default:
			entries := o.make(t, rng, 1+rng.IntN(5))
			h.write(entries)
			require.NoError(t, l.Append(entries))
			o = o.with(entries...)
		}
	}
	requireSame(t, l, o, "at the end")
	require.NoError(t, l.Close())
	wg.Wait()
	close(found)
	for err := range found {
		require.NoError(t, err)
	}
	require.NotZero(t, reads.Load())
}

// readSome reads once, from anywhere, by offset or by number.
func readSome(l *Log, rng *rand.Rand, h *history) error {
	b := l.Bounds()
	if rng.IntN(2) == 0 {
		n := b.First + record.EntryNumber(rng.Uint64N(uint64(b.Next-b.First)+1))
		e, err := l.ReadEntry(n)
		switch {
		case errors.Is(err, ErrNoEntry):
			return nil // cut or trimmed since Bounds
		case err != nil:
			return err
		case e.Number != n:
			return fmt.Errorf("entry %d instead of %d", e.Number, n)
		case e.Kind == segment.KindBatch:
			return h.check([]record.Batch{e.Data})
		}
		return nil
	}
	from := max(b.Start, b.End-record.Offset(rng.IntN(30))) // most is going on near the end
	batches, err := l.Read(from, b.End, rng.IntN(8000))
	switch {
	case errors.Is(err, record.ErrOffsetOutOfRange):
		return nil
	case err != nil:
		return err
	}
	for _, batch := range batches {
		if batch.BaseOffset() > from || batch.NextOffset() <= from || batch.NextOffset() > b.End {
			return fmt.Errorf("batch [%d, %d) where offset %d follows, below %d", batch.BaseOffset(), batch.NextOffset(), from, b.End)
		}
		from = batch.NextOffset()
	}
	return h.check(batches)
}

func TestAClosedLogSaysSo(t *testing.T) {
	l := open(t, testConfig(vfs.NewMem()))
	o := newOracle()
	entries := o.make(t, testRand(t), 5)
	require.NoError(t, l.Append(entries))
	require.NoError(t, l.Close())
	require.NoError(t, l.Close())
	_, err := l.Read(0, 1, 1)
	require.ErrorIs(t, err, record.ErrClosed)
	_, err = l.ReadEntry(1)
	require.ErrorIs(t, err, record.ErrClosed)
	require.ErrorIs(t, l.Append(o.with(entries...).make(t, testRand(t), 1)), record.ErrClosed)
	require.ErrorIs(t, l.Sync(), record.ErrClosed)
	require.ErrorIs(t, l.TruncateTo(1), record.ErrClosed)
	require.ErrorIs(t, l.Reset(9, 9, 9), record.ErrClosed)
	_, err = l.TrimTo(1)
	require.ErrorIs(t, err, record.ErrClosed)
	require.Equal(t, o.with(entries...).bounds(), l.Bounds())
}
