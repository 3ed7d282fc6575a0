package consumer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

// runUntil handles records until one has the value last, with what end returns.
func runUntil(ctx context.Context, g *Group, last string, end func() error) (got []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // heartbeats would go on for ever
	defer cancel()
	err = g.Run(ctx, func(_ context.Context, r record.Record) error {
		if string(r.Value) == last {
			if err := end(); err != nil {
				return err
			}
		}
		got = append(got, string(r.Value))
		return nil
	})
	return got, err
}

func TestRunCommitsWhatTheHandlerFinishedBeforeItFailed(t *testing.T) {
	broken := errors.New("no such account")
	for name, end := range map[string]func() error{
		"error":             func() error { return broken },
		"panic":             func() error { panic("no such account") },
		"panic of an error": func() error { panic(broken) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1)
				w.fill(t, "orders", 30, 10)
				g := w.join("a", Config{MaxPollBytes: 1})
				got, err := runUntil(t.Context(), g, "0:15", end)
				require.Equal(t, want(0, 0, 15), got)
				require.Equal(t, record.Offset(15), w.committed(orders(0)))
				var p *PanicError
				switch name {
				case "error":
					require.Equal(t, broken, err)
				case "panic of an error":
					require.ErrorIs(t, err, broken)
					fallthrough
				case "panic":
					require.ErrorAs(t, err, &p)
					require.Equal(t, record.Offset(15), p.Offset)
					require.Equal(t, orders(0), p.TopicPartition)
					require.Contains(t, string(p.Stack), "run_test.go")
				}

				// The failed record comes first the next time, and nothing was passed over.
				got, err = runUntil(t.Context(), g, "0:15", end)
				require.Error(t, err)
				require.Empty(t, got)
				require.Equal(t, record.Offset(15), w.committed(orders(0)))
				stop := errors.New("stop")
				got, err = runUntil(t.Context(), g, "0:29", func() error { return stop })
				require.ErrorIs(t, err, stop)
				require.Equal(t, want(0, 15, 29), got)
				w.close(g)
			})
		})
	}
}

func TestRunStopsBetweenRecordsWhenCtxEndsAndCommitsThePrefix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.fill(t, "orders", 10, 10)
		g := w.join("a", Config{})
		ctx, cancel := context.WithCancel(t.Context())
		got, err := runUntil(ctx, g, "0:4", func() error { cancel(); return nil })
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, want(0, 0, 5), got)
		require.Equal(t, record.Offset(5), w.committed(orders(0)))
		w.close(g)
	})
}

func TestCloseLetsRunFinishItsRecordAndCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.fill(t, "orders", 10, 10)
		a := w.join("a", Config{})
		b := w.join("b", Config{})
		ended := make(chan error, 1)
		go func() {
			ended <- a.Run(t.Context(), func(context.Context, record.Record) error {
				time.Sleep(time.Second)
				return nil
			})
		}()
		time.Sleep(2500 * time.Millisecond)
		w.close(a) // during the third record
		require.ErrorIs(t, <-ended, record.ErrClosed)
		require.Equal(t, record.Offset(3), w.committed(orders(0)))
		settle()
		require.Equal(t, want(0, 3, 10), values(w.poll(b)))
		w.close(b)
	})
}

func TestRunGivesAPartitionUpWithoutFinishingTheBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.partition(1).fill(t, 100, 100)
		a := w.join("a", Config{})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		handled := 0
		go func() {
			ended <- a.Run(ctx, func(context.Context, record.Record) error {
				time.Sleep(time.Second)
				handled++
				return nil
			})
		}()
		time.Sleep(2500 * time.Millisecond)
		b := w.join("b", Config{})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, []record.TopicPartition{orders(1)}, b.Owned())
		require.Equal(t, want(1, handled, 100), values(w.poll(b)))
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		w.close(a)
		w.close(b)
	})
}

func TestASlowHandlerKeepsItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.fill(t, "orders", 1, 1)
		g := w.join("a", Config{ProgressTimeout: 2 * time.Hour})
		id := g.Member()
		stop := errors.New("stop")
		err := g.Run(t.Context(), func(context.Context, record.Record) error {
			time.Sleep(time.Hour)
			return stop
		})
		require.ErrorIs(t, err, stop)
		require.Equal(t, id, g.Member())
		w.close(g)
	})
}

func TestRunGoesOnAfterItsPartitionWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.fill(t, "orders", 3, 3)
		g := w.join("a", Config{})
		var got []string
		stop := errors.New("stop")
		err := g.Run(t.Context(), func(_ context.Context, r record.Record) error {
			got = append(got, string(r.Value))
			switch len(got) {
			case 1: // fenced in the middle of the batch
				w.coordinator.mu.Lock()
				w.coordinator.remove(g.Member())
				w.coordinator.mu.Unlock()
				time.Sleep(time.Second)
			case 4:
				return stop
			}
			return nil
		})
		require.ErrorIs(t, err, stop)
		require.Equal(t, []string{"0:0", "0:0", "0:1", "0:2"}, got)
		require.Equal(t, record.Offset(2), w.committed(orders(0)))
		w.close(g)
	})
}

func TestOnlyOneRunAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		g := w.join("a", Config{})
		ended := make(chan error, 1)
		go func() { ended <- g.Run(t.Context(), nil) }()
		synctest.Wait()
		require.ErrorIs(t, g.Run(t.Context(), nil), record.ErrInvalid)
		w.close(g)
		require.ErrorIs(t, <-ended, record.ErrClosed)
	})
}
