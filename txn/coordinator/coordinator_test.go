package coordinator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/fold/foldtest"
	"github.com/quorumlog/quorumlog/record"
)

// in runs a test in a bubble of virtual time, with two nodes of which the first leads.
func in(t *testing.T, test func(t *testing.T, q *foldtest.Quorum, w *world, a, b *foldtest.Node)) {
	synctest.Test(t, func(t *testing.T) {
		q := foldtest.NewQuorum()
		a, b := q.Node(), q.Node()
		q.Elect(a, false)
		test(t, q, newWorld(), a, b)
	})
}

func start(t *testing.T, w *world, n *foldtest.Node) *Coordinator {
	return begin(t, Config{Partition: n, Participants: w, NewProducerID: w.newProducerID, Changed: n.Elections, CompactionFloor: floor})
}

// begin starts a coordinator and waits until it has looked for what a leader before it
// has left: else it might take a verdict of the test's for that, and deliver it twice.
func begin(t *testing.T, cfg Config) *Coordinator {
	c := Start(cfg)
	t.Cleanup(c.Close)
	synctest.Wait()
	return c
}

// floor has the log rewritten often, also where a test is about something else.
const floor = 2 << 10

// agree checks that each coordinator has all that was ever written, and so has one
// that folds only what is left of the log.
func agree(t *testing.T, q *foldtest.Quorum, w *world, cs ...*Coordinator) {
	t.Helper()
	cs = append(cs, start(t, w, q.Node()))
	synctest.Wait()
	all := NewState()
	q.Do(func() {
		marks, err := q.Replay(q.End, all.Apply)
		require.NoError(t, err)
		require.Positive(t, marks)
		require.Positive(t, q.Start)
	})
	for _, c := range cs {
		c.View(func(s *State) { require.Equal(t, all, s) })
	}
}

func must(t *testing.T, c *Coordinator, id string, req Request) Response {
	t.Helper()
	a, err := c.Do(t.Context(), id, req)
	require.NoError(t, err)
	return a
}

func statusOf(c *Coordinator, id string) (s Status) {
	c.View(func(st *State) { s = st.Info(id).Status })
	return s
}

func TestEveryParticipantHearsTheVerdictBeforeTheAnswer(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, w *world, a, _ *foldtest.Node) {
		c := start(t, w, a)
		who := must(t, c, "x", take("h"))
		req := add("h", who, 0, 1)
		req.Groups = []string{"g"}
		must(t, c, "x", req)
		require.Equal(t, []string{"open 1/0"}, w.events("t/0"))
		next := must(t, c, "x", end("h", who, true))
		require.Equal(t, Response{1, 1}, next)
		for _, place := range []string{"t/0", "t/1"} {
			require.Equal(t, []string{"open 1/0", "commit 1/0"}, w.events(place))
		}
		require.Equal(t, []string{"commit 1/0"}, w.events("group g"))
	})
}

// batches is how many there are in the log.
func batches(q *foldtest.Quorum) int {
	q.Lock()
	defer q.Unlock()
	return len(q.Batches)
}

func TestThatEverybodyHasAVerdictIsWrittenWithTheNextTransactionOrAfterAWhile(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, w *world, a, _ *foldtest.Node) {
		c := begin(t, Config{Partition: a, Participants: w, NewProducerID: w.newProducerID, Changed: a.Elections})
		who := must(t, c, "x", take("h"))
		for range 5 {
			before := batches(q)
			must(t, c, "x", add("h", who, 0))
			require.Equal(t, Ongoing, statusOf(c, "x"))
			next := must(t, c, "x", end("h", who, true))
			require.Equal(t, next, must(t, c, "x", end("h", who, true)), "asked again")
			require.Equal(t, PrepareCommit, statusOf(c, "x"))
			require.Equal(t, before+2, batches(q), "what was added and the verdict")
			who = next
		}
		before := batches(q)
		time.Sleep(completeAfter) // virtual
		synctest.Wait()
		require.Equal(t, CompleteCommit, statusOf(c, "x"))
		require.Equal(t, before+1, batches(q))
		time.Sleep(time.Minute)
		require.Equal(t, before+1, batches(q), "once")
		require.Equal(t, who, must(t, c, "x", take("h")))
	})
}

func TestAnotherHolderNeedNotWaitUntilItIsWrittenThatEverybodyHasAVerdict(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, w *world, a, _ *foldtest.Node) {
		c := start(t, w, a)
		who := must(t, c, "x", take("h"))
		must(t, c, "x", add("h", who, 0))
		must(t, c, "x", end("h", who, true))
		require.Equal(t, Response{1, 2}, must(t, c, "x", take("h2")))
		_, err := c.Do(t.Context(), "x", add("h", Response{1, 1}, 0))
		require.ErrorIs(t, err, record.ErrFenced)
		require.Equal(t, []string{"open 1/0", "commit 1/0"}, w.events("t/0"), "marked once")
	})
}

func TestALeaderThatLeadsAgainDeliversAVerdictAgain(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, w *world, a, b *foldtest.Node) {
		c := start(t, w, a)
		who := must(t, c, "x", take("h"))
		must(t, c, "x", add("h", who, 0))
		next := must(t, c, "x", end("h", who, true))
		var marked int
		w.fail = func(what string) error {
			if what == "mark" {
				marked++
			}
			return nil
		}
		q.Elect(b, false)
		q.Elect(a, false)
		must(t, c, "x", add("h", next, 0))
		require.Equal(t, 1, marked, "what it remembers is of an epoch that is over")
	})
}

func TestALeaderThatDoesNotKnowWhoHasAVerdictDeliversItBeforeTheNextTransaction(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, w *world, a, b *foldtest.Node) {
		ca, cb := start(t, w, a), start(t, w, b)
		who := must(t, ca, "x", take("h"))
		must(t, ca, "x", add("h", who, 0))
		next := must(t, ca, "x", end("h", who, true))
		var marked int
		w.fail = func(what string) error {
			if what == "mark" {
				marked++
			}
			return nil
		}
		q.Elect(b, false)
		must(t, cb, "x", add("h", next, 0))
		require.Equal(t, 1, marked)
		must(t, cb, "x", end("h", next, true))
		require.Equal(t, []string{"open 1/0", "commit 1/0", "open 1/1", "commit 1/1"}, w.events("t/0"))
	})
}

func TestAMarkerIsSentUntilItIsTaken(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, w *world, a, _ *foldtest.Node) {
		c := start(t, w, a)
		who := must(t, c, "x", take("h"))
		must(t, c, "x", add("h", who, 0))
		var tries int
		w.fail = func(what string) error {
			if tries++; what == "mark" && tries <= 20 {
				return record.ErrUnreachable
			}
			return nil
		}
		began := time.Now()
		must(t, c, "x", end("h", who, true))
		require.Greater(t, time.Since(began), 10*time.Second, "at growing intervals")
		require.Equal(t, 21, tries)
		require.Equal(t, []string{"open 1/0", "commit 1/0"}, w.events("t/0"))
	})
}

func TestATopicThatIsGoneHoldsNobodyUp(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, w *world, a, _ *foldtest.Node) {
		c := start(t, w, a)
		who := must(t, c, "x", take("h"))
		must(t, c, "x", add("h", who, 0))
		w.fail = func(string) error { return &record.UnknownTopicError{Topic: "t", Partition: -1} }
		must(t, c, "x", end("h", who, true))
	})
}

func TestTheNextTransactionWaitsForTheMarkersOfTheLast(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, w *world, a, _ *foldtest.Node) {
		c := start(t, w, a)
		who := must(t, c, "x", take("h"))
		must(t, c, "x", add("h", who, 0))
		stuck := true
		w.fail = func(what string) error {
			if what == "mark" && stuck {
				return record.ErrUnreachable
			}
			return nil
		}
		answer := make(chan Response, 1)
		go func() {
			a, err := c.Do(t.Context(), "x", take("h2"))
			require.NoError(t, err)
			answer <- a
		}()
		synctest.Wait()
		require.Empty(t, answer)
		require.Equal(t, PrepareAbort, statusOf(c, "x"))
		w.mu.Lock()
		stuck = false
		w.mu.Unlock()
		require.Equal(t, Response{1, 1}, <-answer)
		require.Equal(t, []string{"open 1/0", "abort 1/0"}, w.events("t/0"))
	})
}

func TestATransactionThatTakesTooLongIsAborted(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, w *world, a, _ *foldtest.Node) {
		c := start(t, w, a)
		slow := must(t, c, "slow", Request{Op: OpTake, Holder: "h", Timeout: time.Minute})
		must(t, c, "slow", add("h", slow, 0))
		time.Sleep(30 * time.Second) // virtual, as all sleeps here
		quick := must(t, c, "quick", Request{Op: OpTake, Holder: "h", Timeout: time.Second})
		must(t, c, "quick", add("h", quick, 0))
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, CompleteAbort, statusOf(c, "quick"))
		require.Equal(t, Ongoing, statusOf(c, "slow"))
		time.Sleep(29 * time.Second)
		synctest.Wait()
		require.Equal(t, CompleteAbort, statusOf(c, "slow"))
		require.Equal(t, []string{"open 1/0", "open 2/0", "abort 2/0", "abort 1/0"}, w.events("t/0"))
		_, err := c.Do(t.Context(), "slow", end("h", slow, true))
		require.ErrorIs(t, err, ErrEnded)
		must(t, c, "slow", add("h", must(t, c, "slow", take("h")), 0))
	})
}

func TestTheTimeoutGoesOnOverAFailover(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, w *world, a, b *foldtest.Node) {
		ca, cb := start(t, w, a), start(t, w, b)
		who := must(t, ca, "x", Request{Op: OpTake, Holder: "h", Timeout: time.Minute})
		must(t, ca, "x", add("h", who, 0))
		time.Sleep(40 * time.Second)
		q.Elect(b, false)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		require.Equal(t, CompleteAbort, statusOf(cb, "x"), "nobody has asked the new leader for anything")
		require.Equal(t, []string{"open 1/0", "abort 1/0"}, w.events("t/0"))
	})
}

func TestAnUnusedIDIsForgottenAndAUsedOneKept(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, w *world, a, _ *foldtest.Node) {
		c := start(t, w, a)
		must(t, c, "unused", take("h"))
		who := must(t, c, "used", take("h"))
		time.Sleep(4 * 24 * time.Hour)
		must(t, c, "used", add("h", who, 0))
		must(t, c, "used", end("h", who, true))
		q.Elect(a, false) // a leader that has just begun looks at once
		synctest.Wait()
		time.Sleep(4 * 24 * time.Hour)
		synctest.Wait()
		require.Equal(t, Dead, statusOf(c, "unused"))
		require.Equal(t, CompleteCommit, statusOf(c, "used"))
	})
}

func TestANewLeaderFinishesWhatWasPrepared(t *testing.T) {
	for _, commit := range []bool{true, false} {
		in(t, func(t *testing.T, q *foldtest.Quorum, w *world, a, b *foldtest.Node) {
			ca, cb := start(t, w, a), start(t, w, b)
			who := must(t, ca, "x", take("h"))
			must(t, ca, "x", add("h", who, 0, 1))
			stuck := true
			w.fail = func(what string) error {
				if what == "mark" && stuck {
					return record.ErrUnreachable
				}
				return nil
			}
			ended := make(chan error, 1)
			go func() { _, err := ca.Do(t.Context(), "x", end("h", who, commit)); ended <- err }()
			synctest.Wait()
			q.Elect(b, false)
			w.mu.Lock()
			stuck = false
			w.mu.Unlock()
			require.ErrorIs(t, <-ended, record.ErrNotLeader)
			time.Sleep(time.Second)
			synctest.Wait()
			verdict := map[bool]string{true: "commit 1/0", false: "abort 1/0"}[commit]
			require.Equal(t, []string{"open 1/0", verdict}, w.events("t/0"))
			require.Equal(t, []string{"open 1/0", verdict}, w.events("t/1"))
			require.Equal(t, Response{1, 1}, must(t, cb, "x", end("h", who, commit)), "its client asks the new leader")
		})
	}
}

func TestALogThatTakesNothingUsesNoEpoch(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, w *world, a, _ *foldtest.Node) {
		c := start(t, w, a)
		broken := errors.New("no space")
		q.Do(func() { a.FailAppend = func(func()) error { return broken } })
		for range 3 {
			_, err := c.Do(t.Context(), "x", take("h"))
			require.ErrorIs(t, err, broken)
		}
		q.Do(func() { a.FailAppend = nil })
		who := must(t, c, "x", take("h"))
		require.Zero(t, who.Epoch)
		must(t, c, "x", add("h", who, 0))
		q.Do(func() { a.FailAppend = func(func()) error { return broken } })
		for range 3 {
			_, err := c.Do(t.Context(), "x", end("h", who, false))
			require.ErrorIs(t, err, broken)
		}
		q.Do(func() { a.FailAppend = nil })
		require.Equal(t, Response{who.Producer, 1}, must(t, c, "x", end("h", who, false)))
	})
}

func TestALeaderThatDoesNotKnowItWasReplacedDoesNotSayThatATransactionHasEnded(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, w *world, a, b *foldtest.Node) {
		ca, cb := start(t, w, a), start(t, w, b)
		who := must(t, ca, "x", take("h"))
		q.Do(func() { a.Held = true }) // and it hears of nothing
		q.Elect(b, true)
		must(t, cb, "x", add("h", who, 0))
		must(t, cb, "x", end("h", who, true))
		_, err := ca.Do(t.Context(), "x", end("h", who, true))
		require.ErrorIs(t, err, record.ErrNotLeader)
		require.NotErrorIs(t, err, ErrEnded)
	})
}

func TestAnAddThatMeetsTheEndOfItsTransactionDoesNotFenceItsHolder(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, w *world, a, b *foldtest.Node) {
		ca, cb := start(t, w, a), start(t, w, b)
		who := must(t, ca, "x", take("h"))
		must(t, ca, "x", add("h", who, 0))
		q.Do(func() { a.Held = true })
		q.Elect(b, true) // and a does not know
		must(t, cb, "x", Request{Op: OpAbort, Producer: who.Producer, Epoch: who.Epoch})
		_, err := ca.Do(t.Context(), "x", add("h", who, 0))
		require.ErrorIs(t, err, record.ErrNotLeader)
		require.NotErrorIs(t, err, record.ErrFenced)
		_, err = cb.Do(t.Context(), "x", add("h", who, 0))
		require.ErrorIs(t, err, ErrEnded)
	})
}

func TestAbortOnRequestNamesOneTransaction(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, w *world, a, _ *foldtest.Node) {
		c := start(t, w, a)
		who := must(t, c, "x", take("h"))
		must(t, c, "x", add("h", who, 0))
		abort := Request{Op: OpAbort, Producer: who.Producer, Epoch: who.Epoch}
		must(t, c, "x", abort)
		must(t, c, "x", abort)
		require.Equal(t, []string{"open 1/0", "abort 1/0"}, w.events("t/0"))
		next := must(t, c, "x", take("h"))
		must(t, c, "x", add("h", next, 0))
		must(t, c, "x", abort)
		require.Equal(t, Ongoing, statusOf(c, "x"))
	})
}

func TestCloseEndsWhatWaitsForMarkers(t *testing.T) {
	in(t, func(t *testing.T, q *foldtest.Quorum, w *world, a, _ *foldtest.Node) {
		c := start(t, w, a)
		who := must(t, c, "x", take("h"))
		must(t, c, "x", add("h", who, 0))
		w.fail = func(string) error { return record.ErrUnreachable }
		ended := make(chan error, 1)
		go func() { _, err := c.Do(t.Context(), "x", end("h", who, true)); ended <- err }()
		synctest.Wait()
		c.Close()
		c.Close()
		require.ErrorIs(t, <-ended, record.ErrClosed)
		_, err := c.Do(t.Context(), "x", end("h", who, true))
		require.ErrorIs(t, err, record.ErrClosed)
	})
}

// seed returns the seed of a random run, which QUORUMLOG_SEED takes back.
func seed(t *testing.T) uint64 {
	s := uint64(time.Now().UnixNano())
	if env := os.Getenv("QUORUMLOG_SEED"); env != "" {
		var err error
		s, err = strconv.ParseUint(env, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("QUORUMLOG_SEED=%d", s)
	return s
}

// TestNoFailureTearsATransaction runs holders against two nodes that take turns
// to lead, a log and participants that fail, and answers that are lost. What a
// holder was told must be what every participant has done, once.
func TestNoFailureTearsATransaction(t *testing.T) {
	s := seed(t)
	for run := range uint64(30) {
		in(t, func(t *testing.T, q *foldtest.Quorum, w *world, a, b *foldtest.Node) {
			rnd := rand.New(rand.NewPCG(s, run))
			nodes := []*foldtest.Node{a, b}
			cs := []*Coordinator{start(t, w, a), start(t, w, b)}
			var dice sync.Mutex
			chance := func(p float64) bool {
				dice.Lock()
				defer dice.Unlock()
				return rnd.Float64() < p
			}
			w.fail = func(string) error {
				if chance(0.2) {
					return record.ErrUnreachable
				}
				return nil
			}
			w.lose = w.fail
			for _, n := range nodes {
				n.FailAppend = func(write func()) error {
					switch {
					case q.Leader != n || !chance(0.2):
						return nil
					case chance(0.5):
						write()
					}
					return &record.OutcomeUnknownError{Err: errors.New("answer lost")}
				}
			}
			told := map[string]string{} // "producer/epoch" to verdict
			for i := range 40 {
				c := &client{t: t, cs: cs, id: fmt.Sprint("x", i%2), holder: fmt.Sprint("h", i/10)}
				if i%7 == 0 {
					q.Do(func() {})
					q.Elect(nodes[i/7%2], i%2 == 0)
				}
				who := c.do(take(c.holder))
				if c.err != nil {
					continue
				}
				c.do(add(c.holder, who, 0, 1))
				if c.err != nil {
					continue
				}
				c.do(add(c.holder, who, 2))
				commit := c.err == nil && i%3 > 0
				c.do(end(c.holder, who, commit))
				if c.err == nil {
					told[fmt.Sprintf("%d/%d", who.Producer, who.Epoch)] = map[bool]string{true: "commit", false: "abort"}[commit]
				}
			}
			time.Sleep(time.Hour) // what nobody has ended is aborted
			agree(t, q, w, cs...)
			var did [3]map[string]string
			for p := range did {
				did[p] = map[string]string{}
				for _, e := range w.events(fmt.Sprintf("t/%d", p)) {
					verb, who, _ := strings.Cut(e, " ")
					if verb == "open" {
						require.NotContains(t, did[p], who, "opened after its end")
						continue
					}
					require.NotContains(t, did[p], who, "ended twice")
					did[p][who] = verb
				}
				require.Empty(t, w.places[fmt.Sprintf("t/%d", p)].open, "open for ever")
			}
			require.NotEmpty(t, told)
			for who, verdict := range told {
				require.Equal(t, verdict, did[0][who], "%s", who)
				require.Equal(t, verdict, did[1][who], "%s", who)
				if verdict == "commit" {
					require.Equal(t, verdict, did[2][who], "%s", who)
				}
			}
			for who, verdict := range did[0] {
				require.Equal(t, verdict, did[1][who], "%s is torn", who)
			}
		})
	}
}

// client asks whoever leads, again and again for a while.
type client struct {
	t      *testing.T
	cs     []*Coordinator
	id     string
	holder string
	err    error // of the last request
}

func (c *client) do(req Request) Response {
	ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
	defer cancel()
	for i := 0; ; i++ {
		var a Response
		a, c.err = c.cs[i%2].Do(ctx, c.id, req)
		switch {
		case c.err == nil, ctx.Err() != nil, errors.Is(c.err, record.ErrFenced), errors.Is(c.err, ErrEnded):
			return a
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestALeaderMayDieAtEveryStep kills the leader at each append and each message of a
// transaction in turn, before it is done or after. The client goes on with the other
// node: what it is told is what both partitions and the group have done, once.
func TestALeaderMayDieAtEveryStep(t *testing.T) {
	for _, commit := range []bool{true, false} {
		for _, after := range []bool{false, true} {
			steps := 0
			for point := 0; point <= steps; point++ { // the last one kills nobody
				in(t, func(t *testing.T, q *foldtest.Quorum, w *world, a, b *foldtest.Node) {
					at := 0
					dies := func() bool { at++; return at == point+1 }
					died := errors.New("the leader died")
					die := func() { q.Hand(b, false) } // q is locked
					a.FailAppend = func(write func()) error {
						if q.Leader != a || !dies() {
							return nil
						}
						if after {
							write()
						}
						die()
						return &record.OutcomeUnknownError{Err: died}
					}
					message := func(string) error {
						q.Lock()
						defer q.Unlock()
						if q.Leader != a || !dies() {
							return nil
						}
						die()
						return &record.OutcomeUnknownError{Err: died}
					}
					if after {
						w.lose = message
					} else {
						w.fail = message
					}
					c := &client{t: t, cs: []*Coordinator{start(t, w, a), start(t, w, b)}, id: "x", holder: "h"}
					do := func(req Request) Response {
						who := c.do(req)
						require.NoError(t, c.err, "point %d", point)
						return who
					}
					who := do(take("h"))
					req := add("h", who, 0, 1)
					req.Groups = []string{"g"}
					do(req)
					next := do(end("h", who, commit))
					require.Equal(t, Response{who.Producer, who.Epoch + 1}, next, "point %d", point)
					verdict := fmt.Sprintf("%s %d/%d", map[bool]string{true: "commit", false: "abort"}[commit], who.Producer, who.Epoch)
					for _, place := range []string{"t/0", "t/1", "group g"} {
						events := w.events(place)
						require.Equal(t, verdict, events[len(events)-1], "%s, point %d", place, point)
						require.LessOrEqual(t, len(events), 2, "%s, point %d", place, point)
					}
					do(add("h", next, 0))
					steps = max(steps, at)
				})
			}
			require.GreaterOrEqual(t, steps, 9, "every step was tried")
		}
	}
}
