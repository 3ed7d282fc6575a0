package consumer

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/record"
)

// Nothing stops without a word: what cannot go on is returned in the end.

func TestAMemberThatCannotJoinAgainSaysSoInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		g := w.join("a", Config{ProgressTimeout: time.Minute})
		w.setFault(func(context.Context, group.Request) error { return record.ErrUnreachable })
		start := time.Now()
		err := g.Run(t.Context(), func(context.Context, record.Record) error { return nil })
		w.setFault(nil)
		require.ErrorIs(t, err, record.ErrUnreachable)
		require.WithinDuration(t, start.Add(70*time.Second), time.Now(), time.Second, "its session, and then a minute of trying")
		w.close(g)
	})
}

func TestACommitThatCannotBeMadeEndsTheRunInTheEnd(t *testing.T) {
	for _, moment := range []CommitMoment{AfterHandler, OnReceipt, OnTimer, EachRecord} {
		t.Run(moment.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1)
				w.fill(t, "orders", 1, 1)
				w.setFault(func(_ context.Context, req group.Request) error {
					if req.Op == group.OpCommit {
						return record.ErrUnreachable
					}
					return nil
				})
				g := w.join("a", Config{Commit: moment, CommitInterval: time.Second, ProgressTimeout: time.Minute})
				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				err := g.Run(ctx, func(context.Context, record.Record) error { return nil })
				require.ErrorIs(t, err, record.ErrUnreachable)
				require.GreaterOrEqual(t, time.Since(start), time.Minute)
				require.LessOrEqual(t, time.Since(start), 3*time.Minute)
				w.setFault(nil)
				w.close(g)
			})
		})
	}
}

func TestAPositionThatNobodyTellsComesOutOfRunInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.fill(t, "orders", 1, 1)
		w.setFault(func(ctx context.Context, req group.Request) error {
			if req.Op != group.OpCommitted {
				return nil
			}
			<-ctx.Done() // as behind a transaction that does not end
			return ctx.Err()
		})
		g := w.join("a", Config{ProgressTimeout: time.Minute})
		start := time.Now()
		err := g.Run(t.Context(), func(context.Context, record.Record) error { return nil })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "committed offsets of group")
		require.WithinDuration(t, start.Add(time.Minute), time.Now(), time.Second)
		w.close(g)
	})
}

func TestKeysInRetryThatCannotBeLookedUpEndTheRunInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newRetryWorld(t, 1, 1)
		w.fill(t, "orders", 1, 1)
		g := w.join("a", Config{Mover: c, Retry: RetryPolicy{Delays: []time.Duration{time.Minute}, KeyOrder: true}})
		w.setFault(func(_ context.Context, req group.Request) error {
			if req.Op == group.OpCommitted {
				return record.ErrUnreachable
			}
			return nil
		})
		start := time.Now()
		err := g.Run(t.Context(), func(context.Context, record.Record) error { return nil })
		require.ErrorIs(t, err, record.ErrUnreachable)
		require.ErrorContains(t, err, "keys that are tried again")
		require.WithinDuration(t, start.Add(moveTimeout), time.Now(), time.Second)
		w.close(g)
	})
}

// The two reasons for which a member loses its partitions are told apart.
func TestTheLogSaysWhetherASessionEndedOrAHandlerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var members, coordinator bytes.Buffer
		m := newMemory("orders", 1)
		m.fill(t, "orders", 1, 1)
		coord := newBuiltLogging(t, m, slog.New(slog.NewTextHandler(&coordinator, nil)))
		cfg := Config{ProgressTimeout: time.Minute, Logger: slog.New(slog.NewTextHandler(&members, nil))}
		hires := func() (g *Group, hang chan struct{}, die func()) {
			l := &link{Coordinator: coord}
			g, err := Join(t.Context(), m, l, "billing", []string{"orders"}, cfg)
			require.NoError(t, err)
			hang = make(chan struct{})
			ran := make(chan error, 1)
			go func() {
				ran <- g.Run(t.Context(), func(context.Context, record.Record) error { <-hang; return nil })
			}()
			return g, hang, func() {
				l.cut()
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				_ = g.Close(ctx)
				close(hang)
				<-ran
			}
		}
		hanging, hang, _ := hires()
		time.Sleep(62 * time.Second)
		synctest.Wait()
		require.Empty(t, hanging.Owned())
		require.Contains(t, members.String(), "no progress, the partitions are given to others")
		require.NotContains(t, coordinator.String(), "not heard of")
		close(hang)
		settle()
		require.NoError(t, hanging.Close(t.Context()))

		synctest.Wait()
		members.Reset()
		_, _, die := hires()
		settle()
		die()
		time.Sleep(11 * time.Second)
		synctest.Wait()
		require.Contains(t, coordinator.String(), "members were not heard of within their session")
		require.NotContains(t, members.String(), "no progress")
	})
}

func TestACallbackThatPanicsEndsTheMembershipAndNotTheProcess(t *testing.T) {
	bad := func(context.Context, []record.TopicPartition) { panic("oops") }
	for name, cfg := range map[string]Config{
		"OnAssigned": {OnAssigned: bad},
		"ResumeAt": {ResumeAt: func(context.Context, []record.TopicPartition) (map[record.TopicPartition]record.Offset, error) {
			panic("oops")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1)
				g := w.join("a", cfg)
				_, err := g.Poll(t.Context())
				require.ErrorContains(t, err, name+" panicked: oops")
				_ = g.Close(t.Context())
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		g := w.join("a", Config{OnRevoked: bad})
		w.close(g)
	})
}

func TestAClassifierThatPanicsIsAsAHandlerThatDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, c := newRetryWorld(t, 1, 0)
		w.fill(t, "orders", 2, 2)
		m := w.live(Config{Mover: c, Retry: RetryPolicy{InPlace: 3, Classify: func(error) Action { panic("oops") }}}, func(_ *mortal, r record.Record) error {
			if r.Offset == 0 {
				return errBusy
			}
			return nil
		})
		settle()
		require.Equal(t, []string{"0:0: busy"}, letters(t, c))
		require.Equal(t, record.Offset(2), w.committed(orders(0)))
		w.close(m.Group)
	})
}

func TestNothingBehindADamagedBatchIsHandedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		for i := range 3 {
			b := batch(t, record.BatchOptions{}, "x")
			if i == 1 {
				b[record.HeaderSize] ^= 0x7f // the length of its record
			}
			w.partition(0).append(b)
		}
		g := w.join("a", Config{MaxPollBytes: 1})
		require.NoError(t, g.Commit(t.Context(), w.poll(g)))
		for range 3 {
			_, err := g.Poll(t.Context())
			require.ErrorIs(t, err, record.ErrCorrupt)
			require.ErrorContains(t, err, "orders/0")
			settle()
		}
		for range 2 {
			err := g.Run(t.Context(), func(context.Context, record.Record) error { return nil })
			require.ErrorIs(t, err, record.ErrCorrupt)
		}
		require.Equal(t, record.Offset(1), w.committed(orders(0)))
		w.close(g)
	})
}

func TestWhatIsReceivedAndNotCommittedIsNotHandledWithOnReceipt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.fill(t, "orders", 10, 10)
		lost := false
		w.setFault(func(_ context.Context, req group.Request) error {
			if req.Op == group.OpCommit && !lost { // somebody else has taken the partition
				lost = true
				w.coordinator.mu.Lock()
				w.coordinator.remove(req.Member)
				w.coordinator.mu.Unlock()
			}
			return nil
		})
		var committed []record.Offset
		m := w.live(Config{Commit: OnReceipt}, func(*mortal, record.Record) error {
			committed = append(committed, w.committed(orders(0)))
			return nil
		})
		time.Sleep(time.Minute)
		w.close(m.Group)
		require.Len(t, committed, 10)
		for _, o := range committed {
			require.Equal(t, record.Offset(10), o)
		}
	})
}
