package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/record"
)

// fate is what becomes of a move. The zero value: it is done.
type fate struct {
	hold   time.Duration // before anything is done
	refuse error         // nothing is done
	late   time.Duration // the outcome is not known, and decided so much later
	abort  bool          // that outcome
}

// notary is an AtomicMover: the group's offset is pending, the record is appended, the
// offset counts.
type notary struct {
	*carrier
	coord patient
	fate  func(n int, r record.Record) fate // of the n-th move, from 1

	mu    sync.Mutex
	moves int
	wg    sync.WaitGroup // of those that are decided late
}

func (n *notary) Move(ctx context.Context, r record.Record, name string, req group.Request) (record.TopicPartition, record.Offset, error) {
	n.mu.Lock()
	n.moves++
	id := n.moves
	n.mu.Unlock()
	var f fate
	if n.fate != nil {
		f = n.fate(id, r)
	}
	nowhere := record.TopicPartition{}
	if f.hold > 0 {
		if err := pause(ctx, f.hold); err != nil {
			return nowhere, record.NoOffset, err
		}
	}
	if f.refuse != nil {
		return nowhere, record.NoOffset, f.refuse
	}
	req.Producer = record.ProducerID(id)
	if _, err := n.coord.Group(ctx, name, req); err != nil {
		return nowhere, record.NoOffset, err
	}
	decide := func() (tp record.TopicPartition, at record.Offset) {
		if !f.abort {
			var err error
			if tp, at, err = n.Send(context.Background(), r); err != nil {
				panic(err)
			}
		}
		end := group.Request{Op: group.OpSettle, Producer: req.Producer, Epoch: 1, Settle: !f.abort, Coordinator: 1}
		if _, err := n.coord.Group(context.Background(), name, end); err != nil {
			panic(err)
		}
		return tp, at
	}
	if f.late > 0 {
		n.wg.Go(func() {
			time.Sleep(f.late) // virtual
			decide()
		})
		return nowhere, record.NoOffset, &record.OutcomeUnknownError{Err: record.ErrUnreachable}
	}
	tp, at := decide()
	return tp, at, nil
}

// Alone is not what these tests are about.
func (n *notary) Alone(context.Context, string) (func(context.Context, ...record.Record) error, func(), error) {
	return nil, nil, record.ErrInvalid
}

// patient is a coordinator as a cluster shows it: who asks waits for a transaction
// that is in the way.
type patient struct{ built }

func (p patient) Group(ctx context.Context, name string, req group.Request) (group.Response, error) {
	for {
		resp, err := p.built.Group(ctx, name, req)
		if !errors.Is(err, record.ErrPending) {
			return resp, err
		}
		if pause(ctx, 10*time.Millisecond) != nil {
			return resp, fmt.Errorf("%w; last try: %w", ctx.Err(), err)
		}
	}
}

// office is a world with a notary.
type office struct {
	*world
	*notary
}

func newOffice(t *testing.T, partitions, stages int) *office {
	w, c := newRetryWorld(t, partitions, stages)
	n := &notary{carrier: c, coord: patient{newBuilt(t, w.memory)}}
	t.Cleanup(n.wg.Wait)
	return &office{w, n}
}

func (o *office) hire(cfg Config, handle func(m *mortal, r record.Record) error) *mortal {
	o.Helper()
	cfg.Mover = o.notary
	if !cfg.Retry.active() {
		cfg.Retry.DeadLetters = true
	}
	return o.liveAt(o.coord, cfg, handle)
}

// at returns what is committed of the first partition; NoOffset for nothing.
func (o *office) at() record.Offset {
	o.Helper()
	resp, err := o.coord.Group(o.Context(), "billing", group.Request{Op: group.OpCommitted, Partitions: []record.TopicPartition{orders(0)}})
	require.NoError(o, err)
	return resp.Offsets[0].Offset
}

// keyedOrders are n records with keys of their own: "0", "1" ...
func (o *office) keyedOrders(n int) {
	for i := range n {
		o.partition(0).keyedRecord(o.T, fmt.Sprint("k", i), fmt.Sprint(i))
	}
}

// failing is a handler that takes a while for some values and fails for others.
func failing(d *diary, takes map[string]time.Duration, fails ...string) func(*mortal, record.Record) error {
	return func(_ *mortal, r record.Record) error {
		d.note(r)
		v := string(r.Value)
		time.Sleep(takes[v])
		for _, f := range fails {
			if f == v {
				return errBusy
			}
		}
		return nil
	}
}

func TestAMoveWaitsForTheRecordsInFrontOfItAndHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, 1, 0)
		o.keyedOrders(20)
		d := newDiary()
		m := o.hire(Config{Workers: 8}, failing(d, map[string]time.Duration{"0": time.Minute}, "1", "2", "5", "19"))
		time.Sleep(30 * time.Second)
		require.Len(t, d.noted(), 20, "the others were handled")
		require.Empty(t, letters(t, o.carrier))
		require.Equal(t, record.NoOffset, o.at(), "a commit behind 1 would lose 0")
		time.Sleep(31 * time.Second)
		require.Equal(t, []string{"1: busy", "2: busy", "5: busy", "19: busy"}, letters(t, o.carrier))
		require.Equal(t, record.Offset(20), o.at())
		require.Len(t, d.noted(), 20, "no handler saw a record again")
		o.close(m.Group)
	})
}

func TestASeekLeavesAMoveThatWaitsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, 1, 0)
		o.keyedOrders(10)
		d := newDiary()
		m := o.hire(Config{Workers: 4}, failing(d, map[string]time.Duration{"0": time.Minute}, "1", "7"))
		time.Sleep(time.Second)
		require.NoError(t, m.Seek(t.Context(), orders(0), 5))
		time.Sleep(2 * time.Minute)
		require.Equal(t, []string{"7: busy"}, letters(t, o.carrier))
		require.Equal(t, record.Offset(10), o.at())
		require.NoError(t, m.Seek(t.Context(), orders(0), 1))
		time.Sleep(2 * time.Minute)
		require.Equal(t, []string{"7: busy", "1: busy", "7: busy"}, letters(t, o.carrier))
		require.Equal(t, record.Offset(10), o.at())
		o.close(m.Group)
	})
}

func TestASeekIsNotUndoneByAMoveOfUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, 1, 0)
		o.keyedOrders(10)
		o.fate = func(n int, _ record.Record) fate { return fate{late: 10 * time.Second} }
		d := newDiary()
		m := o.hire(Config{}, failing(d, nil, "7"))
		time.Sleep(time.Second)
		require.NoError(t, m.Seek(t.Context(), orders(0), 2))
		require.Equal(t, record.Offset(2), o.at())
		require.Equal(t, []string{"7: busy"}, letters(t, o.carrier))
		time.Sleep(time.Minute)
		require.Equal(t, []string{"7: busy", "7: busy"}, letters(t, o.carrier), "it was told to go back")
		require.Equal(t, record.Offset(10), o.at())
		o.close(m.Group)
	})
}

func TestASeekWaitsForAMoveThatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, 1, 0)
		o.keyedOrders(10)
		o.fate = func(int, record.Record) fate { return fate{hold: 5 * time.Second} }
		m := o.hire(Config{}, failing(newDiary(), nil, "7"))
		time.Sleep(time.Second)
		require.NoError(t, m.Seek(t.Context(), orders(0), 2))
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"7: busy"}, letters(t, o.carrier))
		require.Equal(t, record.Offset(7), o.at(), "7 is being moved once more")
		time.Sleep(time.Minute)
		require.Equal(t, []string{"7: busy", "7: busy"}, letters(t, o.carrier))
		require.Equal(t, record.Offset(10), o.at())
		o.close(m.Group)
	})
}

func TestAMoveThatTakesLongHoldsUpNoOtherPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, 2, 0)
		for p := range 2 {
			for i := range 5 {
				o.partition(p).keyedRecord(t, fmt.Sprint("k", i), fmt.Sprintf("%d:%d", p, i))
			}
		}
		o.fate = func(_ int, r record.Record) fate {
			if string(r.Value) == "0:2" {
				return fate{hold: time.Minute}
			}
			return fate{}
		}
		m := o.hire(Config{Workers: 2}, failing(newDiary(), nil, "0:2", "1:3"))
		time.Sleep(30 * time.Second)
		require.Equal(t, []string{"1:3: busy"}, letters(t, o.carrier))
		committed, err := m.Committed(t.Context(), []record.TopicPartition{orders(0), orders(1)})
		require.NoError(t, err)
		require.Equal(t, map[record.TopicPartition]record.Offset{orders(0): 2, orders(1): 5}, committed)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"1:3: busy", "0:2: busy"}, letters(t, o.carrier))
		require.Equal(t, record.Offset(5), o.at())
		o.close(m.Group)
	})
}

func TestAMoveNeedsNoOtherCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, 1, 0)
		o.keyedOrders(10)
		commits := 0
		m := o.liveAt(counting{o.coord, &commits}, Config{Mover: o.notary, Retry: RetryPolicy{DeadLetters: true}}, func(*mortal, record.Record) error { return errBusy })
		settle()
		require.Equal(t, record.Offset(10), o.at())
		o.close(m.Group)
		require.Zero(t, commits)
	})
}

func TestAPausedPartitionMovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, 1, 0)
		o.keyedOrders(10)
		d := newDiary()
		m := o.hire(Config{Workers: 4}, failing(d, map[string]time.Duration{"0": time.Minute}, "1"))
		time.Sleep(time.Second)
		m.Pause(orders(0))
		time.Sleep(2 * time.Minute)
		require.Empty(t, letters(t, o.carrier))
		require.Equal(t, record.Offset(1), o.at())
		m.Resume(orders(0))
		settle()
		require.Equal(t, []string{"1: busy"}, letters(t, o.carrier))
		require.Equal(t, record.Offset(10), o.at())
		require.Len(t, d.noted(), 10)
		o.close(m.Group)
	})
}

func TestAMoveOfUnknownOutcomeIsDoneOnce(t *testing.T) {
	for _, abort := range []bool{false, true} {
		for _, workers := range []int{1, 4} {
			t.Run(fmt.Sprintf("aborted %v, %d workers", abort, workers), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					o := newOffice(t, 1, 0)
					o.keyedOrders(10)
					o.fate = func(n int, _ record.Record) fate {
						if n == 2 {
							return fate{late: 20 * time.Second, abort: abort}
						}
						return fate{}
					}
					d := newDiary()
					m := o.hire(Config{Workers: workers}, failing(d, nil, "2", "4", "9"))
					time.Sleep(time.Minute)
					require.Equal(t, []string{"2: busy", "4: busy", "9: busy"}, letters(t, o.carrier))
					require.Equal(t, record.Offset(10), o.at())
					require.Len(t, d.noted(), 10, "the handler need not see it again")
					o.close(m.Group)
				})
			})
		}
	}
}

// Run ends before it is known what became of a move: the next Run finds out first.
func TestTheNextRunAsksWhatBecameOfAMove(t *testing.T) {
	for _, abort := range []bool{false, true} {
		t.Run(fmt.Sprint("aborted ", abort), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOffice(t, 1, 0)
				o.keyedOrders(10)
				o.fate = func(n int, _ record.Record) fate {
					if n == 1 {
						return fate{late: 30 * time.Second, abort: abort}
					}
					return fate{}
				}
				g, err := Join(t.Context(), o.world.memory, o.coord, "billing", []string{"orders"}, Config{Mover: o.notary, Retry: RetryPolicy{DeadLetters: true}})
				require.NoError(t, err)
				d := newDiary()
				handle := failing(d, nil, "2")
				run := func(lasts time.Duration) {
					ctx, cancel := context.WithTimeout(t.Context(), lasts)
					defer cancel()
					begun := time.Now()
					err := g.Run(ctx, func(_ context.Context, r record.Record) error { return handle(nil, r) })
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.LessOrEqual(t, time.Since(begun), lasts+11*time.Second, "a session timeout at the most")
				}
				run(time.Second)
				run(time.Second) // not known yet
				require.Len(t, d.noted(), 3)
				require.Empty(t, letters(t, o.carrier))
				run(time.Minute)
				require.Equal(t, []string{"2: busy"}, letters(t, o.carrier))
				require.Equal(t, record.Offset(10), o.at())
				again := 0
				if abort {
					again = 1
				}
				require.Len(t, d.noted(), 10+again)
				o.close(g)
			})
		})
	}
}

func TestAMemberThatLostItsPartitionMovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, 1, 0)
		o.keyedOrders(10)
		var m *mortal
		o.fate = func(n int, _ record.Record) fate {
			if n == 1 { // its session has ended, and nobody has told it
				_, err := o.coord.Group(t.Context(), "billing", group.Request{Op: group.OpLeave, Member: m.Member()})
				require.NoError(t, err)
			}
			return fate{}
		}
		d := newDiary()
		ready := make(chan struct{})
		m = o.hire(Config{}, func(m *mortal, r record.Record) error {
			<-ready
			return failing(d, nil, "2")(m, r)
		})
		close(ready)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"2: busy"}, letters(t, o.carrier))
		require.Equal(t, record.Offset(10), o.at())
		require.Empty(t, m.ended, "it has joined again and goes on")
		o.close(m.Group)
	})
}

func TestARecordWhoseMoveIsUnknownIsFollowedByItsKey(t *testing.T) {
	for _, abort := range []bool{false, true} {
		t.Run(fmt.Sprint("aborted ", abort), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOffice(t, 1, 1)
				p := o.partition(0)
				p.keyedRecord(t, "a", "a1")
				p.keyedRecord(t, "a", "a2")
				o.fate = func(n int, _ record.Record) fate {
					if n == 1 {
						return fate{late: 20 * time.Second, abort: abort}
					}
					return fate{}
				}
				d := newDiary()
				fails := 1
				m := o.hire(Config{Retry: RetryPolicy{Delays: []time.Duration{time.Minute}, KeyOrder: true}}, func(_ *mortal, r record.Record) error {
					d.note(r)
					if string(r.Value) == "a1" && fails > 0 {
						fails--
						return errBusy
					}
					return nil
				})
				time.Sleep(time.Hour)
				require.Len(t, d.noted(), 3)
				for i, v := range []string{"a1", "a1", "a2"} {
					require.Contains(t, d.noted()[i], v)
				}
				require.Empty(t, letters(t, o.carrier))
				o.close(m.Group)
			})
		})
	}
}

// ajar is topics in which transactions are open in the retry topic: readers of what is
// committed see nothing of it yet.
type ajar struct {
	memory
	until time.Time
}

func (a ajar) open(tp record.TopicPartition, iso record.Isolation) bool {
	return tp.Topic == stageTopic("billing", 1) && iso == record.ReadCommitted && time.Now().Before(a.until)
}

func (a ajar) Offsets(ctx context.Context, tp record.TopicPartition, iso record.Isolation) (start, end record.Offset, err error) {
	start, end, err = a.memory.Offsets(ctx, tp, iso)
	if a.open(tp, iso) {
		end = start
	}
	return start, end, err
}

func (a ajar) Fetch(ctx context.Context, tp record.TopicPartition, from record.Offset, maxBytes int, iso record.Isolation) (record.Fetched, error) {
	for a.open(tp, iso) {
		if err := pause(ctx, time.Second); err != nil {
			return record.Fetched{}, err
		}
	}
	return a.memory.Fetch(ctx, tp, from, maxBytes, iso)
}

// The group's coordinator may know of a commit before the partition does that the
// record was moved to.
func TestARecordThatIsMovedAndNotVisibleYetIsFollowedByItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, 1, 1)
		o.partition(0).keyedRecord(t, "a", "a1")
		d := newDiary()
		cfg := Config{Mover: o.notary, Retry: RetryPolicy{Delays: []time.Duration{5 * time.Second}, KeyOrder: true}}
		first := o.hire(cfg, func(_ *mortal, r record.Record) error { d.note(r); return errBusy })
		settle()
		o.close(first.Group)
		o.partition(0).keyedRecord(t, "a", "a2")
		g, err := Join(t.Context(), ajar{o.world.memory, time.Now().Add(30 * time.Second)}, o.coord, "billing", []string{"orders"}, cfg)
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() {
			ended <- g.Run(t.Context(), func(_ context.Context, r record.Record) error { d.note(r); return nil })
		}()
		time.Sleep(time.Hour)
		o.close(g)
		require.ErrorIs(t, <-ended, record.ErrClosed)
		require.Len(t, d.noted(), 3)
		require.Contains(t, d.noted()[1], "a1")
		require.Contains(t, d.noted()[2], "a2")
	})
}

func TestAMoveThatIsAbortedIsNotHandledByWhoReadsUncommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, 1, 1)
		o.partition(0).keyedRecord(t, "a", "a1")
		src := ajar{o.world.memory, time.Now().Add(time.Minute)}
		g, err := Join(t.Context(), src, o.coord, "billing", []string{"orders"}, Config{
			Mover: o.notary, Retry: RetryPolicy{Delays: []time.Duration{time.Second}}, Isolation: record.ReadUncommitted,
		})
		require.NoError(t, err)
		d := newDiary()
		ended := make(chan error, 1)
		go func() {
			ended <- g.Run(t.Context(), func(_ context.Context, r record.Record) error {
				d.note(r)
				if len(d.noted()) == 1 {
					return errBusy
				}
				return nil
			})
		}()
		time.Sleep(50 * time.Second)
		require.Len(t, d.noted(), 1, "the retry topic has no committed record yet")
		time.Sleep(time.Minute)
		require.Len(t, d.noted(), 2)
		o.close(g)
		require.ErrorIs(t, <-ended, record.ErrClosed)
	})
}

func TestCloseWaitsForAMoveThatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, 1, 0)
		o.keyedOrders(10)
		o.fate = func(int, record.Record) fate { return fate{hold: 5 * time.Second} }
		m := o.hire(Config{}, failing(newDiary(), nil, "2"))
		time.Sleep(time.Second)
		o.close(m.Group)
		require.ErrorIs(t, <-m.ended, record.ErrClosed)
		require.Equal(t, []string{"2: busy"}, letters(t, o.carrier))
		require.Equal(t, record.Offset(3), o.at())
	})
}

func TestCloseWaitsNoLongerThanItMay(t *testing.T) {
	for name, f := range map[string]fate{
		"under way":       {hold: time.Hour},
		"tried again":     {refuse: record.ErrUnreachable},
		"not known":       {late: 90 * time.Second},
		"partition moved": {refuse: &record.FencedError{What: "member"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOffice(t, 1, 0)
				o.keyedOrders(10)
				o.fate = func(int, record.Record) fate { return f }
				m := o.hire(Config{}, failing(newDiary(), nil, "2"))
				time.Sleep(time.Second)
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				begun := time.Now()
				_ = m.Close(ctx)
				require.LessOrEqual(t, time.Since(begun), 3*time.Second)
				require.Error(t, <-m.ended)
				require.LessOrEqual(t, time.Since(begun), 4*time.Second, "Run ends with the membership")
				if f.late == 0 {
					require.Equal(t, record.Offset(2), o.at())
				}
			})
		})
	}
}

func TestACoordinatorThatStandsStillEndsTheRunInTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		fate fate
		want error
	}{
		"no answer":          {fate{hold: time.Hour}, context.DeadlineExceeded},
		"not reached":        {fate{refuse: record.ErrUnreachable}, record.ErrUnreachable},
		"fenced by mistake":  {fate{refuse: &record.FencedError{What: "member"}}, record.ErrFenced},
		"outcome never told": {fate{late: time.Hour}, record.ErrPending},
		"always aborted":     {fate{late: time.Second, abort: true}, record.ErrOutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOffice(t, 1, 0)
				o.keyedOrders(10)
				o.fate = func(int, record.Record) fate { return c.fate }
				begun := time.Now()
				m := o.hire(Config{}, failing(newDiary(), nil, "2"))
				err := <-m.ended
				require.ErrorIs(t, err, c.want)
				require.ErrorContains(t, err, "offset 2 of orders/0")
				require.LessOrEqual(t, time.Since(begun), 2*moveTimeout)
				require.GreaterOrEqual(t, time.Since(begun), moveTimeout)
				o.wg.Wait()
				o.bury(m)
			})
		})
	}
}

func TestOnlyOffsetsBehindTheHandlerAreCommittedWithTheMove(t *testing.T) {
	for moment, atomic := range map[CommitMoment]int{AfterHandler: 1, EachRecord: 1, OnTimer: 1, OnReceipt: 0, ByHand: 0} {
		t.Run(fmt.Sprint(moment), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newOffice(t, 1, 0)
				o.keyedOrders(10)
				m := o.hire(Config{Commit: moment, CommitInterval: time.Hour}, failing(newDiary(), nil, "2"))
				settle()
				require.Equal(t, []string{"2: busy"}, letters(t, o.carrier))
				require.Equal(t, atomic, o.moves)
				want := map[CommitMoment]record.Offset{AfterHandler: 10, EachRecord: 10, OnTimer: 3, OnReceipt: 10, ByHand: record.NoOffset}[moment]
				require.Equal(t, want, o.at())
				o.close(m.Group)
			})
		})
	}
}
