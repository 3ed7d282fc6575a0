package coordinator

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/fold/foldtest"
	"github.com/quorumlog/quorumlog/record"
)

// What has to be done must not wait for a request that comes by, or for a deadline.

// stalling is a world in which the first markers are not taken, and meanwhile
// something else happens.
type stalling struct {
	*world
	tries     int
	meanwhile func(try int)
}

func (s *stalling) Mark(ctx context.Context, tp record.TopicPartition, m record.Marker) error {
	if s.tries++; s.tries <= 2 {
		s.meanwhile(s.tries)
		return record.ErrUnreachable
	}
	return s.world.Mark(ctx, tp, m)
}

func TestAVerdictIsCarriedOnWhenLeadershipComesBack(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, w *world, a, b *foldtest.Node) {
		s := &stalling{world: w, meanwhile: func(try int) {
			if try == 2 { // the first one is the request's own
				q.Elect(b, false)
				q.Elect(a, false)
				time.Sleep(time.Second) // virtual; the new epoch has been looked through meanwhile
			}
		}}
		c := begin(t, Config{Partition: a, Participants: s, NewProducerID: w.newProducerID, Changed: a.Elections})
		who := must(t, c, "x", Request{Op: OpTake, Holder: "h", Timeout: maxTimeout})
		must(t, c, "x", add("h", who, 0))
		_, _ = c.Do(t.Context(), "x", end("h", who, true))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, CompleteCommit, statusOf(c, "x"))
		require.Equal(t, []string{"open 1/0", "commit 1/0"}, w.events("t/0"))
	})
}

// refuseOnce makes the next append but skip fail as one does while a leader hands
// over to another that never takes over.
func refuseOnce(q *foldtest.Quorum, n *foldtest.Node, skip int) {
	q.Do(func() {
		n.FailAppend = func(func()) error {
			if skip--; skip >= 0 {
				return nil
			}
			n.FailAppend = nil
			return &record.NotLeaderError{}
		}
	})
}

func TestAVerdictIsWrittenDownThoughAHandOverFailed(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, w *world, a, _ *foldtest.Node) {
		c := start(t, w, a)
		who := must(t, c, "x", Request{Op: OpTake, Holder: "h", Timeout: maxTimeout})
		must(t, c, "x", add("h", who, 0))
		refuseOnce(q, a, 1) // the complete record
		_, _ = c.Do(t.Context(), "x", end("h", who, true))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, CompleteCommit, statusOf(c, "x"))
	})
}

func TestADeadlineIsKeptThoughAHandOverFailed(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, w *world, a, _ *foldtest.Node) {
		c := start(t, w, a)
		who := must(t, c, "x", Request{Op: OpTake, Holder: "h", Timeout: time.Second})
		must(t, c, "x", add("h", who, 0))
		refuseOnce(q, a, 0)
		time.Sleep(1100 * time.Millisecond)
		slow := must(t, c, "slow", Request{Op: OpTake, Holder: "h", Timeout: maxTimeout}) // a later deadline is no reason to look later
		must(t, c, "slow", add("h", slow, 1))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Equal(t, CompleteAbort, statusOf(c, "x"))
		require.Equal(t, []string{"open 1/0", "abort 1/0"}, w.events("t/0"))
	})
}

func TestALeaderThatDoesNotKnowItWasReplacedGivesNoIdentityThatWasUsed(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, w *world, a, b *foldtest.Node) {
		ca, cb := start(t, w, a), start(t, w, b)
		who := must(t, ca, "x", take("h"))
		q.Do(func() { a.Held = true }) // and it hears of nothing
		q.Elect(b, true)
		must(t, cb, "x", add("h", who, 0))
		must(t, cb, "x", end("h", who, true))
		_, err := ca.Do(t.Context(), "x", take("h"))
		require.ErrorIs(t, err, record.ErrNotLeader)
	})
}

// returning is a node that leads again by the time it asks a quorum.
type returning struct {
	*foldtest.Node
	once sync.Once
}

func (r *returning) Barrier(ctx context.Context) (record.LeaderEpoch, record.Offset, error) {
	r.Q.Lock()
	stale := r.Held
	r.Q.Unlock()
	if stale {
		r.once.Do(func() {
			r.Q.Elect(r.Node, false)
			r.Q.Do(func() { r.Held = false })
		})
	}
	return r.Node.Barrier(ctx)
}

func TestWhatWasDecidedInAnEpochThatIsOverIsDecidedAgain(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, w *world, a, b *foldtest.Node) {
		cb := start(t, w, b)
		ca := begin(t, Config{Partition: &returning{Node: a}, Participants: w, NewProducerID: w.newProducerID, Changed: a.Elections})
		who := must(t, ca, "x", take("h"))
		q.Do(func() { a.Held = true })
		q.Elect(b, true)
		must(t, cb, "x", add("h", who, 0))
		must(t, cb, "x", end("h", who, true))
		// By what a knows the transaction was never begun.
		require.Equal(t, Response{1, 1}, must(t, ca, "x", end("h", who, true)))
	})
}
