package coordinator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

// script decides on requests one after the other, without a log.
type script struct {
	t     *testing.T
	s     *State
	now   time.Time
	fresh record.ProducerID
	// delivered is the verdict that everybody has and that is not written down.
	delivered Response
}

func newScript(t *testing.T) *script {
	return &script{t: t, s: NewState(), now: time.UnixMilli(1e12), fresh: 7, delivered: Response{Producer: record.NoProducerID}}
}

// do decides as the shell does, with a new producer id when one is needed.
func (c *script) do(req Request) (Response, error) {
	next, a, err := c.s.decide("a", req, record.NoProducerID, c.delivered, c.now)
	if err == errNeedID {
		next, a, err = c.s.decide("a", req, c.fresh, c.delivered, c.now)
		c.fresh++
	}
	if next != nil {
		c.put(next)
	}
	return a, err
}

func (c *script) put(next *transaction) {
	require.NoError(c.t, c.s.Apply(encode(c.now, "a", next)))
	again := NewState()
	again.forgetful = c.s.forgetful
	for _, k := range c.s.Keys() {
		r, ok, err := c.s.Current(k, c.now.Add(time.Hour))
		require.NoError(c.t, err)
		require.True(c.t, ok)
		require.NoError(c.t, again.Apply(r))
	}
	require.Equal(c.t, c.s, again, "written again, it is another")
}

func (c *script) ok(req Request) Response {
	c.t.Helper()
	a, err := c.do(req)
	require.NoError(c.t, err)
	return a
}

// finish does what follows a verdict.
func (c *script) finish() {
	t := c.s.transactions["a"]
	next, err := c.s.complete("a", Response{t.Producer, t.Epoch}, record.NoProducerID, c.now)
	if err == errNeedID {
		next, err = c.s.complete("a", Response{t.Producer, t.Epoch}, c.fresh, c.now)
		c.fresh++
	}
	require.NoError(c.t, err)
	require.NotNil(c.t, next)
	c.put(next)
}

func (c *script) status() Status { return c.s.Info("a").Status }

func take(holder string) Request { return Request{Op: OpTake, Holder: holder} }

func add(holder string, who Response, partitions ...int32) Request {
	req := Request{Op: OpAdd, Holder: holder, Producer: who.Producer, Epoch: who.Epoch}
	for _, p := range partitions {
		req.Partitions = append(req.Partitions, record.TopicPartition{Topic: "t", Partition: p})
	}
	return req
}

func end(holder string, who Response, commit bool) Request {
	return Request{Op: OpEnd, Holder: holder, Producer: who.Producer, Epoch: who.Epoch, Commit: commit}
}

func TestATransactionGoesThroughItsStates(t *testing.T) {
	for commit, want := range map[bool][2]Status{true: {PrepareCommit, CompleteCommit}, false: {PrepareAbort, CompleteAbort}} {
		c := newScript(t)
		require.Equal(t, Dead, c.status())
		who := c.ok(take("h"))
		require.Equal(t, Response{7, 0}, who)
		require.Equal(t, Empty, c.status())
		require.Equal(t, who, c.ok(add("h", who, 0, 2)))
		require.Equal(t, who, c.ok(add("h", who, 1, 2)))
		require.Equal(t, Ongoing, c.status())
		require.Equal(t, map[string][]int32{"t": {0, 1, 2}}, c.s.transactions["a"].Partitions)
		c.ok(end("h", who, commit))
		require.Equal(t, want[0], c.status())
		c.finish()
		require.Equal(t, want[1], c.status())
		require.Empty(t, c.s.Info("a").Partitions)
		require.Equal(t, Response{7, 1}, c.ok(take("h")), "the next one has the next epoch")
	}
}

func TestAnEndThatComesAgainIsRecognised(t *testing.T) {
	for _, commit := range []bool{true, false} {
		c := newScript(t)
		who := c.ok(take("h"))
		c.ok(add("h", who, 0))
		c.ok(end("h", who, commit))
		_, err := c.do(end("h", who, commit))
		require.Equal(t, errFinishing, err)
		_, err = c.do(end("h", who, !commit))
		require.ErrorIs(t, err, ErrEnded)
		c.finish()
		require.Equal(t, Response{7, 1}, c.ok(end("h", who, commit)))
		_, err = c.do(end("h", who, !commit))
		var ended *EndedError
		require.ErrorAs(t, err, &ended)
		require.Equal(t, map[bool]Status{true: CompleteCommit, false: CompleteAbort}[commit], ended.Outcome)
	}
}

func TestALateEndDoesNotHitTheNextTransaction(t *testing.T) {
	c := newScript(t)
	first := c.ok(take("h"))
	c.ok(add("h", first, 0))
	c.ok(end("h", first, true))
	c.finish()
	second := c.ok(end("h", first, true))
	c.ok(add("h", second, 0))
	for _, commit := range []bool{true, false} {
		_, err := c.do(end("h", first, commit))
		require.ErrorIs(t, err, ErrEnded)
	}
	require.Equal(t, Ongoing, c.status())
	_, err := c.do(Request{Op: OpAbort, Producer: first.Producer, Epoch: first.Epoch})
	require.ErrorIs(t, err, ErrEnded)
	require.Equal(t, Ongoing, c.status())
}

func TestALateAddDoesNotBeginWhatWasGivenUp(t *testing.T) {
	c := newScript(t)
	who := c.ok(take("h"))
	next := c.ok(end("h", who, false)) // the add before it was lost
	require.Equal(t, Response{7, 1}, next)
	require.Equal(t, next, c.ok(end("h", who, false)), "and again")
	_, err := c.do(add("h", who, 0))
	require.ErrorIs(t, err, ErrEnded)
	require.Equal(t, CompleteAbort, c.status())
	_, err = c.do(end("h", next, true))
	require.ErrorIs(t, err, ErrEnded, "there is nothing to commit")
}

func TestANewHolderFencesTheOneBeforeInEveryCall(t *testing.T) {
	for _, open := range []bool{true, false} {
		c := newScript(t)
		old := c.ok(take("old"))
		if open {
			c.ok(add("old", old, 0))
			c.ok(take("new"))
			require.Equal(t, PrepareAbort, c.status())
			_, err := c.do(end("old", old, true))
			require.ErrorIs(t, err, ErrEnded, "what became of its last transaction, it may know")
			_, err = c.do(take("new"))
			require.Equal(t, errFinishing, err)
			c.finish()
		}
		who := c.ok(take("new"))
		require.Equal(t, Response{7, 1}, who)
		require.Equal(t, who, c.ok(take("new")), "and again")
		for _, id := range []Response{old, who} {
			for _, req := range []Request{take("old"), add("old", id, 0), end("old", id, true), end("old", id, false)} {
				_, err := c.do(req)
				if req.Op == OpEnd && open && id == old {
					require.ErrorIs(t, err, ErrEnded, "%+v", req)
				} else {
					require.ErrorIs(t, err, record.ErrFenced, "%+v", req)
				}
			}
		}
		c.ok(add("new", who, 0))
	}
}

func TestAHolderThatWasReplacedIsToldWhatBecameOfItsTransaction(t *testing.T) {
	c := newScript(t)
	who := c.ok(take("old"))
	c.ok(add("old", who, 0))
	c.ok(end("old", who, true)) // and the answer is lost
	c.finish()
	next := c.ok(take("new"))
	c.ok(add("new", next, 0))
	_, err := c.do(end("old", who, true))
	var ended *EndedError
	require.ErrorAs(t, err, &ended)
	require.Equal(t, CompleteCommit, ended.Outcome)
	c.ok(end("new", next, false))
	_, err = c.do(end("old", who, true))
	require.ErrorIs(t, err, record.ErrFenced, "another one has ended since")
}

func TestAHolderStaysFencedHoweverLateItsTakeComes(t *testing.T) {
	c := newScript(t)
	holders := []string{"1", "2", "3", "4", "5", "6", "7", "8", "9"}
	for _, h := range holders {
		c.ok(take(h))
	}
	for _, h := range holders[:8] {
		_, err := c.do(take(h))
		require.ErrorIs(t, err, record.ErrFenced)
	}
}

func TestBehindTheLastEpochComesANewProducerID(t *testing.T) {
	ends := map[string]func(c *script, who Response){
		"commit": func(c *script, who Response) {
			c.ok(add("h", who, 0))
			c.ok(end("h", who, true))
			require.Equal(c.t, record.ProducerEpoch(32767), c.s.Info("a").Epoch, "the last markers")
			c.finish()
		},
		"abort of nothing": func(c *script, who Response) { c.ok(end("h", who, false)) },
		"another holder":   func(c *script, who Response) { c.ok(take("h2")); c.ok(take("h3")) },
	}
	for name, doEnd := range ends {
		t.Run(name, func(t *testing.T) {
			c := newScript(t)
			who := c.ok(take("h"))
			who.Epoch = lastEpoch
			at := *c.s.transactions["a"]
			at.Epoch = lastEpoch
			c.put(&at)
			doEnd(c, who)
			info := c.s.Info("a")
			require.Equal(t, record.ProducerID(8), info.Producer)
			require.LessOrEqual(t, info.Epoch, record.ProducerEpoch(1))
			if name == "commit" {
				require.Equal(t, Response{8, 0}, c.ok(end("h", who, true)), "its end is recognised under the old id")
			}
		})
	}
}

func TestWhatIsOverIsAbortedAndWhatIsUnusedForgotten(t *testing.T) {
	c := newScript(t)
	who := c.ok(Request{Op: OpTake, Holder: "h", Timeout: time.Second})
	over, next := c.s.due(time.Hour, c.now)
	require.Empty(t, over)
	require.Equal(t, c.now.Add(time.Hour), next)
	c.ok(add("h", who, 0))
	over, next = c.s.due(time.Hour, c.now.Add(time.Second-1))
	require.Empty(t, over)
	require.Equal(t, c.now.Add(time.Second), next)
	over, _ = c.s.due(time.Hour, c.now.Add(time.Second))
	require.Equal(t, PrepareAbort, over["a"].Status)
	c.put(over["a"])
	over, next = c.s.due(time.Hour, c.now.Add(2*time.Hour))
	require.Empty(t, over, "a verdict is never forgotten before everybody has it")
	require.Zero(t, next)
	c.finish()
	_, err := c.do(end("h", who, true))
	var ended *EndedError
	require.ErrorAs(t, err, &ended)
	require.Equal(t, CompleteAbort, ended.Outcome)
	over, _ = c.s.due(time.Hour, c.now.Add(time.Hour))
	require.Contains(t, over, "a")
	require.Nil(t, over["a"])
	c.put(nil)
	require.Equal(t, Dead, c.status())
	_, err = c.do(add("h", who, 0))
	require.ErrorIs(t, err, ErrEnded)
	require.Equal(t, Response{8, 0}, c.ok(take("h")))
}

func TestALeaderThatIsBehindDoesNotJudge(t *testing.T) {
	c := newScript(t)
	who := c.ok(take("h"))
	_, err := c.do(add("h", Response{who.Producer, who.Epoch + 1}, 0))
	require.ErrorIs(t, err, record.ErrNotLeader)
}

func TestARequestThatMakesNoSenseIsRefused(t *testing.T) {
	good := add("h", Response{1, 1}, 0)
	require.NoError(t, good.check("a"))
	for name, spoil := range map[string]func(r *Request) string{
		"no id":              func(r *Request) string { return "" },
		"no holder":          func(r *Request) string { r.Holder = ""; return "a" },
		"nothing added":      func(r *Request) string { r.Partitions = nil; return "a" },
		"negative partition": func(r *Request) string { r.Partitions[0].Partition = -1; return "a" },
		"negative producer":  func(r *Request) string { r.Producer = -1; return "a" },
		"marker's epoch":     func(r *Request) string { r.Epoch = 32767; return "a" },
		"unknown operation":  func(r *Request) string { r.Op = "x"; return "a" },
		"long timeout":       func(r *Request) string { r.Op, r.Timeout = OpTake, time.Hour; return "a" },
		"not UTF-8":          func(r *Request) string { return "\xff" },
	} {
		req := add("h", Response{1, 1}, 0)
		require.ErrorIs(t, req.check(spoil(&req)), record.ErrInvalid, name)
	}
}

// A partition may have heard of later epochs than a state that was lost in part.
func TestAForgetfulCoordinatorUsesNoProducerIDOfAnEarlierTake(t *testing.T) {
	c := newScript(t)
	c.s.forgetful = true
	require.Equal(t, Response{7, 0}, c.ok(take("h")))
	who := c.ok(take("h"))
	require.Equal(t, Response{8, 0}, who, "it asks because it does not know how its last one ended")
	c.ok(add("h", who, 0))
	c.ok(take("h2"))
	require.Equal(t, PrepareAbort, c.status())
	require.Equal(t, Response{8, 32767}, Response{c.s.Info("a").Producer, c.s.Info("a").Epoch}, "its markers end all that was of that id")
	_, err := c.do(end("h", who, true))
	require.ErrorIs(t, err, ErrEnded)
	c.finish()
	who = c.ok(take("h2"))
	require.Equal(t, Response{10, 0}, who)
	c.ok(add("h2", who, 0))
	c.ok(end("h2", who, true))
	c.finish()
	require.Equal(t, Response{10, 1}, c.ok(end("h2", who, true)), "without a take the epochs go on")
	c.ok(add("h2", Response{10, 1}, 0))
	over, _ := c.s.due(time.Hour, c.now.Add(time.Hour))
	require.Equal(t, record.ProducerEpoch(32767), over["a"].Epoch)
}
