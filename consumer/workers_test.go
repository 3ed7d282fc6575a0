package consumer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/record"
)

// keyed appends records "key:n" in one batch, dealt out over the keys.
func (p *partition) keyed(t testing.TB, keys, perKey int) {
	var b record.Builder
	for n := range perKey {
		for k := range keys {
			key := fmt.Sprint("k", k)
			require.NoError(t, b.Append(&record.Record{Key: []byte(key), Value: []byte(fmt.Sprint(key, ":", n)), Time: time.UnixMilli(1)}))
		}
	}
	out, err := b.Build(record.BatchOptions{})
	require.NoError(t, err)
	p.append(out)
}

// orderByKey is what handlers have seen of each key.
type orderByKey struct {
	mu          sync.Mutex
	seen        map[string][]string
	now, atMost int // handlers under way
}

func (o *orderByKey) begin(r record.Record) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now++
	o.atMost = max(o.atMost, o.now)
	if o.seen == nil {
		o.seen = map[string][]string{}
	}
	o.seen[string(r.Key)] = append(o.seen[string(r.Key)], string(r.Value))
}

func (o *orderByKey) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now--
}

func TestWorkersKeepTheOrderOfEachKeyAndShareTheKeys(t *testing.T) {
	random := seed(t)
	synctest.Test(t, func(t *testing.T) {
		const keys, perKey = 40, 10
		w := newWorld(t, 1)
		w.partition(0).keyed(t, keys, perKey)
		var o orderByKey
		m := w.live(Config{Workers: 8}, func(_ *mortal, r record.Record) error {
			o.begin(r)
			defer o.end()
			o.mu.Lock()
			d := time.Duration(random.IntN(100)) * time.Millisecond
			o.mu.Unlock()
			time.Sleep(d)
			return nil
		})
		time.Sleep(time.Minute)
		w.close(m.Group)
		require.Len(t, o.seen, keys)
		for key, got := range o.seen {
			var all []string
			for n := range perKey {
				all = append(all, fmt.Sprint(key, ":", n))
			}
			require.Equal(t, all, got)
		}
		require.Equal(t, 8, o.atMost)
		require.Equal(t, record.Offset(keys*perKey), w.committed(orders(0)))
	})
}

func TestACommitDoesNotPassARecordThatIsNotFinishedWhateverTheOrder(t *testing.T) {
	random := seed(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.partition(0).keyed(t, 100, 3)
		var mu sync.Mutex
		finished := map[record.Offset]bool{}
		m := w.live(Config{Workers: 16}, func(_ *mortal, r record.Record) error {
			mu.Lock()
			d := time.Duration(random.IntN(1000)) * time.Millisecond
			mu.Unlock()
			time.Sleep(d)
			mu.Lock()
			defer mu.Unlock()
			for o := range w.committed(orders(0)) {
				require.True(t, finished[o], "offset %d is committed and not finished", o)
			}
			finished[r.Offset] = true
			return nil
		})
		time.Sleep(5 * time.Minute)
		w.close(m.Group)
		require.Len(t, finished, 300)
		require.Equal(t, record.Offset(300), w.committed(orders(0)))
	})
}

func TestASlowKeyHoldsTheCommitBackAndNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.partition(0).keyed(t, 10, 1)
		handled := map[string]bool{}
		var mu sync.Mutex
		m := w.live(Config{Workers: 4, ProgressTimeout: 2 * time.Hour}, func(_ *mortal, r record.Record) error {
			if string(r.Key) == "k3" {
				time.Sleep(time.Hour)
			}
			mu.Lock()
			defer mu.Unlock()
			handled[string(r.Key)] = true
			return nil
		})
		time.Sleep(time.Minute)
		mu.Lock()
		require.Len(t, handled, 9)
		mu.Unlock()
		require.Equal(t, record.Offset(3), w.committed(orders(0)))
		time.Sleep(time.Hour)
		require.Equal(t, record.Offset(10), w.committed(orders(0)))
		w.close(m.Group)
	})
}

func TestWhatIsInFlightIsBoundedInNumberAndBytes(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  Config
		want int
	}{
		"number":               {Config{Workers: 4, MaxInFlight: 7}, 7},
		"number, one worker":   {Config{MaxInFlight: 7}, 7},
		"bytes":                {Config{Workers: 4, MaxInFlightBytes: 60}, 6}, // of ten each
		"one is always let in": {Config{Workers: 4, MaxInFlightBytes: 1}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1)
				var b record.Builder
				for i := range 30 {
					require.NoError(t, b.Append(&record.Record{Key: fmt.Appendf(nil, "%05d", i), Value: []byte("value")}))
				}
				out, err := b.Build(record.BatchOptions{})
				require.NoError(t, err)
				w.partition(0).append(out)
				begun := 0
				var mu sync.Mutex
				first := make(chan struct{})
				m := w.live(c.cfg, func(_ *mortal, r record.Record) error {
					mu.Lock()
					begun++
					mu.Unlock()
					if r.Offset == 0 {
						<-first
					}
					return nil
				})
				settle()
				m.mu.Lock()
				require.Equal(t, c.want, m.claims[orders(0)].win.records)
				m.mu.Unlock()
				mu.Lock()
				require.LessOrEqual(t, begun, c.want)
				mu.Unlock()
				close(first)
				settle()
				w.close(m.Group)
				require.Equal(t, 30, begun)
				require.Equal(t, record.Offset(30), w.committed(orders(0)))
			})
		})
	}
}

func TestRunThatIsRepeatedWithWorkersPassesNothingOver(t *testing.T) {
	random := seed(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		for p := range 3 {
			w.partition(p).keyed(t, 50, 4)
		}
		g := w.join("a", Config{Workers: 5, MaxInFlight: 20})
		var mu sync.Mutex
		handled := map[string]int{}
		broken := errors.New("broken")
		failures := 0
		for len(handled) < 600 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			err := g.Run(ctx, func(_ context.Context, r record.Record) error {
				mu.Lock()
				defer mu.Unlock()
				if random.IntN(20) == 0 {
					failures++
					return broken
				}
				handled[fmt.Sprint(r.Partition, "/", r.Offset)]++
				return nil
			})
			cancel()
			if !errors.Is(err, broken) {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
		}
		t.Logf("%d failures", failures)
		require.Positive(t, failures)
		for p := range 3 {
			require.Equal(t, record.Offset(200), w.committed(orders(p)))
		}
		w.close(g)
	})
}

func TestAHandlerThatEndsItsGoroutineEndsTheRunWithAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.fill(t, "orders", 3, 3)
		g := w.join("a", Config{})
		err := g.Run(t.Context(), func(_ context.Context, r record.Record) error {
			if r.Offset == 1 {
				runtime.Goexit()
			}
			return nil
		})
		require.ErrorContains(t, err, "Goexit")
		require.Equal(t, record.Offset(1), w.committed(orders(0)))
		w.close(g)
	})
}

func TestPausedPartitionsRestAndTheOthersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.partition(0).fill(t, 20, 20)
		var mu sync.Mutex
		var got []string
		all := func() string {
			mu.Lock()
			defer mu.Unlock()
			return strings.Join(got, " ")
		}
		m := w.live(Config{}, func(_ *mortal, r record.Record) error {
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			if r.Partition == 0 {
				got = append(got, string(r.Value))
			}
			return nil
		})
		time.Sleep(100 * time.Millisecond)
		m.Pause(orders(0)) // during its first record
		w.partition(1).fill(t, 20, 20)
		require.Equal(t, []record.TopicPartition{orders(0)}, m.Paused())
		time.Sleep(30 * time.Second)
		require.Equal(t, "0:0", all())
		require.Equal(t, record.Offset(1), w.committed(orders(0)))
		require.Equal(t, record.Offset(20), w.committed(orders(1)))
		m.Resume(orders(0))
		require.Empty(t, m.Paused())
		time.Sleep(30 * time.Second)
		require.Equal(t, strings.Join(want(0, 0, 20), " "), all())

		m.Pause(orders(1), orders(0))
		w.fill(t, "orders", 1, 1)
		settle()
		require.Equal(t, record.Offset(20), w.committed(orders(1)))
		w.close(m.Group)
	})
}

func TestPollSkipsPausedPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.fill(t, "orders", 1, 1)
		g := w.join("a", Config{})
		g.Pause(orders(0))
		require.Equal(t, want(1, 0, 1), values(w.poll(g)))
		w.idle(g, time.Second)
		g.Resume(orders(0))
		require.Equal(t, want(0, 0, 1), values(w.poll(g)))
		w.close(g)
	})
}

func TestSeekMovesBothTheNextRecordAndTheCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.fill(t, "orders", 50, 5)
		g := w.join("a", Config{MaxPollBytes: 1})
		for range 4 {
			require.NoError(t, g.Commit(t.Context(), w.poll(g)))
		}
		require.NoError(t, g.Seek(t.Context(), orders(0), 7))
		require.Equal(t, record.Offset(7), w.committed(orders(0)), "back, as asked")
		require.Equal(t, want(0, 7, 10), values(w.poll(g)))
		require.NoError(t, g.Seek(t.Context(), orders(0), 41))
		require.Equal(t, want(0, 41, 45), values(w.poll(g)))
		require.ErrorIs(t, g.Seek(t.Context(), orders(3), 1), record.ErrFenced)
		require.ErrorIs(t, g.Seek(t.Context(), orders(0), -1), record.ErrInvalid)
		w.close(g)
	})
}

func TestACommitThatWaitsForASeekDoesNotUndoIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.fill(t, "orders", 100, 100)
		w.setFault(func(ctx context.Context, req group.Request) error {
			if req.Rewind {
				return pause(ctx, time.Second)
			}
			return nil
		})
		m := w.live(Config{}, func(*mortal, record.Record) error { time.Sleep(100 * time.Millisecond); return nil })
		time.Sleep(550 * time.Millisecond)
		require.Equal(t, record.Offset(5), w.committed(orders(0)))
		require.NoError(t, m.Seek(t.Context(), orders(0), 2))
		time.Sleep(50 * time.Millisecond)
		require.Equal(t, record.Offset(2), w.committed(orders(0)), "more was finished while the seek was under way")
		time.Sleep(time.Second)
		require.InDelta(t, 11, int(w.committed(orders(0))), 2)
		w.close(m.Group)
	})
}

func TestSeekWhileRunsAreUnderWay(t *testing.T) {
	for _, workers := range []int{1, 4} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1)
				w.partition(0).keyed(t, 10, 10)
				var mu sync.Mutex
				times := map[record.Offset]int{}
				m := w.live(Config{Workers: workers}, func(_ *mortal, r record.Record) error {
					time.Sleep(time.Second)
					mu.Lock()
					defer mu.Unlock()
					times[r.Offset]++
					return nil
				})
				time.Sleep(5500 * time.Millisecond)
				require.NoError(t, m.Seek(t.Context(), orders(0), 90)) // forwards
				time.Sleep(20 * time.Second)
				require.Equal(t, record.Offset(100), w.committed(orders(0)))
				mu.Lock()
				require.Less(t, len(times), 50)
				for o := record.Offset(90); o < 100; o++ {
					require.Equal(t, 1, times[o])
				}
				clear(times)
				mu.Unlock()
				require.NoError(t, m.Seek(t.Context(), orders(0), 0)) // and back
				time.Sleep(500 * time.Millisecond)
				require.Zero(t, w.committed(orders(0)))
				time.Sleep(2 * time.Minute)
				w.close(m.Group)
				require.Len(t, times, 100)
				require.Equal(t, record.Offset(100), w.committed(orders(0)))
			})
		})
	}
}
