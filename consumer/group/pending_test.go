package group

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

func pendOf(m string, gen record.Generation, p int32, o record.Offset, epoch record.ProducerEpoch) Request {
	req := commitOf(m, gen, p, o)
	req.Op, req.Producer, req.Epoch = OpPend, 7, epoch
	return req
}

func settleOf(epoch record.ProducerEpoch, commit bool) Request {
	return Request{Op: OpSettle, Producer: 7, Epoch: epoch + 1, Settle: commit, Coordinator: 1}
}

func (d *desk) unsettled(p int32) error {
	return d.state.unsettled(d.rules(), "g", tp("t", p), noon.Add(d.later))
}

func TestATransactionThatMayBeForgottenHoldsAGroupUpForATime(t *testing.T) {
	for _, forgetful := range []bool{true, false} {
		d := newDesk(t, 1)
		d.forgetful = forgetful
		d.join("a")
		d.must(commitOf("a", 1, 0, 3))
		d.must(pendOf("a", 1, 0, 5, 0))
		d.later = abandonedAfter
		require.ErrorIs(t, d.unsettled(0), record.ErrPending)
		d.later += time.Millisecond
		if !forgetful {
			require.ErrorIs(t, d.unsettled(0), record.ErrPending)
			continue
		}
		require.NoError(t, d.unsettled(0))
		require.Equal(t, record.Offset(3), d.committed(0))
		d.must(settleOf(0, true))
		require.Equal(t, record.Offset(5), d.committed(0), "better late than never")
	}
}

func TestOffsetsOfATransactionCountWhenItCommits(t *testing.T) {
	for _, commit := range []bool{true, false} {
		d := newDesk(t, 2)
		d.join("a")
		d.must(commitOf("a", 1, 0, 3))
		d.must(pendOf("a", 1, 0, 5, 0))
		d.must(pendOf("a", 1, 1, 9, 0))
		d.must(pendOf("a", 1, 0, 4, 0)) // late, and lower
		require.Equal(t, record.Offset(3), d.committed(0))
		require.ErrorIs(t, d.unsettled(0), record.ErrPending)
		d.must(settleOf(0, commit))
		require.NoError(t, d.unsettled(0))
		want := map[bool][]record.Offset{true: {5, 9}, false: {3, record.NoOffset}}[commit]
		require.Equal(t, want, []record.Offset{d.committed(0), d.committed(1)})
		d.must(settleOf(0, true))
		d.must(settleOf(0, false))
		require.Equal(t, want, []record.Offset{d.committed(0), d.committed(1)}, "an end counts once")
	}
}

func TestWhatIsLateOfATransactionIsRefused(t *testing.T) {
	d := newDesk(t, 1)
	d.join("a")
	d.must(settleOf(0, false)) // the offsets did not arrive before
	_, err := d.ask(pendOf("a", 1, 0, 5, 0))
	require.ErrorIs(t, err, record.ErrFenced)
	d.must(pendOf("a", 1, 0, 5, 1))
	d.must(settleOf(0, true))
	require.ErrorIs(t, d.unsettled(0), record.ErrPending, "a late end is not for the next one")
	_, err = d.ask(pendOf("a", 1, 0, 6, 2))
	require.ErrorIs(t, err, record.ErrPending, "before the end of the one before")
	old := settleOf(1, true)
	old.Coordinator = 0
	_, err = d.ask(old)
	require.ErrorIs(t, err, record.ErrFenced, "of a coordinator that was replaced")
	d.must(settleOf(1, true))
	require.Equal(t, record.Offset(5), d.committed(0))
}

func TestOnlyTheOwnerOfAPartitionPutsItsOffsetsIntoATransaction(t *testing.T) {
	d := newDesk(t, 2)
	d.join("a")
	d.join("b")
	d.beat("a", 1)
	d.beat("a", 2, 0)
	d.beat("b", 2)
	for _, req := range []Request{pendOf("a", 2, 1, 5, 0), pendOf("b", 1, 1, 5, 0), pendOf("c", 2, 1, 5, 0)} {
		_, err := d.ask(req)
		require.ErrorIs(t, err, record.ErrFenced)
	}
	d.must(pendOf("b", 2, 1, 5, 0))
	other := pendOf("b", 2, 1, 6, 0)
	other.Producer = 8
	_, err := d.ask(other)
	require.ErrorIs(t, err, record.ErrPending, "if the first one aborted, what it has read would be lost")
}

func TestARewindIsNotUndoneByATransactionThatEndsLater(t *testing.T) {
	d := newDesk(t, 2)
	d.join("a")
	d.must(pendOf("a", 1, 0, 5, 0))
	back := commitOf("a", 1, 0, 2)
	back.Rewind = true
	_, err := d.ask(back)
	require.ErrorIs(t, err, record.ErrPending)
	other := commitOf("a", 1, 1, 2)
	other.Rewind = true
	d.must(other)
	d.must(settleOf(0, true))
	d.must(back)
	require.Equal(t, []record.Offset{2, 2}, []record.Offset{d.committed(0), d.committed(1)})
}

func TestTheNextOwnerOfAPartitionWaitsForTheTransactionOfTheLast(t *testing.T) {
	play(t, 2, func(s *stage) {
		s.join("a", 0)
		s.must(pendOf("a", 1, 0, 5, 0))
		s.must(Request{Op: OpLeave, Member: "a"})
		s.join("b", 0)
		_, err := s.ask(Request{Op: OpCommitted, Partitions: tps(0)})
		require.ErrorIs(s, err, record.ErrPending)
		require.Equal(s, record.NoOffset, s.committed(1), "the other partition is free")
		s.q.Elect(s.nodes[1], false)
		_, err = s.ask(Request{Op: OpCommitted, Partitions: tps(0)})
		require.ErrorIs(s, err, record.ErrPending, "the next coordinator knows")
		s.must(settleOf(0, true))
		require.Equal(s, record.Offset(5), s.committed(0))
	})
}

func TestEndsAreForgottenAfterADay(t *testing.T) {
	d := newDesk(t, 1)
	d.join("a")
	for id := range record.ProducerID(3) {
		req := settleOf(0, true)
		req.Producer = id
		d.must(req)
	}
	require.Len(t, d.state.groups["g"].pending, 3)
	records, _, err := d.state.decide(d.rules(), "g", settleOf(3, true), noon.Add(2*endedFor))
	require.NoError(t, err)
	d.take(records)
	require.Len(t, d.state.groups["g"].pending, 1)
}
