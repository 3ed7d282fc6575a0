package fold

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/fold/foldtest"
	"github.com/quorumlog/quorumlog/record"
)

// register is a state: a list of words.
type register struct {
	*Fold
	words []string
}

var errPoison = errors.New("do not understand poison")

// start folds n's view of the log. The fold is closed with the test.
func start(t *testing.T, n *foldtest.Node) *register {
	r := &register{}
	r.Fold = Start(Config{Partition: n, Apply: func(rec record.Record) error {
		if string(rec.Value) == "poison" {
			return errPoison
		}
		r.words = append(r.words, string(rec.Value))
		return nil
	}})
	t.Cleanup(r.Close)
	return r
}

func words(ws ...string) (rs []record.Record) {
	for _, w := range ws {
		rs = append(rs, record.Record{Value: []byte(w)})
	}
	return rs
}

// add proposes words and tells what the decision saw.
func (r *register) add(ctx context.Context, ws ...string) (saw []string, err error) {
	err = r.Propose(ctx, func(record.LeaderEpoch) ([]record.Record, error) {
		saw = append([]string{}, r.words...)
		return words(ws...), nil
	})
	return saw, err
}

func (r *register) folded() (ws []string) {
	r.View(func() { ws = append(ws, r.words...) })
	return ws
}

// in runs a test in a bubble of virtual time, with a quorum of two nodes.
func in(t *testing.T, test func(t *testing.T, q *foldtest.Quorum, a, b *foldtest.Node)) {
	synctest.Test(t, func(t *testing.T) {
		q := foldtest.NewQuorum()
		test(t, q, q.Node(), q.Node())
	})
}

func TestWhatIsProposedIsFoldedOnEveryNode(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, a, b *foldtest.Node) {
		q.Elect(a, false)
		leader, follower := start(t, a), start(t, b)
		_, err := leader.add(t.Context(), "x", "y")
		require.NoError(t, err)
		require.Equal(t, []string{"x", "y"}, leader.folded())
		require.Len(t, q.Batches, 1, "one decision is one batch")
		require.NoError(t, follower.Wait(t.Context(), 2))
		require.Equal(t, []string{"x", "y"}, follower.folded())
	})
}

func TestEachDecisionSeesWhatTheOneBeforeWrote(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, a, _ *foldtest.Node) {
		q.Elect(a, false)
		r := start(t, a)
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				err := r.Propose(t.Context(), func(record.LeaderEpoch) ([]record.Record, error) {
					return words(strconv.Itoa(len(r.words))), nil
				})
				require.NoError(t, err)
			})
		}
		wg.Wait()
		for i, w := range r.folded() {
			require.Equal(t, strconv.Itoa(i), w)
		}
		require.Len(t, r.folded(), 50)
		require.Equal(t, 1, a.Barriers, "one is enough for an epoch")
	})
}

func TestADecisionMayRefuseOrWriteNothing(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, a, _ *foldtest.Node) {
		q.Elect(a, false)
		r := start(t, a)
		refused := errors.New("refused")
		err := r.Propose(t.Context(), func(epoch record.LeaderEpoch) ([]record.Record, error) {
			require.EqualValues(t, 1, epoch)
			return words("x"), refused
		})
		require.Equal(t, refused, err)
		_, err = r.add(t.Context())
		require.NoError(t, err)
		require.Empty(t, q.Batches)
	})
}

func TestAFollowerDecidesNothing(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, a, b *foldtest.Node) {
		q.Elect(a, false)
		r := start(t, b)
		saw, err := r.add(t.Context(), "x")
		require.ErrorIs(t, err, record.ErrNotLeader)
		require.Nil(t, saw, "decide has run")
		require.ErrorIs(t, r.Read(t.Context(), func() { t.Error("read on a follower") }), record.ErrNotLeader)
	})
}

func TestANewLeaderDecidesAfterItHasFoldedWhatOthersWrote(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, a, b *foldtest.Node) {
		q.Elect(a, false)
		b.Held = true
		old, next := start(t, a), start(t, b)
		_, err := old.add(t.Context(), "x")
		require.NoError(t, err)
		q.Elect(b, false)

		var saw []string
		done := make(chan error, 1)
		go func() {
			s, err := next.add(t.Context(), "y")
			saw = s
			done <- err
		}()
		synctest.Wait()
		require.Empty(t, done, "decided before it caught up")
		q.Do(func() { b.Held = false })
		require.NoError(t, <-done)
		require.Equal(t, []string{"x"}, saw)
	})
}

func TestALeaderThatCameBackSeesWhatWasWrittenMeanwhile(t *testing.T) {
	for i := range 4 { // a decision without records must not rest on what is old either
		write, noticed := words("z")[:i%2], i/2 == 1
		in(t, func(t *testing.T, q *foldtest.Quorum, a, b *foldtest.Node) {
			q.Elect(a, false)
			ra, rb := start(t, a), start(t, b)
			_, err := ra.add(t.Context(), "x")
			require.NoError(t, err)

			q.Elect(b, false)
			if noticed {
				_, err = ra.add(t.Context(), "lost")
				require.ErrorIs(t, err, record.ErrNotLeader)
			}
			q.Do(func() { a.Held = true })
			_, err = rb.add(t.Context(), "y")
			require.NoError(t, err)

			q.Elect(a, false)
			time.AfterFunc(time.Second, func() { q.Do(func() { a.Held = false }) })
			var saw []string
			err = ra.Propose(t.Context(), func(record.LeaderEpoch) ([]record.Record, error) {
				saw = append(saw, ra.words...)
				return write, nil
			})
			require.NoError(t, err)
			require.Equal(t, []string{"x", "y"}, saw)
		})
	}
}

func TestALeaderThatDoesNotKnowItWasReplacedWritesNothing(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, a, b *foldtest.Node) {
		q.Elect(a, false)
		ra, rb := start(t, a), start(t, b)
		_, err := ra.add(t.Context(), "x")
		require.NoError(t, err)
		q.Elect(b, true)
		_, err = rb.add(t.Context(), "y")
		require.NoError(t, err)

		_, err = ra.add(t.Context(), "lost")
		require.ErrorIs(t, err, record.ErrNotLeader)
		require.ErrorIs(t, ra.Read(t.Context(), func() { t.Error("read on an old leader") }), record.ErrNotLeader)
		require.NoError(t, rb.Wait(t.Context(), 2))
		require.Equal(t, []string{"x", "y"}, rb.folded())
	})
}

func TestALeaderThatLeadsOnInANewEpochDecidesAgain(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, a, b *foldtest.Node) {
		q.Elect(a, false)
		ra := start(t, a)
		_, err := ra.add(t.Context(), "x")
		require.NoError(t, err)
		// The partition slept, and an append wakes it up.
		a.FailAppend = func(func()) error {
			a.FailAppend = nil
			q.Epoch++
			a.Believes = q.Epoch
			return &record.NotLeaderError{}
		}
		var epochs []record.LeaderEpoch
		require.NoError(t, ra.Propose(t.Context(), func(epoch record.LeaderEpoch) ([]record.Record, error) {
			epochs = append(epochs, epoch)
			return words("y"), nil
		}))
		require.Equal(t, []record.LeaderEpoch{1, 2}, epochs)
		require.Equal(t, []string{"x", "y"}, ra.folded())
	})
}

func TestReadSeesWhatWasCommittedBeforeItWasCalled(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, a, b *foldtest.Node) {
		q.Elect(a, false)
		ra, rb := start(t, a), start(t, b)
		_, err := ra.add(t.Context(), "x")
		require.NoError(t, err)
		q.Do(func() { b.Held = true })
		_, err = ra.add(t.Context(), "y")
		require.NoError(t, err)
		q.Elect(b, false)
		time.AfterFunc(time.Second, func() { q.Do(func() { b.Held = false }) })
		var saw []string
		require.NoError(t, rb.Read(t.Context(), func() { saw = append(saw, rb.words...) }))
		require.Equal(t, []string{"x", "y"}, saw)
	})
}

func TestAFailedBarrierIsTriedAgainByTheNextDecision(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, a, _ *foldtest.Node) {
		q.Elect(a, false)
		r := start(t, a)
		broken := errors.New("no quorum")
		a.FailBarrier = func() error { return broken }
		saw, err := r.add(t.Context(), "x")
		require.ErrorIs(t, err, broken)
		require.Nil(t, saw, "decide has run")
		q.Do(func() { a.FailBarrier = nil })
		_, err = r.add(t.Context(), "y")
		require.NoError(t, err)
		require.Equal(t, []string{"y"}, r.folded())
	})
}

func TestAfterAnAppendOfUnknownOutcomeTheNextDecisionKnowsIt(t *testing.T) {
	for _, written := range []bool{true, false} {
		in(t, func(t *testing.T, q *foldtest.Quorum, a, _ *foldtest.Node) {
			q.Elect(a, false)
			r := start(t, a)
			_, err := r.add(t.Context(), "x")
			require.NoError(t, err)
			want := []string{"x"}
			a.FailAppend = func(write func()) error {
				a.FailAppend = nil
				if written {
					a.Held = true // and this node does not see it soon
					write()
				}
				return &record.OutcomeUnknownError{Err: errors.New("answer lost")}
			}
			_, err = r.add(t.Context(), "y")
			require.ErrorIs(t, err, record.ErrOutcomeUnknown)
			if written {
				want = append(want, "y")
			}
			time.AfterFunc(time.Second, func() { q.Do(func() { a.Held = false }) })
			saw, err := r.add(t.Context(), "z")
			require.NoError(t, err)
			require.Equal(t, want, saw)
			require.Equal(t, 2, a.Barriers)
		})
	}
}

func TestTheNextDecisionKnowsWhatWasWrittenAndNotWaitedFor(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, a, _ *foldtest.Node) {
		q.Elect(a, false)
		r := start(t, a)
		_, err := r.add(t.Context(), "x")
		require.NoError(t, err)

		q.Do(func() { a.Held = true })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = r.add(ctx, "y") // is in the log when ctx ends, but not folded
		require.ErrorIs(t, err, record.ErrOutcomeUnknown)

		time.AfterFunc(time.Second, func() { q.Do(func() { a.Held = false }) })
		saw, err := r.add(t.Context(), "z")
		require.NoError(t, err)
		require.Equal(t, []string{"x", "y"}, saw)
	})
}

func TestFailedFetchesAreRepeatedAtGrowingIntervals(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, a, _ *foldtest.Node) {
		q.Elect(a, false)
		a.FailFetch = func() error { return record.ErrUnreachable }
		r := start(t, a)
		time.Sleep(time.Minute) // virtual
		synctest.Wait()
		q.Lock()
		fetches := a.Fetches
		a.FailFetch = nil
		q.Unlock()
		require.Greater(t, fetches, 55, "about one a second")
		require.Less(t, fetches, 75)
		_, err := r.add(t.Context(), "x")
		require.NoError(t, err)
		require.Equal(t, []string{"x"}, r.folded())
	})
}

func TestAFoldStopsAtARecordItDoesNotUnderstand(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, a, _ *foldtest.Node) {
		q.Elect(a, false)
		r := start(t, a)
		_, err := r.add(t.Context(), "x")
		require.NoError(t, err)
		_, err = r.add(t.Context(), "poison", "y")
		require.ErrorIs(t, err, errPoison)
		saw, err := r.add(t.Context(), "z")
		require.ErrorIs(t, err, errPoison)
		require.Nil(t, saw, "decide has run")
		require.ErrorIs(t, r.Wait(t.Context(), 2), errPoison)
		require.NoError(t, r.Wait(t.Context(), 1), "that far it came")
		require.ErrorIs(t, r.Read(t.Context(), func() { t.Error("read beyond the end of the fold") }), errPoison)
		require.Equal(t, []string{"x"}, r.folded())
		require.Len(t, q.Batches, 2)
	})
}

func TestAFoldStopsWhenTheLogNoLongerHoldsWhatComesNext(t *testing.T) {
	for _, err := range []error{
		&record.OffsetRangeError{Offset: 0, Start: 10, End: 20},
		record.ErrClosed,
		&record.BatchError{Reason: "bad"},
	} {
		in(t, func(t *testing.T, q *foldtest.Quorum, a, _ *foldtest.Node) {
			q.Elect(a, false)
			a.FailFetch = func() error { return err }
			r := start(t, a)
			require.ErrorIs(t, r.Wait(t.Context(), 1), err)
		})
	}
}

func TestNoRecordIsFoldedTwice(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, a, _ *foldtest.Node) {
		q.Elect(a, false)
		a.Refetch = true
		r := start(t, a)
		for _, w := range []string{"x", "y", "z"} {
			_, err := r.add(t.Context(), w)
			require.NoError(t, err)
		}
		require.Equal(t, []string{"x", "y", "z"}, r.folded())
	})
}

func TestCloseEndsEveryWait(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, a, _ *foldtest.Node) {
		q.Elect(a, false)
		r := start(t, a)
		_, err := r.add(t.Context(), "x")
		require.NoError(t, err)
		q.Do(func() { a.Held = true })

		wait, write, queue := make(chan error, 1), make(chan error, 1), make(chan error, 1)
		go func() { wait <- r.Wait(t.Context(), 5) }()
		go func() { _, err := r.add(t.Context(), "y"); write <- err }()
		synctest.Wait() // y is in the log and not folded: its Propose has the turn
		go func() { _, err := r.add(t.Context(), "z"); queue <- err }()
		synctest.Wait()
		require.Empty(t, wait)
		require.Empty(t, write)
		require.Empty(t, queue)

		r.Close()
		r.Close()
		require.ErrorIs(t, <-wait, record.ErrClosed)
		require.ErrorIs(t, <-write, record.ErrOutcomeUnknown)
		err = <-queue
		require.ErrorIs(t, err, record.ErrClosed)
		require.NotErrorIs(t, err, record.ErrOutcomeUnknown)
		_, err = r.add(t.Context(), "later")
		require.ErrorIs(t, err, record.ErrClosed)
	})
}

func TestCloseDoesNotWaitForTheNextRetry(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, a, _ *foldtest.Node) {
		a.FailFetch = func() error { return record.ErrUnreachable }
		r := start(t, a)
		time.Sleep(10 * time.Second) // virtual; retries are a second apart now
		began := time.Now()
		r.Close()
		require.Zero(t, time.Since(began))
	})
}

func TestTheEndOfAContextEndsTheWait(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, a, _ *foldtest.Node) {
		q.Elect(a, false)
		r := start(t, a)
		_, err := r.add(t.Context(), "x")
		require.NoError(t, err)
		q.Do(func() { a.Held = true })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, r.Wait(ctx, 5), context.DeadlineExceeded)

		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = r.add(ctx, "y")
		require.ErrorIs(t, err, record.ErrOutcomeUnknown, "it is in the log")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = r.add(ctx, "z")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, record.ErrOutcomeUnknown, "it never began")
	})
}
