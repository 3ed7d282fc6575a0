package consumer

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

// mortal is a member that dies: from then on it says nothing to anybody.
type mortal struct {
	*Group
	die   func()
	ended chan error // of its Run
}

// live joins over a link that can be cut and runs with the handler.
func (w *world) live(cfg Config, handle func(m *mortal, r record.Record) error) *mortal {
	w.Helper()
	return w.liveAt(w.coordinator, cfg, handle)
}

// liveAt is live with another coordinator.
func (w *world) liveAt(coord Coordinator, cfg Config, handle func(m *mortal, r record.Record) error) *mortal {
	w.Helper()
	link := &link{Coordinator: coord}
	g, err := Join(w.Context(), w.memory, link, "billing", []string{"orders"}, cfg)
	require.NoError(w, err)
	ctx, stop := context.WithCancel(w.Context())
	m := &mortal{Group: g, ended: make(chan error, 1)}
	m.die = func() { link.cut(); stop() }
	go func() {
		m.ended <- g.Run(ctx, func(_ context.Context, r record.Record) error { return handle(m, r) })
	}()
	w.Cleanup(func() { w.bury(m) })
	return m
}

// bury ends the goroutines of a member that is dead to the others.
func (w *world) bury(m *mortal) {
	m.die()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = m.Close(ctx)
}

// The classical ten records: five are handled, then the member dies. What does
// the next one see?
func TestTenRecordsFiveHandledThenDeathForEachMoment(t *testing.T) {
	byHand := func(m *mortal, r record.Record) error {
		if r.Offset != 2 {
			return nil
		}
		return m.CommitOffsets(context.Background(), map[record.TopicPartition]record.Offset{orders(0): 3})
	}
	for name, c := range map[string]struct {
		cfg  Config
		took time.Duration                          // of each record
		end  func(m *mortal, r record.Record) error // of the handler
		seen []string                               // by the next member
	}{
		"after the handler":       {took: time.Second, seen: want(0, 5, 10)},
		"on receipt":              {cfg: Config{Commit: OnReceipt}, took: time.Second, seen: nil},
		"on a timer":              {cfg: Config{Commit: OnTimer, CommitInterval: 3500 * time.Millisecond}, took: time.Second, seen: want(0, 3, 10)},
		"on a timer too far away": {cfg: Config{Commit: OnTimer, CommitInterval: time.Hour}, took: time.Second, seen: want(0, 0, 10)},
		"each record":             {cfg: Config{Commit: EachRecord}, seen: want(0, 5, 10)},
		"by hand":                 {cfg: Config{Commit: ByHand}, end: byHand, seen: want(0, 3, 10)},
		"by hand, what is finished": {cfg: Config{Commit: ByHand}, seen: want(0, 2, 10), end: func(m *mortal, r record.Record) error {
			if r.Offset == 2 { // itself not finished
				return m.CommitFinished(context.Background())
			}
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1)
				w.fill(t, "orders", 10, 10)
				var before, after []string
				m := w.live(c.cfg, func(m *mortal, r record.Record) error {
					if len(before) == 5 {
						time.Sleep(c.took / 2)
						m.die()
						return errors.New("dead")
					}
					time.Sleep(c.took)
					before = append(before, string(r.Value))
					if c.end != nil {
						return c.end(m, r)
					}
					return nil
				})
				require.Error(t, <-m.ended)
				require.Equal(t, want(0, 0, 5), before)
				time.Sleep(11 * time.Second) // its session
				next := w.live(Config{}, func(_ *mortal, r record.Record) error {
					after = append(after, string(r.Value))
					return nil
				})
				settle()
				require.Equal(t, c.seen, after)
				w.bury(next)
			})
		})
	}
}

func TestTenRecordsWithPollAndCommitAsync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.fill(t, "orders", 10, 5)
		l := &link{Coordinator: w.coordinator}
		g, err := Join(t.Context(), w.memory, l, "billing", []string{"orders"}, Config{MaxPollBytes: 1})
		require.NoError(t, err)
		stored := make(chan error, 1)
		g.CommitAsync(t.Context(), w.poll(g), func(err error) { stored <- err })
		require.NoError(t, <-stored)
		w.poll(g)
		l.cut()
		w.bury(&mortal{Group: g, die: func() {}})
		time.Sleep(11 * time.Second)
		next := w.join("b", Config{})
		require.Equal(t, want(0, 5, 10), values(w.poll(next)))
		w.close(next)
	})
}

// till is a database of the user's: results and offsets in one transaction.
type till struct {
	mu      sync.Mutex
	next    map[record.TopicPartition]record.Offset
	results []string
}

var errOldOwner = errors.New("somebody else has gone on")

func (db *till) book(r record.Record) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.next[r.TopicPartition()] > r.Offset {
		return errOldOwner
	}
	db.next[r.TopicPartition()] = r.Offset + 1
	db.results = append(db.results, string(r.Value))
	return nil
}

func (db *till) resumeAt(_ context.Context, tps []record.TopicPartition) (map[record.TopicPartition]record.Offset, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	at := map[record.TopicPartition]record.Offset{}
	for _, tp := range tps {
		if o, ok := db.next[tp]; ok {
			at[tp] = o
		}
	}
	return at, nil
}

func TestTenRecordsExactlyOnceWithTheOffsetsInTheUsersDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.fill(t, "orders", 10, 10)
		db := &till{next: map[record.TopicPartition]record.Offset{}}
		cfg := Config{Commit: ByHand, ResumeAt: db.resumeAt}
		hang := make(chan struct{})
		m := w.live(cfg, func(m *mortal, r record.Record) error {
			if r.Offset == 5 {
				m.die() // to the coordinator; the handler does not know
				<-hang
			}
			return db.book(r)
		})
		time.Sleep(11 * time.Second)
		next := w.live(cfg, func(_ *mortal, r record.Record) error { return db.book(r) })
		settle()
		close(hang) // the old member goes on with record 5, and its database says no
		require.Error(t, <-m.ended)
		require.Equal(t, want(0, 0, 10), db.results)
		require.Equal(t, record.NoOffset, w.committed(orders(0)))
		w.bury(next)
	})
}

func TestResumeAtThatFailsOrMakesNoSenseIsToldByPoll(t *testing.T) {
	broken := errors.New("database is down")
	for name, c := range map[string]struct {
		at   map[record.TopicPartition]record.Offset
		err  error
		want error
	}{
		"fails":    {err: broken, want: broken},
		"negative": {at: map[record.TopicPartition]record.Offset{orders(0): -3}, want: record.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1)
				g := w.join("a", Config{ResumeAt: func(context.Context, []record.TopicPartition) (map[record.TopicPartition]record.Offset, error) {
					return c.at, c.err
				}})
				_, err := g.Poll(t.Context())
				require.ErrorIs(t, err, c.want)
				w.close(g)
			})
		})
	}
}

func TestWhatWasCommittedOnReceiptAndNotHandledIsTakenBackByAnOrderlyEnd(t *testing.T) {
	for name, end := range map[string]func(w *world, a *mortal){
		"close": func(w *world, a *mortal) { w.close(a.Group) },
		"partition moves": func(w *world, a *mortal) {
			b := w.join("b", Config{})
			time.Sleep(2 * time.Second)
			w.close(a.Group)
			w.close(b)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 2)
				w.partition(1).fill(t, 10, 10)
				handled := 0
				a := w.live(Config{ClientID: "a", Commit: OnReceipt}, func(_ *mortal, r record.Record) error {
					time.Sleep(time.Second)
					handled++
					return nil
				})
				time.Sleep(4500 * time.Millisecond)
				require.Equal(t, record.Offset(10), w.committed(orders(1)))
				end(w, a)
				<-a.ended
				require.Equal(t, 5, handled)
				require.Equal(t, record.Offset(5), w.committed(orders(1)))
			})
		})
	}
}

// A fast handler must not make a commit of every record.
func TestCommitsOfAFastHandlerAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.fill(t, "orders", 1000, 10)
		commits := 0
		counting := counting{Coordinator: w.coordinator, commits: &commits}
		g, err := Join(t.Context(), w.memory, counting, "billing", []string{"orders"}, Config{})
		require.NoError(t, err)
		stop := errors.New("stop")
		err = g.Run(t.Context(), func(_ context.Context, r record.Record) error {
			if r.Offset == 999 {
				return stop
			}
			time.Sleep(time.Millisecond)
			return nil
		})
		require.ErrorIs(t, err, stop)
		require.InDelta(t, 100, commits, 10, "1 s of work, a commit each 10 ms")
		require.Equal(t, record.Offset(999), w.committed(orders(0)))
		w.close(g)
	})
}
