package half

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/fold/foldtest"
	"github.com/quorumlog/quorumlog/record"
)

// topic is the partitions that records are delivered to. They know producers as real
// ones do.
type topic struct {
	mu     sync.Mutex
	values []string
	next   map[record.ProducerID]record.Sequence
	nextID record.ProducerID
	fail   func(write func()) error // what becomes of an append; nil when nothing is wrong
}

func newTopic() *topic { return &topic{next: map[record.ProducerID]record.Sequence{}} }

func (p *topic) newProducerID(context.Context) (record.ProducerID, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.nextID++
	return p.nextID, nil
}

func (p *topic) append(_ context.Context, _ record.TopicPartition, b record.Batch) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var write func()
	switch want := p.next[b.ProducerID()]; {
	case b.BaseSequence() < want:
		return record.ErrDuplicate
	case b.BaseSequence() > want:
		return &record.OutOfOrderError{Producer: b.ProducerID(), Got: b.BaseSequence(), Want: want}
	default:
		write = func() {
			var it record.Iterator
			var r record.Record
			if it.Reset(b) == nil && it.Next(&r) {
				p.values = append(p.values, string(r.Value))
			}
			p.next[b.ProducerID()] = want + 1
		}
	}
	if p.fail != nil {
		if err := p.fail(write); err != nil {
			return err
		}
	}
	write()
	return nil
}

func (p *topic) got() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, p.values...)
}

// stage is a coordinator on two nodes of which the first leads, in virtual time.
type stage struct {
	*testing.T
	q     *foldtest.Quorum
	nodes []*foldtest.Node
	cs    []*Coordinator
	topic *topic
}

// floor has the log rewritten often, also where a test is about something else.
const floor = 512

// agree checks that each node has all that was ever written, and so has who folds
// only what is left of the log. It returns how often that was rewritten.
func (s *stage) agree() (marks int) {
	s.Helper()
	n := s.q.Node()
	c := Start(Config{Partition: n, Append: s.topic.append, NewProducerID: s.topic.newProducerID, Changed: n.Elections})
	s.Cleanup(c.Close)
	synctest.Wait()
	all := newState()
	s.q.Do(func() {
		var err error
		marks, err = s.q.Replay(s.q.End, all.Apply)
		require.NoError(s, err)
	})
	again := newState()
	for _, k := range all.Keys() {
		r, ok, err := all.Current(k, time.Now())
		require.NoError(s, err)
		require.True(s, ok)
		require.NoError(s, again.Apply(r))
	}
	require.Equal(s, all, again)
	for _, c := range append(s.cs, c) {
		c.fold.View(func() { require.Equal(s, all, c.state) })
	}
	return marks
}

func play(t *testing.T, test func(s *stage)) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{T: t, q: foldtest.NewQuorum(), topic: newTopic()}
		for range 2 {
			n := s.q.Node()
			c := Start(Config{Partition: n, Append: s.topic.append, NewProducerID: s.topic.newProducerID, Changed: n.Elections, CompactionFloor: floor})
			t.Cleanup(c.Close)
			s.nodes, s.cs = append(s.nodes, n), append(s.cs, c)
		}
		s.q.Elect(s.nodes[0], false)
		test(s)
	})
}

func (s *stage) do(req Request) Response {
	s.Helper()
	var c *Coordinator
	s.q.Do(func() {
		c = s.cs[0]
		if s.q.Leader == s.nodes[1] {
			c = s.cs[1]
		}
	})
	a, err := c.Do(s.Context(), "g", req)
	require.NoError(s, err)
	synctest.Wait()
	return a
}

func store(id ID, sched Schedule) Request {
	return Request{Op: OpStore, ID: id, Record: &record.Record{Topic: "t", Key: []byte("k"), Value: []byte(id)}, Schedule: sched}
}

func decide(id ID, d Decision) Request { return Request{Op: OpDecide, ID: id, Decision: d} }

func (s *stage) poll() (ids []ID) {
	for _, h := range s.do(Request{Op: OpPoll}).Halves {
		ids = append(ids, h.ID)
	}
	return ids
}

func TestACommittedHalfMessageIsInItsTopicAndARolledBackOneIsNot(t *testing.T) {
	play(t, func(s *stage) {
		for _, id := range []ID{"a", "b", "c"} {
			require.Equal(t, Unknown, s.do(store(id, Schedule{})).Decision)
		}
		require.Empty(t, s.topic.got())
		require.Equal(t, Commit, s.do(decide("a", Commit)).Decision)
		require.Equal(t, Rollback, s.do(decide("b", Rollback)).Decision)
		require.Equal(t, Commit, s.do(decide("c", Commit)).Decision)
		require.Equal(t, []string{"a", "c"}, s.topic.got())
		require.Equal(t, Commit, s.do(decide("a", Rollback)).Decision, "the first decision counts")
		require.Equal(t, Rollback, s.do(decide("b", Commit)).Decision)
		require.Equal(t, Commit, s.do(store("a", Schedule{})).Decision, "stored again, its answer was lost")
		require.Equal(t, []string{"a", "c"}, s.topic.got())
		_, err := s.cs[0].Do(s.Context(), "g", decide("stranger", Commit))
		require.ErrorIs(t, err, ErrGone)
	})
}

func TestUndecidedMessagesAreCheckedBackAtIntervalsAndThenThePolicyCounts(t *testing.T) {
	for policy, want := range map[Policy][]string{"": {}, RollbackUndecided: {}, CommitUndecided: {"x"}, ParkUndecided: {}} {
		play(t, func(s *stage) {
			s.do(store("x", Schedule{Policy: policy}))
			time.Sleep(6*time.Second - time.Millisecond) // virtual
			require.Empty(t, s.poll())
			time.Sleep(time.Millisecond)
			for i := range 15 {
				a := s.do(Request{Op: OpPoll})
				require.Len(t, a.Halves, 1, "check %d", i)
				require.Equal(t, i+1, a.Halves[0].Tries)
				require.Equal(t, "x", string(a.Halves[0].Record.Value))
				require.Empty(t, s.poll(), "one instance is enough")
				time.Sleep(30 * time.Second)
			}
			require.Empty(t, s.poll(), "that was often enough")
			require.Equal(t, want, s.topic.got())
			left := s.do(Request{Op: OpList}).Halves
			if policy != ParkUndecided {
				require.Empty(t, left)
				return
			}
			require.Equal(t, ID("x"), left[0].ID)
			time.Sleep(time.Hour)
			require.Empty(t, s.poll(), "nobody is asked about what is parked")
			s.do(decide("x", Commit))
			require.Equal(t, []string{"x"}, s.topic.got())
		})
	}
}

func TestWithNobodyAliveAMessageStaysHalf(t *testing.T) {
	play(t, func(s *stage) {
		s.do(store("x", Schedule{}))
		time.Sleep(7 * 24 * time.Hour)
		require.Equal(t, 1, s.do(Request{Op: OpPoll}).Halves[0].Tries, "nothing was counted meanwhile")
	})
}

func TestDecisionsAreForgottenAfterADay(t *testing.T) {
	play(t, func(s *stage) {
		s.do(store("x", Schedule{}))
		s.do(decide("x", Rollback))
		time.Sleep(23 * time.Hour)
		s.poll()
		require.Equal(t, Rollback, s.do(decide("x", Commit)).Decision)
		time.Sleep(2 * time.Hour)
		s.poll()
		require.Empty(t, s.cs[0].state.groups)
	})
}

func TestTheNextLeaderDeliversWhatWasCommitted(t *testing.T) {
	for _, written := range []bool{true, false} {
		play(t, func(s *stage) {
			s.topic.fail = func(write func()) error {
				if written {
					write()
				}
				return &record.OutcomeUnknownError{Err: errors.New("answer lost")}
			}
			for _, id := range []ID{"a", "b"} {
				s.do(store(id, Schedule{}))
				s.do(decide(id, Commit))
			}
			s.q.Elect(s.nodes[1], false)
			s.topic.mu.Lock()
			s.topic.fail = nil
			s.topic.mu.Unlock()
			time.Sleep(time.Second)
			synctest.Wait()
			require.Equal(t, []string{"a", "b"}, s.topic.got())
			require.Equal(t, Commit, s.do(decide("a", Rollback)).Decision)
		})
	}
}

func TestALaneThatThePartitionHasForgottenGoesOnUnderANewProducer(t *testing.T) {
	play(t, func(s *stage) {
		for _, id := range []ID{"a", "b"} {
			s.do(store(id, Schedule{}))
			s.do(decide(id, Commit))
		}
		s.topic.mu.Lock()
		clear(s.topic.next)
		s.topic.mu.Unlock()
		for _, id := range []ID{"c", "d"} {
			s.do(store(id, Schedule{}))
			s.do(decide(id, Commit))
			time.Sleep(time.Second)
			synctest.Wait()
		}
		require.Equal(t, []string{"a", "b", "c", "d"}, s.topic.got())
		require.Equal(t, record.ProducerID(2), s.cs[0].state.lanes[record.TopicPartition{Topic: "t"}].Producer)
	})
}

func TestAMessageWithoutATopicHoldsNobodyUp(t *testing.T) {
	play(t, func(s *stage) {
		s.topic.fail = func(func()) error { return &record.UnknownTopicError{Topic: "t", Partition: -1} }
		s.do(store("a", Schedule{}))
		s.do(decide("a", Commit))
		s.topic.mu.Lock()
		s.topic.fail = nil
		s.topic.mu.Unlock()
		s.do(store("b", Schedule{}))
		s.do(decide("b", Commit))
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []string{"b"}, s.topic.got())
	})
}

func TestSequencesAreInOrderOverTheirWrap(t *testing.T) {
	s := newState()
	for i := range 5 {
		seq := record.Sequence(1<<31 - 3).Add(int32(i))
		s.put("g", ID(fmt.Sprint(i)), &message{Status: isCommitted, Topic: "t", Sequence: seq})
	}
	for i, v := range s.waiting()[record.TopicPartition{Topic: "t"}] {
		require.Equal(t, ID(fmt.Sprint(i)), v.id)
	}
}

func TestARequestThatMakesNoSenseIsRefused(t *testing.T) {
	for name, req := range map[string]Request{
		"no id":            {Op: OpStore, Record: &record.Record{Topic: "t"}},
		"no record":        {Op: OpStore, ID: "x"},
		"no topic":         {Op: OpStore, ID: "x", Record: &record.Record{}},
		"unknown decision": {Op: OpDecide, ID: "x"},
		"unknown policy":   {Op: OpStore, ID: "x", Record: &record.Record{Topic: "t"}, Schedule: Schedule{Policy: "maybe"}},
		"negative":         {Op: OpStore, ID: "x", Record: &record.Record{Topic: "t"}, Schedule: Schedule{Every: -1}},
		"too large":        {Op: OpStore, ID: "x", Record: &record.Record{Topic: "t", Value: make([]byte, maxRecord)}},
		"unknown op":       {Op: "x"},
	} {
		require.ErrorIs(t, req.check("g"), record.ErrInvalid, name)
	}
	require.ErrorIs(t, (&Request{Op: OpPoll}).check(""), record.ErrInvalid)
}

// TestEveryCommittedMessageIsThereOnceWhateverFails lets leaders change, appends and
// answers be lost, and instances disagree.
func TestEveryCommittedMessageIsThereOnceWhateverFails(t *testing.T) {
	s0 := seed(t)
	rewritten := 0
	for run := range uint64(20) {
		play(t, func(s *stage) {
			rnd := rand.New(rand.NewPCG(s0, run))
			var dice sync.Mutex
			roll := func(n int) int {
				dice.Lock()
				defer dice.Unlock()
				return rnd.IntN(n)
			}
			fails := func(write func()) error {
				switch roll(6) {
				case 0:
					write()
					return &record.OutcomeUnknownError{Err: errors.New("answer lost")}
				case 1:
					return &record.OutcomeUnknownError{Err: errors.New("request lost")}
				}
				return nil
			}
			s.topic.fail = fails
			for _, n := range s.nodes {
				n.FailAppend = func(write func()) error {
					if s.q.Leader != n {
						return nil
					}
					return fails(write)
				}
			}
			ask := func(req Request) (a Response) {
				for i := 0; ; i++ {
					ctx, cancel := context.WithTimeout(s.Context(), time.Second)
					a, err := s.cs[i%2].Do(ctx, "g", req)
					cancel()
					if err == nil {
						return a
					}
					time.Sleep(10 * time.Millisecond)
				}
			}
			want := []string{}
			for i := range 30 {
				id := ID(fmt.Sprint(i))
				ask(store(id, Schedule{}))
				if i%5 == 0 {
					s.q.Elect(s.nodes[i/5%2], i%2 == 0)
				}
				first := ask(decide(id, Decision(1+roll(2)))).Decision
				require.Equal(t, first, ask(decide(id, Decision(1+roll(2)))).Decision)
				if first == Commit {
					want = append(want, string(id))
				}
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Equal(t, want, s.topic.got())
			rewritten += s.agree()
		})
	}
	require.Greater(t, rewritten, 5)
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
