package group

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

// desk applies the rules without a log: what is decided is true at once.
type desk struct {
	*testing.T
	state  *State
	counts map[string]int
	made   record.Offset  // of every topic
	id     record.TopicID // of every topic
	limit  int
	later  time.Duration // than noon

	forgetful bool
	rule      string          // of static members
	written   []record.Record // by the last request
	log       []record.Record
}

func newDesk(t *testing.T, partitions int) *desk {
	return &desk{T: t, state: NewState(), counts: map[string]int{"t": partitions}, limit: 100}
}

var noon = time.UnixMilli(1_767_268_800_000) // 2026-01-01 12:00 UTC

func (d *desk) rules() rules {
	return rules{
		partitions: func(topic string) int { return d.counts[topic] }, made: func(string) record.Offset { return d.made },
		id: func(string) record.TopicID { return d.id }, maxMembers: d.limit, forgetful: func() bool { return d.forgetful },
	}
}

func (d *desk) ask(req Request) (Response, error) {
	d.Helper()
	require.NoError(d, req.check("g"))
	records, answer, err := d.state.decide(d.rules(), "g", req, noon)
	d.take(records)
	return answer, err
}

func (d *desk) take(records []record.Record) {
	d.Helper()
	d.written = records
	d.log = append(d.log, records...)
	for _, r := range records {
		require.NoError(d, d.state.Apply(r))
	}
	d.consistent()
	require.Equal(d, d.state, again(d.T, d.state), "written again, it is another")
}

// again returns what the records that s is written again with add up to.
func again(t *testing.T, s *State) *State {
	t.Helper()
	out := NewState()
	for _, k := range s.Keys() {
		r, ok, err := s.Current(k, noon.Add(time.Hour))
		require.NoError(t, err)
		require.True(t, ok)
		require.NoError(t, out.Apply(r))
	}
	return out
}

// consistent checks what must hold in every state.
func (d *desk) consistent() {
	d.Helper()
	g := d.state.groups["g"]
	if g == nil {
		return
	}
	owned := map[string]int{}
	for p, o := range g.owners {
		require.Contains(d, g.members, o.member, "%v is owned by a stranger", p)
		require.LessOrEqual(d, o.since, g.generation)
		owned[o.member]++
	}
	require.Equal(d, owned, g.owned)
	require.ElementsMatch(d, slices.Collect(maps.Keys(g.members)), slices.Collect(maps.Keys(g.target)))
}

func (d *desk) must(req Request) Response {
	d.Helper()
	answer, err := d.ask(req)
	require.NoError(d, err)
	return answer
}

func (d *desk) join(m string) Response {
	d.Helper()
	return d.must(Request{Op: OpJoin, Member: m, Topics: []string{"t"}})
}

func (d *desk) beat(m string, gen record.Generation, owned ...int32) Response {
	d.Helper()
	return d.must(Request{Op: OpHeartbeat, Member: m, Generation: gen, Owned: tps(owned...)})
}

func (d *desk) leave(m string) Response {
	d.Helper()
	return d.must(Request{Op: OpLeave, Member: m})
}

func commitOf(m string, gen record.Generation, p int32, o record.Offset) Request {
	return Request{Op: OpCommit, Member: m, Generation: gen, Offsets: []Offset{{TopicPartition: tp("t", p), Offset: o}}}
}

func (d *desk) committed(p int32) record.Offset { return d.state.Committed("g", tp("t", p)).Offset }

func keys(records []record.Record) (ks []string) {
	for _, r := range records {
		ks = append(ks, string(r.Key))
	}
	return ks
}

func TestTheFirstMemberGetsEverythingAtOnce(t *testing.T) {
	d := newDesk(t, 2)
	require.Equal(t, Response{Generation: 1, Assigned: tps(0, 1)}, d.join("a"))
}

func TestAHeartbeatThatChangesNothingWritesNothing(t *testing.T) {
	d := newDesk(t, 2)
	d.join("a")
	require.Equal(t, Response{Generation: 1, Assigned: tps(0, 1)}, d.beat("a", 1, 0, 1))
	require.Empty(t, d.written)
	d.join("a")
	require.Empty(t, d.written, "the same join again")
}

// TestAPartitionIsGrantedAfterItWasGivenUp is the story of the package comment.
func TestAPartitionIsGrantedAfterItWasGivenUp(t *testing.T) {
	d := newDesk(t, 2)
	d.join("a")
	require.Equal(t, Response{Generation: 2}, d.join("b"), "a still has both")
	require.Equal(t, Response{Generation: 2, Assigned: tps(0)}, d.beat("a", 1, 0, 1), "a must give 1 up")
	require.Equal(t, Response{Generation: 2}, d.beat("b", 2))
	require.Equal(t, Response{Generation: 2, Assigned: tps(0)}, d.beat("a", 2, 0, 1), "a still handles 1")
	require.Equal(t, Response{Generation: 2}, d.beat("b", 2))
	d.must(commitOf("a", 1, 1, 7)) // and may commit it

	require.Equal(t, Response{Generation: 2, Assigned: tps(0)}, d.beat("a", 2, 0), "a has given it up")
	require.Equal(t, []string{`{"k":"owner","g":"g","t":"t","p":1}`}, keys(d.written))
	require.Equal(t, Response{Generation: 2, Assigned: tps(1)}, d.beat("b", 2))
	require.Equal(t, record.Offset(7), d.committed(1))

	_, err := d.ask(commitOf("a", 2, 1, 9))
	var fenced *record.FencedError
	require.ErrorAs(t, err, &fenced)
	require.Equal(t, record.Offset(7), d.committed(1))
	d.must(commitOf("b", 2, 1, 9))
	require.Equal(t, record.Offset(9), d.committed(1))
}

func TestAHeartbeatFromBeforeTheGenerationGivesNothingUp(t *testing.T) {
	d := newDesk(t, 2)
	d.join("a")
	d.join("b")
	require.Equal(t, tps(0), d.beat("a", 1).Assigned, "sent before a learned that it has anything")
	require.Empty(t, d.written)
	require.Empty(t, d.beat("b", 2).Assigned)
	d.beat("a", 2, 0)
	require.Equal(t, tps(1), d.beat("b", 2).Assigned)
}

func TestWhatAMemberShouldHoldIsNotTakenBack(t *testing.T) {
	d := newDesk(t, 2)
	d.join("a")
	require.Equal(t, tps(0, 1), d.beat("a", 1).Assigned, "the answer to its join was lost")
	require.Empty(t, d.written)
}

func TestAMemberThatLeavesFreesWhatItHeld(t *testing.T) {
	d := newDesk(t, 2)
	d.join("a")
	d.join("b")
	d.leave("a")
	require.Equal(t, tps(0, 1), d.beat("b", 2).Assigned)
	d.leave("a") // again
	require.Empty(t, d.written)
	_, err := d.ask(Request{Op: OpHeartbeat, Member: "a", Generation: 2})
	require.ErrorIs(t, err, record.ErrFenced)
	_, err = d.ask(commitOf("a", 2, 0, 1))
	require.ErrorIs(t, err, record.ErrFenced)
}

func TestTheGenerationGrowsAlsoOverAnEmptyGroup(t *testing.T) {
	d := newDesk(t, 1)
	d.join("a")
	d.must(commitOf("a", 1, 0, 5))
	require.Equal(t, record.Generation(2), d.leave("a").Generation)
	require.Equal(t, Response{Generation: 3, Assigned: tps(0)}, d.join("b"))
	require.Equal(t, record.Offset(5), d.committed(0), "offsets stay")
}

func TestACommitMustBeOfTheOwnerSinceItsGeneration(t *testing.T) {
	d := newDesk(t, 2)
	d.join("a")
	d.join("b") // partition 1 is to go to b
	d.beat("a", 2, 0)
	d.beat("b", 2)
	d.leave("b")
	require.Equal(t, tps(0, 1), d.beat("a", 2, 0).Assigned, "and comes back in generation 3")
	for name, c := range map[string]struct {
		member     string
		generation record.Generation
		partition  int32
		refused    error
	}{
		"kept all the time":                       {"a", 1, 0, nil},
		"held again":                              {"a", 3, 1, nil},
		"read before somebody else had it":        {"a", 1, 1, record.ErrFenced},
		"read while somebody else had it":         {"a", 2, 1, record.ErrFenced},
		"not a member":                            {"x", 3, 0, record.ErrFenced},
		"a member that left":                      {"b", 2, 1, record.ErrFenced},
		"no member, but the group has some":       {"", 0, 0, record.ErrFenced},
		"a partition nobody owns":                 {"a", 3, 9, record.ErrFenced},
		"a generation this node has not heard of": {"a", 4, 0, record.ErrNotLeader},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := d.ask(commitOf(c.member, c.generation, c.partition, 10))
			if c.refused != nil {
				require.ErrorIs(t, err, c.refused)
				require.Empty(t, d.written)
				return
			}
			require.NoError(t, err)
			require.Equal(t, record.Offset(10), d.committed(c.partition))
		})
	}
}

func TestACommitIsStoredAsAWholeOrNotAtAll(t *testing.T) {
	d := newDesk(t, 3)
	d.join("a")
	req := Request{Op: OpCommit, Member: "a", Generation: 1, Offsets: []Offset{
		{TopicPartition: tp("t", 0), Offset: 1, Metadata: "half way"}, {TopicPartition: tp("t", 2), Offset: 3},
	}}
	d.must(req)
	require.Len(t, d.written, 2)
	require.Equal(t, Offset{TopicPartition: tp("t", 0), Offset: 1, Metadata: "half way"}, d.state.Committed("g", tp("t", 0)))
	require.Equal(t, record.NoOffset, d.committed(1))

	req.Offsets = append(req.Offsets, Offset{TopicPartition: tp("u", 0), Offset: 1})
	req.Offsets[0].Offset = 100
	_, err := d.ask(req)
	require.ErrorIs(t, err, record.ErrFenced)
	require.ErrorContains(t, err, "u/0")
	require.Equal(t, record.Offset(1), d.committed(0))
}

func TestACommittedOffsetDoesNotGoBackUnlessAsked(t *testing.T) {
	d := newDesk(t, 1)
	d.join("a")
	d.must(commitOf("a", 1, 0, 10))
	d.must(commitOf("a", 1, 0, 10))
	require.Empty(t, d.written, "nothing new")
	d.must(commitOf("a", 1, 0, 4))
	require.Equal(t, record.Offset(10), d.committed(0))
	req := commitOf("a", 1, 0, 4)
	req.Rewind = true
	d.must(req)
	require.Equal(t, record.Offset(4), d.committed(0))
}

func TestAGroupWithoutMembersTakesCommitsOfAnybody(t *testing.T) {
	d := newDesk(t, 1)
	d.must(commitOf("", 0, 0, 3))
	require.Equal(t, record.Offset(3), d.committed(0))
}

func TestAFullGroupTakesNoMoreMembers(t *testing.T) {
	d := newDesk(t, 1)
	d.limit = 2
	d.join("a")
	d.join("b")
	_, err := d.ask(Request{Op: OpJoin, Member: "c", Topics: []string{"t"}})
	require.ErrorIs(t, err, ErrFull)
	var full *FullError
	require.ErrorAs(t, err, &full)
	require.Equal(t, FullError{Group: "g", Limit: 2}, *full)
	d.join("a")
	d.leave("b")
	d.join("c")
}

func TestSurplusMembersStandBy(t *testing.T) {
	d := newDesk(t, 1)
	d.join("a")
	require.Empty(t, d.join("b").Assigned)
	require.Empty(t, d.beat("b", 2).Assigned)
	d.leave("a")
	require.Equal(t, tps(0), d.beat("b", 2).Assigned)
}

func TestNewPartitionsAreTakenUp(t *testing.T) {
	d := newDesk(t, 0)
	require.Equal(t, Response{Generation: 1}, d.join("a"), "the topic does not exist yet")
	d.counts["t"] = 2
	require.Equal(t, Response{Generation: 2, Assigned: tps(0, 1)}, d.beat("a", 1))
	d.counts["t"] = 1 // a node that lags behind answers now
	require.Equal(t, Response{Generation: 2, Assigned: tps(0, 1)}, d.beat("a", 2, 0, 1))
	require.Empty(t, d.written)
}

func TestPartitionsThatComeLaterBeginAtTheirStartWhateverTheMembersWouldDo(t *testing.T) {
	d := newDesk(t, 2)
	d.made, d.id = 7, record.TopicID{1}
	d.join("a")
	require.Equal(t, record.NoOffset, d.committed(0), "where the group begins in what it finds is for its members to say")
	d.must(commitOf("a", 1, 0, 5))

	d.counts["t"] = 4
	require.Equal(t, tps(0, 1, 2, 3), d.beat("a", 1, 0, 1).Assigned)
	for p, want := range []record.Offset{5, record.NoOffset, 0, 0} {
		require.Equal(t, want, d.committed(int32(p)), "partition %d", p)
	}
	require.Equal(t, d.id, d.state.Committed("g", tp("t", 3)).TopicID)

	d.leave("a")
	require.Empty(t, d.state.Members("g"))
	d.counts["t"] = 6 // while nobody reads
	d.join("b")
	require.Equal(t, record.Offset(0), d.committed(5), "the group was there before")
	d.must(commitOf("b", d.state.Generation("g"), 5, 9))
	d.beat("b", d.state.Generation("g"), 0, 1, 2, 3, 4, 5)
	require.Equal(t, record.Offset(9), d.committed(5))

	d.counts["t"], d.made, d.id = 8, 9, record.TopicID{2} // it is another topic
	d.beat("b", d.state.Generation("g"), 0, 1, 2, 3, 4, 5)
	require.Equal(t, record.NoOffset, d.committed(7), "all of it is new to the group")
}

func TestATopicThatNobodyReadsIsRememberedWhileItHasOffsets(t *testing.T) {
	d := newDesk(t, 1)
	d.counts["u"] = 1
	d.must(Request{Op: OpJoin, Member: "a", Topics: []string{"t", "u"}})
	d.must(commitOf("a", 1, 0, 5))
	d.leave("a")
	require.Equal(t, map[string]int{"t": 1}, d.state.groups["g"].partitions)

	d.must(Request{Op: OpJoin, Member: "b", Topics: []string{"u"}})
	generation := d.state.Generation("g")
	d.counts["t"] = 2
	d.must(Request{Op: OpHeartbeat, Member: "b", Generation: generation, Owned: []record.TopicPartition{tp("u", 0)}})
	require.Empty(t, d.written, "it concerns nobody")
	d.must(Request{Op: OpJoin, Member: "b", Topics: []string{"t", "u"}})
	require.Equal(t, record.Offset(0), d.committed(1))
}

func TestATopicMadeAnewMayHaveFewerPartitions(t *testing.T) {
	d := newDesk(t, 3)
	d.made = 7
	require.Equal(t, tps(0, 1, 2), d.join("a").Assigned)
	d.counts["t"], d.made = 0, 0 // it is deleted, or the node lags behind
	require.Equal(t, Response{Generation: 1, Assigned: tps(0, 1, 2)}, d.beat("a", 1, 0, 1, 2))
	require.Empty(t, d.written)
	d.counts["t"], d.made = 1, 9
	require.Equal(t, Response{Generation: 2, Assigned: tps(0)}, d.beat("a", 1, 0, 1, 2))
	d.counts["t"], d.made = 3, 7 // a node that knows only the first
	require.Equal(t, Response{Generation: 2, Assigned: tps(0)}, d.beat("a", 2, 0))
	d.counts["t"], d.made = 1, 11 // the same number of partitions, and yet another
	require.Equal(t, record.Generation(3), d.beat("a", 2, 0).Generation)
}

func TestOffsetsOfAnotherTopicOfTheNameDoNotCount(t *testing.T) {
	d := newDesk(t, 1)
	d.join("a")
	first, second := record.TopicID{1}, record.TopicID{2}
	commit := func(id record.TopicID, offset record.Offset) {
		req := commitOf("a", 1, 0, offset)
		req.Offsets[0].TopicID = id
		d.must(req)
	}
	committed := func() Offset { return d.state.Committed("g", tp("t", 0)) }
	commit(first, 9)
	commit(first, 3)
	require.Equal(t, record.Offset(9), committed().Offset, "a commit does not go back")
	commit(second, 3)
	require.Equal(t, Offset{TopicPartition: tp("t", 0), TopicID: second, Offset: 3}, committed(), "but another topic begins anew")
}

func TestATopicThatIsNotReadAnyMoreIsTakenBack(t *testing.T) {
	d := newDesk(t, 1)
	d.counts["u"] = 1
	d.must(Request{Op: OpJoin, Member: "a", Topics: []string{"u", "t", "u"}})
	require.Equal(t, Response{Generation: 2, Assigned: []record.TopicPartition{tp("u", 0)}},
		d.must(Request{Op: OpJoin, Member: "a", Topics: []string{"u"}}))
	d.must(commitOf("a", 1, 0, 3))
	d.must(Request{Op: OpHeartbeat, Member: "a", Generation: 2, Owned: []record.TopicPartition{tp("u", 0)}})
	_, err := d.ask(commitOf("a", 2, 0, 4))
	require.ErrorIs(t, err, record.ErrFenced)
}

func TestTheRuleMostMembersAskForIsUsed(t *testing.T) {
	d := newDesk(t, 4)
	ask := func(m, rule string) {
		d.must(Request{Op: OpJoin, Member: m, Topics: []string{"t"}, Assignor: rule})
	}
	ask("a", Range)
	require.Equal(t, Range, d.state.groups["g"].rule())
	ask("b", Sticky)
	require.Equal(t, Sticky, d.state.groups["g"].rule(), "the default wins a tie")
	ask("c", RoundRobin)
	ask("d", RoundRobin)
	require.Equal(t, RoundRobin, d.state.groups["g"].rule())
}

func TestAHeartbeatOfALaterGenerationIsNotForThisNode(t *testing.T) {
	d := newDesk(t, 1)
	d.join("a")
	_, err := d.ask(Request{Op: OpHeartbeat, Member: "a", Generation: 2, Owned: tps(0)})
	require.ErrorIs(t, err, record.ErrNotLeader)
}

func TestBadRequestsAreRefusedWithEveryReason(t *testing.T) {
	long := strings.Repeat("x", MaxMetadata+1)
	for name, c := range map[string]struct {
		group string
		req   Request
		texts []string
	}{
		"no group":      {"", Request{Op: OpLeave, Member: "a"}, []string{"the group has no name"}},
		"no operation":  {"g", Request{}, []string{`operation "" is not known`}},
		"empty join":    {"g", Request{Op: OpJoin}, []string{"no id", "no topics"}},
		"bad join":      {"g", Request{Op: OpJoin, Member: "a", Topics: []string{""}, Assignor: "luck", SessionTimeout: -1}, []string{"a topic has no name", `"luck"`, "SessionTimeout"}},
		"broken names":  {"g\xff", Request{Op: OpJoin, Member: "a\xff", Client: long, Topics: []string{"\xff"}}, []string{"group", "member", "client has", "topic"}},
		"bad heartbeat": {"g", Request{Op: OpHeartbeat, Generation: -1, Owned: tps(-1)}, []string{"no id", "generation is -1", "partition is negative"}},
		"bad leave":     {"g", Request{Op: OpLeave}, []string{"no id"}},
		"bad commit":    {"g", Request{Op: OpCommit, Offsets: []Offset{{Offset: -1, Metadata: long + "\xff"}}}, []string{"no name", "offset is -1", "UTF-8", "4098 bytes"}},
		"bad question":  {"g", Request{Op: OpCommitted, Partitions: tps(-1)}, []string{"negative"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.req.check(c.group)
			require.ErrorIs(t, err, record.ErrInvalid)
			for _, text := range c.texts {
				require.ErrorContains(t, err, text)
			}
		})
	}
}

// TestNoPartitionEverHasTwoReaders lets members come, go, hang and be late, and
// looks at what each really reads: what it was told last, until it stops.
func TestNoPartitionEverHasTwoReaders(t *testing.T) {
	rng := random(t)
	for range 20 {
		w := &world{desk: newDesk(t, 1+rng.IntN(6)), rng: rng, members: map[string]*reader{}}
		for range 200 {
			w.step()
			w.check()
		}
		w.settle()
	}
}

// world is a group and its members as they really are.
type world struct {
	*desk
	rng     *rand.Rand
	members map[string]*reader
	born    int
	late    []Request // heartbeats the network has kept a copy of
}

type reader struct {
	generation record.Generation
	reads      map[record.TopicPartition]record.Generation // since
	stopped    map[record.TopicPartition]bool              // reads no more, may commit
}

func (w *world) step() {
	ids := slices.Sorted(maps.Keys(w.members))
	if len(ids) == 0 || len(ids) < 5 && w.rng.IntN(12) == 0 {
		w.born++
		id := fmt.Sprint("m", w.born)
		w.members[id] = &reader{reads: map[record.TopicPartition]record.Generation{}, stopped: map[record.TopicPartition]bool{}}
		w.learn(id, w.join(id))
		return
	}
	id := ids[w.rng.IntN(len(ids))]
	switch n := w.rng.IntN(20); {
	case n == 0:
		w.leave(id)
		delete(w.members, id)
	case n == 1: // it crashed, and its session is over
		records, err := w.state.expire(w.rules(), "g", []string{id}, noon)
		require.NoError(w, err)
		w.take(records)
		delete(w.members, id)
	case n == 2:
		w.counts["t"]++
	case n < 6 && len(w.late) > 0: // a copy comes late; nobody waits for the answer
		_, err := w.ask(w.late[w.rng.IntN(len(w.late))])
		require.True(w, err == nil || errors.Is(err, record.ErrFenced), "%v", err)
	default:
		w.heartbeat(id, w.rng.IntN(8) > 0)
	}
}

func (w *world) heartbeat(id string, answered bool) {
	m := w.members[id]
	for p := range m.stopped {
		if w.rng.IntN(2) == 0 { // else it is still handled
			delete(m.stopped, p)
			delete(m.reads, p)
		}
	}
	req := Request{Op: OpHeartbeat, Member: id, Generation: m.generation}
	req.Owned = slices.SortedFunc(maps.Keys(m.reads), record.TopicPartition.Compare)
	w.late = append(w.late, req)
	if answer := w.must(req); answered {
		w.learn(id, answer)
	}
}

func (w *world) learn(id string, answer Response) {
	m := w.members[id]
	m.generation = answer.Generation
	for _, p := range answer.Assigned {
		if _, ok := m.reads[p]; !ok {
			m.reads[p] = answer.Generation
		}
		delete(m.stopped, p)
	}
	for p := range m.reads {
		if !slices.Contains(answer.Assigned, p) {
			m.stopped[p] = true
		}
	}
}

func (w *world) check() {
	who := map[record.TopicPartition]string{}
	for id, m := range w.members {
		for p, since := range m.reads {
			require.Empty(w, who[p], "%v is read by %s too", p, id)
			who[p] = id
			_, _, err := w.state.decide(w.rules(), "g", commitOf(id, since, p.Partition, 1), noon)
			require.NoError(w, err, "who reads may commit")
		}
	}
}

// settle lets everybody report until nothing changes: all is read again.
func (w *world) settle() {
	for range 6 {
		for id := range w.members {
			m := w.members[id]
			for p := range m.stopped {
				delete(m.reads, p)
			}
			clear(m.stopped)
			w.heartbeat(id, true)
		}
	}
	total := 0
	for _, m := range w.members {
		total += len(m.reads)
	}
	if len(w.members) > 0 {
		require.Equal(w, w.counts["t"], total, "some partition is read by nobody")
	}
}
