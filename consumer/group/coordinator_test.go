package group

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/fold/foldtest"
	"github.com/quorumlog/quorumlog/record"
)

// stage is a group's coordinators on two nodes, in virtual time.
type stage struct {
	*testing.T
	q     *foldtest.Quorum
	nodes []*foldtest.Node
	coord []*Coordinator
}

// floor has the log rewritten often, also where a test is about something else.
const floor = 2 << 10

// agree checks that each node has all that was ever written, and so has who folds
// only what is left of the log.
func (s *stage) agree() {
	s.Helper()
	n := s.q.Node()
	s.coord = append(s.coord, Start(Config{Partition: n, Partitions: func(string) int { return 0 }}))
	s.Cleanup(s.coord[len(s.coord)-1].Close)
	s.q.Do(func() {
		for _, n := range s.nodes {
			n.Held = false
		}
	})
	synctest.Wait()
	all := NewState()
	s.q.Do(func() {
		marks, err := s.q.Replay(s.q.End, all.Apply)
		require.NoError(s, err)
		require.Positive(s, marks)
		require.Positive(s, s.q.Start)
	})
	for _, c := range s.coord {
		c.View(func(state *State) { require.Equal(s, all, state) })
	}
}

// play runs a test on a stage whose first node leads.
func play(t *testing.T, partitions int, test func(s *stage)) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{T: t, q: foldtest.NewQuorum()}
		for range 2 {
			n := s.q.Node()
			c := Start(Config{Partition: n, Partitions: func(topic string) int {
				if topic == "t" {
					return partitions
				}
				return 0
			}, CompactionFloor: floor})
			t.Cleanup(c.Close)
			s.nodes, s.coord = append(s.nodes, n), append(s.coord, c)
		}
		s.q.Elect(s.nodes[0], false)
		test(s)
	})
}

// ask asks the coordinator of the node that leads.
func (s *stage) ask(req Request) (Response, error) {
	var at int
	s.q.Do(func() {
		if s.q.Leader == s.nodes[1] {
			at = 1
		}
	})
	return s.coord[at].Do(s.Context(), "g", req)
}

func (s *stage) must(req Request) Response {
	s.Helper()
	answer, err := s.ask(req)
	require.NoError(s, err)
	return answer
}

func (s *stage) join(m string, session time.Duration) Response {
	s.Helper()
	return s.must(Request{Op: OpJoin, Member: m, Topics: []string{"t"}, SessionTimeout: session})
}

func (s *stage) beat(m string, gen record.Generation, owned ...int32) Response {
	s.Helper()
	return s.must(Request{Op: OpHeartbeat, Member: m, Generation: gen, Owned: tps(owned...)})
}

func (s *stage) committed(p int32) record.Offset {
	s.Helper()
	return s.must(Request{Op: OpCommitted, Partitions: tps(p)}).Offsets[0].Offset
}

func (s *stage) batches() (n int) {
	s.q.Do(func() { n = len(s.q.Batches) })
	return n
}

// pass lets virtual time pass, and whatever is due happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestEachDecisionIsOneBatchAndAQuietGroupWritesNone(t *testing.T) {
	play(t, 3, func(s *stage) {
		require.Equal(s, tps(0, 1, 2), s.join("a", 0).Assigned)
		require.Equal(s, 1, s.batches())
		s.must(Request{Op: OpCommit, Member: "a", Generation: 1, Offsets: []Offset{
			{TopicPartition: tp("t", 0), Offset: 4}, {TopicPartition: tp("t", 2), Offset: 6, Metadata: "m"},
		}})
		require.Equal(s, 2, s.batches())
		for range 100 {
			pass(5 * time.Second)
			s.beat("a", 1, 0, 1, 2)
		}
		require.Equal(s, 2, s.batches())
		require.Equal(s, Response{Generation: 1, Offsets: []Offset{
			{TopicPartition: tp("t", 2), Offset: 6, Metadata: "m"},
			{TopicPartition: tp("t", 1), Offset: record.NoOffset},
			{TopicPartition: tp("t", 0), Offset: 4},
		}}, s.must(Request{Op: OpCommitted, Partitions: tps(2, 1, 0)}))
	})
}

func TestAMemberThatIsNotHeardOfLosesItsPartitionsAtTheEndOfItsSession(t *testing.T) {
	play(t, 2, func(s *stage) {
		s.join("a", 3*time.Second)
		s.join("b", time.Minute)
		s.beat("a", 2, 0)
		require.Equal(s, tps(1), s.beat("b", 2).Assigned)
		pass(3*time.Second - time.Millisecond)
		require.Equal(s, tps(1), s.beat("b", 2, 1).Assigned, "a millisecond too early")
		pass(time.Millisecond)
		require.Equal(s, tps(0, 1), s.beat("b", 2, 1).Assigned)

		_, err := s.ask(Request{Op: OpHeartbeat, Member: "a", Generation: 2, Owned: tps(0)})
		var fenced *record.FencedError
		require.ErrorAs(s, err, &fenced)
		require.EqualValues(s, 3, fenced.Want)
		_, err = s.ask(commitOf("a", 2, 0, 5))
		require.ErrorAs(s, err, &fenced)
		require.Equal(s, record.NoOffset, s.committed(0))
	})
}

func TestTheDefaultSessionIsTenSeconds(t *testing.T) {
	play(t, 1, func(s *stage) {
		s.join("a", 0)
		s.join("b", time.Hour)
		pass(6 * time.Second)
		s.beat("a", 2, 0)
		pass(10*time.Second - time.Millisecond)
		require.Empty(s, s.beat("b", 2).Assigned)
		pass(time.Millisecond)
		require.Equal(s, tps(0), s.beat("b", 2).Assigned)
	})
}

func TestTheLastMemberExpiresWithNobodyAsking(t *testing.T) {
	play(t, 1, func(s *stage) {
		s.join("a", time.Second)
		pass(time.Hour)
		for _, c := range s.coord {
			c.View(func(st *State) {
				require.Empty(s, st.Members("g"))
				require.EqualValues(s, 2, st.Generation("g"))
			})
		}
	})
}

func TestANewCoordinatorGivesEveryMemberAFreshSession(t *testing.T) {
	play(t, 2, func(s *stage) {
		s.join("a", 3*time.Second)
		s.join("b", 3*time.Second)
		s.beat("a", 2, 0)
		s.beat("b", 2)
		s.must(commitOf("a", 2, 0, 5))
		pass(2 * time.Second)
		s.q.Elect(s.nodes[1], false)
		require.Equal(s, tps(1), s.beat("b", 2, 1).Assigned, "the assignment is the same")
		pass(2 * time.Second) // four seconds after a was heard of
		require.Equal(s, Response{Generation: 2, Assigned: tps(0)}, s.beat("a", 2, 0))
		s.must(commitOf("a", 2, 0, 6))
		require.Equal(s, record.Offset(6), s.committed(0))

		s.q.Elect(s.nodes[0], false) // and back: what it heard long ago does not count
		pass(2 * time.Second)
		require.Equal(s, tps(0), s.beat("a", 2, 0).Assigned)
		require.Equal(s, record.Offset(6), s.committed(0))
		pass(2 * time.Second)
		s.beat("a", 2, 0)
		pass(time.Second) // b is really gone
		require.Equal(s, Response{Generation: 3, Assigned: tps(0, 1)}, s.beat("a", 2, 0))
	})
}

func TestWhatALeaderHeardInAnEarlierEpochDoesNotCount(t *testing.T) {
	play(t, 2, func(s *stage) {
		s.join("a", 10*time.Second)
		s.join("b", time.Minute)
		s.beat("a", 2, 0)
		pass(2 * time.Second)
		s.q.Elect(s.nodes[1], false)
		pass(7 * time.Second)
		s.beat("a", 2, 0)
		s.q.Elect(s.nodes[0], false)
		s.beat("b", 2)
		pass(9 * time.Second) // its old deadline has long passed
		require.Equal(s, tps(0), s.beat("a", 2, 0).Assigned)
	})
}

func TestALeaderThatFalteredForAMomentStillEndsSessions(t *testing.T) {
	play(t, 1, func(s *stage) {
		s.join("a", time.Second)
		s.join("b", time.Hour)
		s.q.Do(func() { s.nodes[0].Believes = 0 })
		pass(2 * time.Second)
		s.q.Do(func() { s.nodes[0].Believes = s.q.Epoch })
		require.Empty(s, s.beat("b", 2).Assigned)
		pass(time.Second)
		require.Equal(s, tps(0), s.beat("b", 2).Assigned)
	})
}

func TestASessionEndsThoughThePartitionSleepsWheneverNobodyWrites(t *testing.T) {
	play(t, 2, func(s *stage) {
		s.join("a", 3*time.Second)
		s.join("b", time.Hour)
		s.beat("a", 2, 0)
		s.beat("b", 2)
		awake := false // an append finds it asleep; it wakes up under the same leader, in a new epoch
		s.q.Do(func() {
			s.nodes[0].FailAppend = func(func()) error {
				if s.nodes[0].Believes == s.q.Epoch && !awake {
					s.q.Epoch++
					s.nodes[0].Believes = s.q.Epoch
					awake = true
					return &record.NotLeaderError{}
				}
				awake = false
				return nil
			}
		})
		pass(2 * time.Second)
		s.must(commitOf("b", 2, 1, 5)) // another one writes; a stays silent
		pass(time.Second - time.Millisecond)
		require.Equal(s, tps(1), s.beat("b", 2, 1).Assigned, "too early")
		pass(time.Millisecond)
		require.Equal(s, tps(0, 1), s.beat("b", 2, 1).Assigned)
	})
}

func TestALeaderThatNobodyReachedForAWhileDoesNotBlameTheMembers(t *testing.T) {
	play(t, 1, func(s *stage) {
		s.join("a", 3*time.Second)
		pass(2 * time.Second)
		s.beat("a", 1, 0)
		s.q.Do(func() { s.nodes[0].Believes = 0 })
		pass(2900 * time.Millisecond)
		s.q.Elect(s.nodes[0], false)
		pass(2 * time.Second)
		require.Equal(s, tps(0), s.beat("a", 1, 0).Assigned)
	})
}

func TestACoordinatorThatWasReplacedEndsNoSession(t *testing.T) {
	for _, unaware := range []bool{true, false} {
		play(t, 1, func(s *stage) {
			s.join("a", 3*time.Second)
			s.q.Elect(s.nodes[1], unaware)
			for range 10 {
				pass(time.Second)
				require.Equal(s, tps(0), s.beat("a", 1, 0).Assigned)
			}
		})
	}
}

func TestARequestToTheWrongNodeIsRefused(t *testing.T) {
	play(t, 1, func(s *stage) {
		s.join("a", 0)
		for _, req := range []Request{
			{Op: OpJoin, Member: "b", Topics: []string{"t"}},
			{Op: OpHeartbeat, Member: "a"},
			commitOf("a", 1, 0, 1),
			{Op: OpCommitted, Partitions: tps(0)},
			{Op: OpLeave, Member: "a"},
		} {
			_, err := s.coord[1].Do(s.Context(), "g", req)
			require.ErrorIs(s, err, record.ErrNotLeader, "%s", req.Op)
		}
	})
}

// TestAnOldLeaderShowsNoOldOffsets: a new owner must begin where the last one
// has committed, even if it asks a node that does not know it was replaced.
func TestAnOldLeaderShowsNoOldOffsets(t *testing.T) {
	play(t, 1, func(s *stage) {
		s.join("a", 0)
		s.must(commitOf("a", 1, 0, 5))
		s.q.Elect(s.nodes[1], true)
		s.q.Do(func() { s.nodes[0].Held = true }) // cut off
		s.must(commitOf("a", 1, 0, 9))
		_, err := s.coord[0].Do(s.Context(), "g", Request{Op: OpCommitted, Partitions: tps(0)})
		require.ErrorIs(s, err, record.ErrNotLeader)
		_, err = s.coord[0].Do(s.Context(), "g", commitOf("a", 1, 0, 6))
		require.ErrorIs(s, err, record.ErrNotLeader)
		require.Equal(s, record.Offset(9), s.committed(0))
	})
}

func TestARequestOfUnknownOutcomeMayBeSentAgain(t *testing.T) {
	for _, written := range []bool{true, false} {
		play(t, 2, func(s *stage) {
			lose := func() {
				s.q.Do(func() {
					s.nodes[0].FailAppend = func(write func()) error {
						s.nodes[0].FailAppend = nil
						if written {
							write()
						}
						return &record.OutcomeUnknownError{Err: errors.New("answer lost")}
					}
				})
			}
			twice := func(req Request) Response {
				lose()
				_, err := s.ask(req)
				require.ErrorIs(s, err, record.ErrOutcomeUnknown)
				return s.must(req)
			}
			joined := twice(Request{Op: OpJoin, Member: "a", Topics: []string{"t"}, SessionTimeout: time.Second})
			require.Equal(s, Response{Generation: 1, Assigned: tps(0, 1)}, joined)
			twice(commitOf("a", 1, 0, 3))
			require.Equal(s, record.Offset(3), s.committed(0))
			s.join("b", 0)
			require.Equal(s, tps(0), twice(Request{Op: OpHeartbeat, Member: "a", Generation: 2, Owned: tps(0)}).Assigned)
			require.Equal(s, tps(1), s.beat("b", 2).Assigned)
			twice(Request{Op: OpLeave, Member: "a"})
			require.Equal(s, tps(0, 1), s.beat("b", 3, 1).Assigned)
		})
	}
}

func TestAJoinThatNobodyHeardTheAnswerOfExpires(t *testing.T) {
	play(t, 1, func(s *stage) {
		s.nodes[0].FailAppend = func(write func()) error {
			s.nodes[0].FailAppend = nil
			write()
			return &record.OutcomeUnknownError{Err: errors.New("answer lost")}
		}
		_, err := s.ask(Request{Op: OpJoin, Member: "ghost", Topics: []string{"t"}, SessionTimeout: time.Second})
		require.ErrorIs(s, err, record.ErrOutcomeUnknown)
		s.join("b", time.Minute)
		pass(time.Second)
		require.Equal(s, tps(0), s.beat("b", 2).Assigned)
	})
}

func TestSessionsThatCannotBeEndedAreTriedAgain(t *testing.T) {
	play(t, 1, func(s *stage) {
		s.join("a", time.Second)
		s.join("b", time.Hour)
		tries := 0
		s.q.Do(func() {
			s.nodes[0].FailAppend = func(func()) error { tries++; return errors.New("disk full") }
		})
		pass(5500 * time.Millisecond)
		s.q.Do(func() {
			require.Equal(s, 5, tries)
			s.nodes[0].FailAppend = nil
		})
		pass(time.Second)
		require.Equal(s, tps(0), s.beat("b", 2).Assigned)
	})
}

func TestGroupsOfOnePartitionDoNotMeet(t *testing.T) {
	play(t, 1, func(s *stage) {
		for _, g := range []string{"g", `g","m":"a`, "h"} {
			answer, err := s.coord[0].Do(s.Context(), g, Request{Op: OpJoin, Member: "a", Topics: []string{"t"}})
			require.NoError(s, err)
			require.Equal(s, Response{Generation: 1, Assigned: tps(0)}, answer)
		}
		pass(time.Minute) // all expire at once
		s.coord[0].View(func(st *State) {
			require.Len(s, st.Groups(), 3)
			for _, g := range st.Groups() {
				require.Empty(s, st.Members(g))
			}
		})
	})
}

func TestBadRequestsDoNotReachTheLog(t *testing.T) {
	play(t, 1, func(s *stage) {
		_, err := s.ask(Request{Op: OpJoin})
		require.ErrorIs(s, err, record.ErrInvalid)
		require.Zero(s, s.batches())
	})
}

func TestAClosedCoordinatorAnswersNothing(t *testing.T) {
	play(t, 1, func(s *stage) {
		s.join("a", time.Second)
		s.q.Do(func() { s.nodes[0].Held = true })
		done := make(chan error, 1)
		go func() { _, err := s.ask(commitOf("a", 1, 0, 4)); done <- err }()
		synctest.Wait()
		s.coord[0].Close()
		s.coord[0].Close()
		require.ErrorIs(s, <-done, record.ErrOutcomeUnknown)
		_, err := s.ask(Request{Op: OpHeartbeat, Member: "a", Generation: 1})
		require.ErrorIs(s, err, record.ErrClosed)
		_, err = s.ask(Request{Op: OpCommitted, Partitions: tps(0)})
		require.ErrorIs(s, err, record.ErrClosed)
	})
}

func TestACallEndsWithItsContext(t *testing.T) {
	play(t, 1, func(s *stage) {
		s.q.Do(func() { s.nodes[0].Held = true })
		ctx, cancel := context.WithTimeout(s.Context(), time.Second)
		defer cancel()
		_, err := s.coord[0].Do(ctx, "g", Request{Op: OpJoin, Member: "a", Topics: []string{"t"}})
		require.ErrorIs(s, err, context.DeadlineExceeded)
	})
}

// BenchmarkRequests shows what the coordinator adds to the cost of the log.
func BenchmarkRequests(b *testing.B) {
	q := foldtest.NewQuorum()
	n := q.Node()
	q.Elect(n, false)
	c := Start(Config{Partition: n, Partitions: func(string) int { return 100 }})
	defer c.Close()
	do := func(req Request) {
		if _, err := c.Do(b.Context(), "g", req); err != nil {
			b.Fatal(err)
		}
	}
	for _, m := range []string{"a", "b", "c"} {
		do(Request{Op: OpJoin, Member: m, Topics: []string{"t"}})
	}
	do(Request{Op: OpHeartbeat, Member: "a", Generation: 3})
	do(Request{Op: OpHeartbeat, Member: "b", Generation: 3})
	b.Run("heartbeat", func(b *testing.B) {
		for b.Loop() {
			do(Request{Op: OpHeartbeat, Member: "b", Generation: 3})
		}
	})
	b.Run("commit", func(b *testing.B) {
		var p int32
		c.View(func(s *State) { p = s.Members("g")[1].Assigned[0].Partition })
		for o := record.Offset(1); b.Loop(); o++ {
			do(commitOf("b", 3, p, o))
		}
	})
}
