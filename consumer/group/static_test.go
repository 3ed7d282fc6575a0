package group

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

func (d *desk) static(id, instance, replaces string) Response {
	d.Helper()
	return d.must(Request{Op: OpJoin, Member: id, Instance: instance, Replaces: replaces, Topics: []string{"t"}, Assignor: d.rule})
}

func TestAStaticMemberThatComesBackHasItsPartitionsAndNobodyElseNotices(t *testing.T) {
	for _, rule := range []string{Sticky, Range, RoundRobin} {
		d := newDesk(t, 4)
		d.rule = rule
		d.static("a1", "a", "")
		d.static("b1", "b", "")
		d.beat("a1", 1)
		had := d.beat("a1", 2, d.share("a1")...).Assigned
		other := d.beat("b1", 2).Assigned
		require.Len(t, had, 2)
		require.Len(t, other, 2)
		d.must(commitOf("a1", 2, had[0].Partition, 5))

		back := d.static("zz", "a", "")
		require.Equal(t, had, back.Assigned, rule)
		require.Equal(t, record.Generation(3), back.Generation)
		require.Equal(t, other, d.beat("b1", 2, other[0].Partition, other[1].Partition).Assigned)
		_, err := d.ask(commitOf("a1", 3, had[0].Partition, 6))
		require.ErrorIs(t, err, record.ErrFenced)
		_, err = d.ask(Request{Op: OpHeartbeat, Member: "a1", Generation: 3})
		require.ErrorIs(t, err, record.ErrFenced)
		d.must(commitOf("zz", 3, had[0].Partition, 6))
		require.Len(t, d.state.Members("g"), 2)
		require.Equal(t, "a", d.state.Members("g")[1].Instance)
	}
}

func (d *desk) share(id string) (ps []int32) {
	for _, tp := range d.state.groups["g"].target[id] {
		ps = append(ps, tp.Partition)
	}
	return ps
}

// Of two clients with one instance, the one that started last stays; they do
// not drive each other out for ever.
func TestAnInstanceThatWasTakenIsNotTakenBack(t *testing.T) {
	d := newDesk(t, 2)
	d.static("a1", "a", "")
	d.static("a2", "a", "")
	_, err := d.ask(Request{Op: OpJoin, Member: "a3", Instance: "a", Replaces: "a1", Topics: []string{"t"}})
	require.ErrorIs(t, err, record.ErrFenced)
	require.Equal(t, tps(0, 1), d.static("a3", "a", "a2").Assigned, "its own place it may take again")
}

func TestAClientThatJoinsAgainIsOneMember(t *testing.T) {
	d := newDesk(t, 2)
	d.limit = 2
	d.join("a")
	d.join("b")
	d.beat("a", 1)
	d.beat("a", 2, 0)
	for range 2 { // a join whose answer was lost is sent again
		d.must(Request{Op: OpJoin, Member: "c", Replaces: "a", Topics: []string{"t"}})
		require.Len(t, d.state.Members("g"), 2)
	}
	_, err := d.ask(Request{Op: OpJoin, Member: "d", Replaces: "gone", Topics: []string{"t"}})
	require.ErrorIs(t, err, ErrFull)
}

func TestAStaticMemberThatStaysAwayLosesItsPartitionsWithItsSession(t *testing.T) {
	play(t, 2, func(s *stage) {
		s.must(Request{Op: OpJoin, Member: "a1", Instance: "a", Topics: []string{"t"}, SessionTimeout: 10 * time.Second})
		s.join("b", time.Minute)
		s.beat("a1", 1, 0, 1)
		s.beat("a1", 2, 0)
		require.Equal(t, tps(1), s.beat("b", 2).Assigned)
		pass(9 * time.Second) // restarting
		require.Equal(t, tps(1), s.beat("b", 2, 1).Assigned)
		back := s.must(Request{Op: OpJoin, Member: "a2", Instance: "a", Topics: []string{"t"}, SessionTimeout: 10 * time.Second})
		require.Equal(t, tps(0), back.Assigned)
		pass(9 * time.Second) // the session of its first life is over, and nobody minds
		require.Equal(t, tps(0), s.beat("a2", back.Generation, 0).Assigned)
		pass(10 * time.Second)
		require.Equal(t, tps(0, 1), s.beat("b", 3, 1).Assigned)
	})
}

func TestOffsetsOfALivingGroupStayAndThoseOfADeadOneAreForgotten(t *testing.T) {
	const day = 24 * time.Hour
	play(t, 2, func(s *stage) {
		s.join("a", 30*day)
		s.must(Request{Op: OpCommit, Member: "a", Generation: 1, Offsets: []Offset{{TopicPartition: tp("t", 0), Offset: 4}}})
		for range 40 {
			pass(day)
			s.beat("a", 1, 0, 1)
		}
		require.Equal(t, record.Offset(4), s.committed(0), "40 days without a commit, but with a member")
		s.must(Request{Op: OpLeave, Member: "a"})
		pass(7*day - 2*time.Hour)
		require.Equal(t, record.Offset(4), s.committed(0))
		s.must(Request{Op: OpCommit, Offsets: []Offset{{TopicPartition: tp("t", 1), Offset: 9}}}) // by somebody without a membership
		pass(3 * time.Hour)
		require.Equal(t, record.NoOffset, s.committed(0))
		require.Equal(t, record.Offset(9), s.committed(1), "committed later")
		batches := s.batches()
		s.q.Elect(s.nodes[1], false) // the next coordinator knows since when
		pass(7 * day)
		require.Equal(t, record.NoOffset, s.committed(1))
		require.Equal(t, batches+1, s.batches())
		pass(30 * day)
		require.Equal(t, batches+1, s.batches(), "a quiet group writes nothing")
	})
}

// kept returns the groups that the nodes know, which must be the same.
func (s *stage) kept() (names []string) {
	s.Helper()
	s.coord[0].View(func(state *State) { names = state.Groups() })
	s.coord[1].View(func(state *State) { require.Equal(s, names, state.Groups()) })
	return names
}

func TestAGroupThatNobodyUsesIsForgotten(t *testing.T) {
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		use  func(s *stage) // with member a, generation 1
		keep time.Duration  // after a left
	}{
		"that committed nothing": {func(*stage) {}, 7 * day},
		"with its offsets": {func(s *stage) {
			s.must(commitOf("a", 1, 0, 4))
		}, 7 * day},
		"with later offsets": {func(s *stage) {
			s.must(Request{Op: OpLeave, Member: "a"})
			pass(3 * day)
			s.must(commitOf("", 0, 0, 4))
		}, 7 * day},
		"with an ended transaction": {func(s *stage) {
			s.must(pendOf("a", 1, 0, 5, 0))
			s.must(Request{Op: OpLeave, Member: "a"})
			pass(9 * day)
			require.Equal(s, []string{"g"}, s.kept(), "its transaction is open")
			s.must(settleOf(0, false))
		}, day},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 2, func(s *stage) {
				s.join("a", time.Minute)
				c.use(s)
				s.must(Request{Op: OpLeave, Member: "a"})
				pass(c.keep - time.Hour)
				require.Equal(t, []string{"g"}, s.kept())
				s.q.Elect(s.nodes[1], false)
				pass(3 * time.Hour)
				require.Empty(t, s.kept())
				batches := s.batches()
				pass(30 * day)
				require.Equal(t, batches, s.batches())

				_, err := s.ask(Request{Op: OpHeartbeat, Member: "a", Generation: 1})
				require.ErrorIs(t, err, record.ErrFenced)
				again := s.join("b", time.Minute)
				require.Equal(t, tps(0, 1), again.Assigned)
				require.EqualValues(t, 1, again.Generation)
				_, err = s.ask(commitOf("a", 1, 0, 9))
				require.ErrorIs(t, err, record.ErrFenced, "a member of the group that was")
				require.Equal(t, record.NoOffset, s.committed(0))
			})
		})
	}
}

func TestAGroupIsDescribed(t *testing.T) {
	play(t, 2, func(s *stage) {
		s.join("a", 0)
		start := time.Now()
		pass(time.Second)
		s.must(Request{Op: OpCommit, Member: "a", Generation: 1, Offsets: []Offset{{TopicPartition: tp("t", 1), Offset: 4, Metadata: "m"}}})
		got := s.must(Request{Op: OpDescribe})
		require.Len(t, got.Offsets, 1)
		require.Equal(t, start.Add(time.Second).UnixMilli(), got.Offsets[0].Time.UnixMilli())
		got.Offsets[0].Time = time.Time{}
		require.Equal(t, Response{
			Generation: 1,
			Members:    []Member{{ID: "a", Topics: []string{"t"}, Assigned: tps(0, 1)}},
			Offsets:    []Offset{{TopicPartition: tp("t", 1), Offset: 4, Metadata: "m"}},
		}, got)
		other, err := s.coord[0].Do(s.Context(), "nobody", Request{Op: OpDescribe})
		require.NoError(t, err)
		require.Zero(t, other)
	})
}
