package consumer

import (
	"context"
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
