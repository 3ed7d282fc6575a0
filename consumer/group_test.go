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

// world is a topic "orders" and the coordinator of a group that reads it.
// Tests with it run in a bubble, which also finds goroutines left behind.
type world struct {
	*testing.T
	memory
	*coordinator
}

func newWorld(t *testing.T, partitions int) *world {
	m := newMemory("orders", partitions)
	return &world{T: t, memory: m, coordinator: newCoordinator(m)}
}

func (w *world) partition(p int) *partition { return w.memory["orders"][p] }

func orders(p int) record.TopicPartition {
	return record.TopicPartition{Topic: "orders", Partition: int32(p)}
}

// join makes a member and waits until it has what it is given.
func (w *world) join(client string, cfg Config) *Group {
	w.Helper()
	cfg.ClientID = client
	g, err := Join(w.Context(), w.memory, w.coordinator, "billing", []string{"orders"}, cfg)
	require.NoError(w, err)
	w.Cleanup(func() { _ = g.Close(context.Background()) }) // a test that fails leaves it open
	synctest.Wait()
	return g
}

func (w *world) close(g *Group) {
	w.Helper()
	require.NoError(w, g.Close(context.Background()))
}

// poll returns what Poll has ready, and fails when it would wait.
func (w *world) poll(g *Group) Batch {
	w.Helper()
	synctest.Wait()
	ctx, cancel := context.WithTimeout(w.Context(), time.Nanosecond)
	defer cancel()
	b, err := g.Poll(ctx)
	require.NoError(w, err)
	return b
}

// idle requires that Poll has nothing for d.
func (w *world) idle(g *Group, d time.Duration) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), d)
	defer cancel()
	b, err := g.Poll(ctx)
	require.ErrorIs(w, err, context.DeadlineExceeded, "got %v", values(b))
}

// settle lets every member send a few heartbeats.
func settle() {
	time.Sleep(time.Second) // virtual
	synctest.Wait()
}

func values(b Batch) []string {
	var v []string
	for _, r := range b.Records {
		v = append(v, string(r.Value))
	}
	return v
}

func TestMemberReadsAndTheNextOneResumesAtTheCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.fill(t, "orders", 30, 10)
		g := w.join("a", Config{MaxPollBytes: 1})
		require.Equal(t, []record.TopicPartition{orders(0)}, g.Owned())
		require.Equal(t, want(0, 0, 10), values(w.poll(g)))
		b := w.poll(g)
		require.Equal(t, want(0, 10, 20), values(b))
		require.Equal(t, orders(0), b.TopicPartition())
		require.NoError(t, g.Commit(t.Context(), b))
		require.Equal(t, want(0, 20, 30), values(w.poll(g))) // not committed
		w.close(g)

		g = w.join("a", Config{})
		committed, err := g.Committed(t.Context(), []record.TopicPartition{orders(0)})
		require.NoError(t, err)
		require.Equal(t, map[record.TopicPartition]record.Offset{orders(0): 20}, committed)
		require.Equal(t, want(0, 20, 30), values(w.poll(g)))
		w.idle(g, time.Minute)
		w.partition(0).fill(t, 1, 1)
		require.Equal(t, want(0, 30, 31), values(w.poll(g)))
		w.close(g)
	})
}

func TestPartitionsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.fill(t, "orders", 4, 1)
		g := w.join("a", Config{MaxPollBytes: 1})
		var turns []int32
		for range 12 {
			turns = append(turns, w.poll(g).Partition)
		}
		require.Equal(t, []int32{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}, turns)
		w.close(g)
	})
}

func TestFetchesRunAheadButAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.fill(t, "orders", 100, 1)
		g := w.join("a", Config{MaxPollBytes: 1})
		settle()
		require.Equal(t, aheadBatches+1, w.partition(0).fetches)
		w.poll(g)
		settle()
		require.Equal(t, aheadBatches+2, w.partition(0).fetches)
		w.close(g)
	})
}

func TestGroupBeginsAtTheEndIfAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.fill(t, "orders", 5, 5)
		g := w.join("a", Config{StartAt: AtEnd})
		w.close(g)
		w.partition(0).fill(t, 1, 1)
		g = w.join("a", Config{StartAt: AtEnd}) // the group's first end counts
		require.Equal(t, want(0, 5, 6), values(w.poll(g)))
		w.close(g)
	})
}

func TestControlBatchesAreNotHandedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		marker := record.BatchOptions{Control: true, Transactional: true}
		w.partition(0).append(batch(t, marker, "marker"))
		w.partition(0).fill(t, 1, 1)
		w.partition(0).append(batch(t, marker, "marker"))
		g := w.join("a", Config{})
		b := w.poll(g)
		require.Equal(t, []string{"0:1"}, values(b))
		require.NoError(t, g.Commit(t.Context(), b))
		require.Equal(t, record.Offset(3), w.committed(orders(0)))
		w.idle(g, time.Second)
		w.close(g)
	})
}

func TestOnlyThePartitionThatMovesIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		var calls []string
		note := func(what string) func(context.Context, []record.TopicPartition) {
			return func(_ context.Context, tps []record.TopicPartition) {
				calls = append(calls, fmt.Sprint(what, tps))
			}
		}
		a := w.join("a", Config{OnAssigned: note("a+"), OnRevoked: note("a-")})
		b := w.join("b", Config{OnAssigned: note("b+"), OnRevoked: note("b-")})
		settle()
		require.Equal(t, []record.TopicPartition{orders(0)}, a.Owned())
		require.Equal(t, []record.TopicPartition{orders(1)}, b.Owned())
		require.Equal(t, a.Generation(), b.Generation())
		require.Equal(t, []string{"a+[orders/0 orders/1]", "a-[orders/1]", "b+[orders/1]"}, calls)
		require.Equal(t, 1, w.partition(0).fetches, "the feed of the partition that stayed was restarted")
		w.close(b)
		settle()
		require.Equal(t, []record.TopicPartition{orders(0), orders(1)}, a.Owned())
		w.close(a)
		require.Equal(t, []string{"b-[orders/1]", "a+[orders/1]", "a-[orders/0 orders/1]"}, calls[3:])
	})
}

func TestPartitionMovesOnlyAfterItsLastBatchIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.partition(1).fill(t, 20, 10)
		a := w.join("a", Config{MaxPollBytes: 1})
		held := w.poll(a)
		require.Equal(t, want(1, 0, 10), values(held))
		b := w.join("b", Config{})
		w.idle(b, time.Minute) // however long the handler takes, it keeps its partition
		require.Empty(t, b.Owned())
		require.NotContains(t, a.Owned(), orders(1))

		require.NoError(t, a.Commit(t.Context(), held))
		settle()
		require.Equal(t, []record.TopicPartition{orders(1)}, b.Owned())
		require.Equal(t, want(1, 10, 20), values(w.poll(b)))
		w.idle(a, time.Second)
		w.close(a)
		w.close(b)
	})
}

func TestPartitionMovesWhenPollIsCalledWithoutACommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.partition(1).fill(t, 20, 10)
		a := w.join("a", Config{MaxPollBytes: 1})
		held := w.poll(a)
		b := w.join("b", Config{MaxPollBytes: 1})
		settle()
		w.idle(a, time.Second)
		require.Equal(t, want(1, 0, 10), values(w.poll(b)), "nothing was committed, so the new owner begins at the start")
		require.ErrorIs(t, a.Commit(t.Context(), held), record.ErrFenced)
		w.close(a)
		w.close(b)
	})
}

func TestCommittingAnEarlierBatchDoesNotLetThePartitionGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.partition(1).fill(t, 20, 10)
		a := w.join("a", Config{MaxPollBytes: 1})
		first := w.poll(a)
		second := w.poll(a)
		b := w.join("b", Config{})
		require.NoError(t, a.Commit(t.Context(), first))
		w.idle(b, time.Second)
		require.NoError(t, a.CommitOffsets(t.Context(), map[record.TopicPartition]record.Offset{orders(1): 15}))
		w.idle(b, time.Second)
		require.NoError(t, a.Commit(t.Context(), second))
		settle()
		require.Equal(t, []record.TopicPartition{orders(1)}, b.Owned())
		w.close(a)
		w.close(b)
	})
}

func TestPartitionThatComesBackBeforeItIsGivenUpGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.partition(1).fill(t, 20, 10)
		a := w.join("a", Config{MaxPollBytes: 1})
		held := w.poll(a)
		b := w.join("b", Config{})
		settle()
		require.NotContains(t, a.Owned(), orders(1))
		w.close(b) // never had it
		settle()
		require.Equal(t, []record.TopicPartition{orders(0), orders(1)}, a.Owned())
		require.NoError(t, a.Commit(t.Context(), held))
		require.Equal(t, want(1, 10, 20), values(w.poll(a)))
		w.close(a)
	})
}

func TestOffsetsCanBeCommittedInOnRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.fill(t, "orders", 10, 10)
		var a *Group
		byHand := func(ctx context.Context, tps []record.TopicPartition) {
			for _, tp := range tps {
				require.NoError(t, a.CommitOffsets(ctx, map[record.TopicPartition]record.Offset{tp: 3}))
			}
		}
		a = w.join("a", Config{OnRevoked: byHand})
		b := w.join("b", Config{})
		settle()
		require.Equal(t, want(1, 3, 10), values(w.poll(b)))
		w.close(b)
		settle()
		w.close(a)
		require.Equal(t, record.Offset(3), w.committed(orders(0)))
	})
}

// A slow callback is the user's affair; the membership must not suffer.
func TestSlowCallbackDoesNotEndTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.fill(t, "orders", 1, 1)
		g := w.join("a", Config{OnAssigned: func(context.Context, []record.TopicPartition) { time.Sleep(time.Hour) }})
		id := g.Member()
		w.idle(g, 59*time.Minute)
		time.Sleep(2 * time.Minute)
		require.Equal(t, want(0, 0, 1), values(w.poll(g)))
		require.Equal(t, id, g.Member())
		w.close(g)
	})
}

func TestMemberThatIsCutOffIsReplacedAndComesBackAsANewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.fill(t, "orders", 10, 10)
		var mu sync.Mutex
		var revoked []record.TopicPartition
		a := w.join("a", Config{OnRevoked: func(_ context.Context, tps []record.TopicPartition) {
			mu.Lock()
			defer mu.Unlock()
			revoked = append(revoked, tps...)
		}})
		b := w.join("b", Config{})
		settle()
		mu.Lock()
		revoked = nil
		mu.Unlock()
		old := a.Member()
		held := w.poll(a)
		require.Equal(t, want(0, 0, 10), values(held))

		healed := make(chan struct{})
		w.setFault(func(ctx context.Context, req group.Request) error {
			if req.Member == b.Member() || req.Op == group.OpCommitted {
				return nil
			}
			select { // a cut link swallows
			case <-ctx.Done():
				return ctx.Err()
			case <-healed:
				return record.ErrUnreachable
			}
		})
		time.Sleep(12 * time.Second)
		synctest.Wait()
		require.Equal(t, []record.TopicPartition{orders(0), orders(1)}, b.Owned())
		require.Empty(t, a.Owned(), "it has heard nothing for longer than the session")
		mu.Lock()
		require.Equal(t, []record.TopicPartition{orders(0)}, revoked)
		mu.Unlock()
		require.ErrorIs(t, a.Commit(t.Context(), held), record.ErrFenced)
		require.Equal(t, want(0, 0, 10), values(w.poll(b)))
		require.Equal(t, want(1, 0, 10), values(w.poll(b)))

		w.setFault(nil)
		close(healed)
		settle()
		require.NotEqual(t, old, a.Member())
		w.idle(b, time.Second) // lets partition 0 go
		require.Equal(t, []record.TopicPartition{orders(0)}, a.Owned())
		require.ErrorIs(t, a.Commit(t.Context(), held), record.ErrFenced, "a batch of the old membership")
		require.Equal(t, want(0, 0, 10), values(w.poll(a)))
		w.close(a)
		w.close(b)
	})
}

func TestFencedMemberJoinsAgainByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.fill(t, "orders", 10, 10)
		g := w.join("a", Config{})
		old := g.Member()
		held := w.poll(g)
		w.coordinator.mu.Lock()
		w.coordinator.remove(old)
		w.coordinator.mu.Unlock()
		require.ErrorIs(t, g.Commit(t.Context(), held), record.ErrFenced)
		settle()
		require.NotEqual(t, old, g.Member())
		require.Equal(t, want(0, 0, 10), values(w.poll(g)))
		w.close(g)
	})
}

func TestCoordinatorThatIsBusyIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.fill(t, "orders", 10, 10)
		asked := map[group.Op]int{}
		var mu sync.Mutex
		w.setFault(func(_ context.Context, req group.Request) error {
			mu.Lock()
			defer mu.Unlock()
			if asked[req.Op]++; asked[req.Op] <= 3 {
				return &record.NotLeaderError{}
			}
			return nil
		})
		g := w.join("a", Config{})
		settle()
		b := w.poll(g)
		require.NoError(t, g.Commit(t.Context(), b))
		require.Equal(t, record.Offset(10), w.committed(orders(0)))
		w.close(g)
		require.GreaterOrEqual(t, asked[group.OpLeave], 4)
	})
}

func TestErrorOfTheCoordinatorThatStaysComesOutOfPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		broken := errors.New("disk on fire")
		g := w.join("a", Config{})
		w.setFault(func(context.Context, group.Request) error { return broken })
		for range 3 {
			_, err := g.Poll(t.Context())
			require.ErrorIs(t, err, broken)
		}
		require.ErrorIs(t, g.Close(t.Context()), broken)
	})
}

func TestErrorOfOnePartitionComesOutOfPollAndTheOthersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		g := w.join("a", Config{})
		broken := errors.New("disk on fire")
		w.partition(0).failNext(broken)
		w.partition(1).fill(t, 1, 1)
		synctest.Wait()
		_, err := g.Poll(t.Context())
		require.ErrorIs(t, err, broken)
		require.ErrorContains(t, err, "orders/0")
		require.Equal(t, want(1, 0, 1), values(w.poll(g)))
		_, err = g.Poll(t.Context())
		require.ErrorIs(t, err, broken)
		w.close(g)
	})
}

func TestFetchErrorThatMayPassIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.partition(0).failNext(record.ErrUnreachable, &record.NotLeaderError{TopicPartition: orders(0)})
		w.fill(t, "orders", 1, 1)
		g := w.join("a", Config{})
		settle()
		require.Equal(t, want(0, 0, 1), values(w.poll(g)))
		w.close(g)
	})
}

func TestPositionBelowTheLogStartsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.fill(t, "orders", 30, 10)
		w.coordinator.offsets[orders(0)] = 5
		w.partition(0).trim(20)
		g := w.join("a", Config{})
		require.Equal(t, want(0, 20, 30), values(w.poll(g)))
		w.close(g)
	})
}

func TestPositionAboveTheLogIsBelievedOnlyAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.fill(t, "orders", 30, 10)
		w.coordinator.offsets[orders(0)] = 100 // not there
		w.coordinator.offsets[orders(1)] = 20
		w.partition(1).failNext(&record.OffsetRangeError{TopicPartition: orders(1), Offset: 20, Start: 0, End: 10})
		g := w.join("a", Config{})
		settle()
		require.Equal(t, want(1, 20, 30), values(w.poll(g)), "a leader that lags must not make the group repeat everything")
		time.Sleep(10 * time.Second)
		require.Equal(t, want(0, 0, 30), values(w.poll(g)))
		w.close(g)
	})
}

func TestCloseLeavesAtOnceAndOnlyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.fill(t, "orders", 10, 10)
		a := w.join("a", Config{})
		held := w.poll(a)
		b := w.join("b", Config{})
		waiting := make(chan error)
		go func() {
			_, err := a.Poll(t.Context())
			waiting <- err
		}()
		synctest.Wait()
		start := time.Now()
		w.close(a)
		w.close(a)
		require.ErrorIs(t, <-waiting, record.ErrClosed)
		_, err := a.Poll(t.Context())
		require.ErrorIs(t, err, record.ErrClosed)
		require.ErrorIs(t, a.Commit(t.Context(), held), record.ErrClosed)
		bb, err := b.Poll(t.Context())
		require.NoError(t, err)
		require.Equal(t, want(0, 0, 10), values(bb))
		require.Less(t, time.Since(start), time.Second, "the session timeout is 10 s")
		w.close(b)
	})
}

func TestCloseIsBoundedByItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		g := w.join("a", Config{})
		w.setFault(func(ctx context.Context, _ group.Request) error {
			<-ctx.Done()
			return ctx.Err()
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		require.ErrorIs(t, g.Close(ctx), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
	})
}

func TestJoinRefusesWhatMakesNoSense(t *testing.T) {
	w := newWorld(t, 1)
	for name, c := range map[string]struct {
		group  string
		topics []string
		cfg    Config
		want   error
	}{
		"no group name":         {topics: []string{"orders"}, want: record.ErrInvalid},
		"no topics":             {group: "billing", want: record.ErrInvalid},
		"empty topic name":      {group: "billing", topics: []string{"orders", ""}, want: record.ErrInvalid},
		"unknown topic":         {group: "billing", topics: []string{"nobody"}, want: record.ErrUnknownTopic},
		"negative poll bytes":   {group: "billing", topics: []string{"orders"}, cfg: Config{MaxPollBytes: -1}, want: record.ErrInvalid},
		"negative heartbeat":    {group: "billing", topics: []string{"orders"}, cfg: Config{HeartbeatInterval: -1}, want: record.ErrInvalid},
		"session too short":     {group: "billing", topics: []string{"orders"}, cfg: Config{SessionTimeout: time.Second, HeartbeatInterval: time.Second}, want: record.ErrInvalid},
		"unknown start":         {group: "billing", topics: []string{"orders"}, cfg: Config{StartAt: 7}, want: record.ErrInvalid},
		"unknown isolation":     {group: "billing", topics: []string{"orders"}, cfg: Config{Isolation: 7}, want: record.ErrInvalid},
		"unknown assignor":      {group: "billing", topics: []string{"orders"}, cfg: Config{Assignor: "fair"}, want: record.ErrInvalid},
		"negative session time": {group: "billing", topics: []string{"orders"}, cfg: Config{SessionTimeout: -time.Second}, want: record.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := Join(t.Context(), w.memory, w.coordinator, c.group, c.topics, c.cfg)
			require.ErrorIs(t, err, c.want)
			require.Nil(t, g)
		})
	}
	err := Config{MaxPollBytes: -1, StartAt: 7}.Validate()
	require.ErrorContains(t, err, "MaxPollBytes")
	require.ErrorContains(t, err, "StartAt", "all faults are told at once")
}

func TestCommitRefusesWhatMakesNoSense(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		a := w.join("a", Config{})
		require.ErrorIs(t, a.Commit(t.Context(), Batch{}), record.ErrInvalid)
		commit := func(tp record.TopicPartition, o record.Offset) error {
			return a.CommitOffsets(t.Context(), map[record.TopicPartition]record.Offset{tp: o})
		}
		require.ErrorIs(t, commit(orders(0), -1), record.ErrInvalid)
		require.ErrorIs(t, commit(orders(7), 1), record.ErrFenced)
		require.NoError(t, commit(orders(0), 1))
		require.Equal(t, record.Offset(1), w.committed(orders(0)))
		w.close(a)
	})
}

func TestPartitionWithoutAPositionStallsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.fill(t, "orders", 1, 1)
		broken := errors.New("disk on fire")
		g, err := Join(t.Context(), lame{w.memory, broken}, w.coordinator, "billing", []string{"orders"}, Config{})
		require.NoError(t, err)
		settle()
		_, err = g.Poll(t.Context())
		require.ErrorIs(t, err, broken)
		require.Equal(t, want(1, 0, 1), values(w.poll(g)))
		w.close(g)
	})
}

// lame cannot say where partition 0 begins.
type lame struct {
	memory
	err error
}

func (l lame) Offsets(ctx context.Context, tp record.TopicPartition, iso record.Isolation) (start, high record.Offset, err error) {
	if tp.Partition == 0 {
		return 0, 0, l.err
	}
	return l.memory.Offsets(ctx, tp, iso)
}

func TestGivingUpDoesNotWaitForTheNextHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.partition(1).fill(t, 10, 10)
		a := w.join("a", Config{HeartbeatInterval: 4 * time.Second})
		held := w.poll(a)
		b := w.join("b", Config{})
		time.Sleep(5 * time.Second)
		require.NoError(t, a.Commit(t.Context(), held))
		time.Sleep(time.Second)
		require.Equal(t, []record.TopicPartition{orders(1)}, b.Owned())
		w.close(a)
		w.close(b)
	})
}

func TestPartitionThatIsBeingTakenUpIsNotGivenAwayMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		a := w.join("a", Config{OnAssigned: func(context.Context, []record.TopicPartition) { time.Sleep(5 * time.Second) }})
		b := w.join("b", Config{})
		time.Sleep(4 * time.Second)
		require.Empty(t, b.Owned(), "the callback of its owner is still at work")
		time.Sleep(2 * time.Second)
		require.Equal(t, []record.TopicPartition{orders(1)}, b.Owned())
		w.close(a)
		w.close(b)
	})
}
