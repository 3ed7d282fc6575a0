package fold

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/fold/foldtest"
	"github.com/quorumlog/quorumlog/record"
)

// addFor proposes words for a key and says how that ended.
func (r *register) addFor(ctx context.Context, key string, ws ...string) chan error {
	ended := make(chan error, 1)
	go func() {
		ended <- r.ProposeFor(ctx, key, func(record.LeaderEpoch) ([]record.Record, error) { return words(ws...), nil })
	}()
	synctest.Wait()
	return ended
}

// busy runs a test while a decision is being written, until release.
func busy(t *testing.T, test func(t *testing.T, q *foldtest.Quorum, a *foldtest.Node, r *register, release func())) {
	in(t, func(t *testing.T, q *foldtest.Quorum, a, _ *foldtest.Node) {
		q.Elect(a, false)
		r := start(t, a)
		gate := make(chan struct{})
		q.Do(func() { a.Gate = gate })
		first := r.addFor(t.Context(), "first", "first")
		test(t, q, a, r, func() {
			q.Do(func() { a.Gate = nil })
			close(gate)
		})
		require.NoError(t, <-first)
	})
}

func TestDecisionsOfDifferentKeysThatWaitAreWrittenTogether(t *testing.T) {
	busy(t, func(t *testing.T, q *foldtest.Quorum, _ *foldtest.Node, r *register, release func()) {
		var ended []chan error
		for i := range 100 {
			ended = append(ended, r.addFor(t.Context(), fmt.Sprint("key", i), fmt.Sprint(i)))
		}
		release()
		for _, e := range ended {
			require.NoError(t, <-e)
		}
		require.Len(t, r.folded(), 101)
		require.Len(t, q.Batches, 2)
	})
}

func TestDecisionsOfOneKeySeeEachOther(t *testing.T) {
	busy(t, func(t *testing.T, q *foldtest.Quorum, _ *foldtest.Node, r *register, release func()) {
		var ended []chan error
		add := func(key string) {
			c := make(chan error, 1)
			ended = append(ended, c)
			go func() {
				c <- r.ProposeFor(t.Context(), key, func(record.LeaderEpoch) ([]record.Record, error) {
					mine := 0
					for _, w := range r.words {
						if strings.HasPrefix(w, key+".") {
							mine++
						}
					}
					return words(fmt.Sprintf("%s.%d", key, mine)), nil
				})
			}()
		}
		for range 10 {
			add("x")
			add("y")
		}
		synctest.Wait()
		release()
		for _, e := range ended {
			require.NoError(t, <-e)
		}
		for i := range 10 {
			require.Contains(t, r.folded(), fmt.Sprint("x.", i))
			require.Contains(t, r.folded(), fmt.Sprint("y.", i))
		}
		require.LessOrEqual(t, len(q.Batches), 1+11, "they go in pairs")
	})
}

func TestADecisionWithoutAKeyIsWrittenAlone(t *testing.T) {
	busy(t, func(t *testing.T, q *foldtest.Quorum, _ *foldtest.Node, r *register, release func()) {
		all := []chan error{r.addFor(t.Context(), "", "a"), r.addFor(t.Context(), "x", "b"), r.addFor(t.Context(), "", "c")}
		release()
		for _, e := range all {
			require.NoError(t, <-e)
		}
		require.Len(t, q.Batches, 4)
	})
}

func TestAFailureOfOneAmongDecisionsThatWaitIsItsOwn(t *testing.T) {
	busy(t, func(t *testing.T, q *foldtest.Quorum, _ *foldtest.Node, r *register, release func()) {
		refusal := errors.New("refused")
		good := r.addFor(t.Context(), "good", "good")
		refused := make(chan error, 1)
		go func() {
			refused <- r.ProposeFor(t.Context(), "refused", func(record.LeaderEpoch) ([]record.Record, error) { return nil, refusal })
		}()
		huge := r.addFor(t.Context(), "huge", strings.Repeat("x", record.MaxBatchBytes))
		last := r.addFor(t.Context(), "last", "last")
		release()
		require.NoError(t, <-good)
		require.NoError(t, <-last)
		require.ErrorIs(t, <-refused, refusal)
		require.ErrorIs(t, <-huge, record.ErrTooLarge)
		require.ElementsMatch(t, []string{"first", "good", "last"}, r.folded())
	})
}

func TestWhoLeavesDecisionsThatAreWrittenTogetherHoldsNobodyUp(t *testing.T) {
	busy(t, func(t *testing.T, q *foldtest.Quorum, a *foldtest.Node, r *register, release func()) {
		ctx, cancel := context.WithCancel(t.Context())
		queued := r.addFor(ctx, "queued", "queued")
		cancel()
		require.ErrorIs(t, <-queued, context.Canceled)

		ctx, cancel = context.WithCancel(t.Context())
		leaves, stays := r.addFor(ctx, "leaves", "leaves"), r.addFor(t.Context(), "stays", "stays")
		gate := proceed(q, a)
		cancel()
		err := <-leaves
		require.ErrorIs(t, err, record.ErrOutcomeUnknown)
		require.ErrorIs(t, err, context.Canceled)
		require.Empty(t, stays)
		close(gate)
		require.NoError(t, <-stays)
		require.Equal(t, []string{"first", "leaves", "stays"}, r.folded())
	})
}

func TestCloseEndsDecisionsThatAreWrittenTogether(t *testing.T) {
	busy(t, func(t *testing.T, q *foldtest.Quorum, a *foldtest.Node, r *register, release func()) {
		all := []chan error{r.addFor(t.Context(), "x", "x"), r.addFor(t.Context(), "y", "y")}
		gate := proceed(q, a)
		q.Do(func() { a.Held = true })
		close(gate)
		synctest.Wait()
		late := r.addFor(t.Context(), "z", "z")
		r.Close()
		for _, e := range all {
			require.ErrorIs(t, <-e, record.ErrOutcomeUnknown)
		}
		require.ErrorIs(t, <-late, record.ErrClosed)
	})
}

// proceed lets the append in progress go on, and returns what the next one waits for.
func proceed(q *foldtest.Quorum, a *foldtest.Node) (next chan struct{}) {
	next = make(chan struct{})
	var before chan struct{}
	q.Do(func() { before, a.Gate = a.Gate, next })
	close(before)
	synctest.Wait()
	return next
}
