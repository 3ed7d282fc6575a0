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

func TestAHandlerThatHangsGivesItsPartitionsUpWhileItsProcessLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.fill(t, "orders", 10, 10)
		hang := make(chan struct{})
		var mu sync.Mutex
		seen := map[string]string{}
		handle := func(who string) func(*mortal, record.Record) error {
			return func(_ *mortal, r record.Record) error {
				if who == "a" && string(r.Value) == "0:3" {
					<-hang
				}
				mu.Lock()
				defer mu.Unlock()
				seen[string(r.Value)] += who
				return nil
			}
		}
		a := w.live(Config{ClientID: "a", ProgressTimeout: time.Minute}, handle("a"))
		settle()
		id := a.Member()
		b := w.live(Config{ClientID: "b", ProgressTimeout: time.Minute}, handle("b"))
		time.Sleep(50 * time.Second)
		require.Equal(t, record.Offset(3), w.committed(orders(0)), "not yet, and its session is alive")
		require.Equal(t, id, a.Member())
		time.Sleep(15 * time.Second)
		require.Equal(t, record.Offset(10), w.committed(orders(0)))
		require.Equal(t, []record.TopicPartition{orders(0), orders(1)}, b.Owned())
		require.Empty(t, a.Owned())

		close(hang)
		settle()
		require.NotEqual(t, id, a.Member())
		require.Equal(t, []record.TopicPartition{orders(0)}, a.Owned(), "it works again")
		w.close(a.Group)
		w.close(b.Group)
		require.Equal(t, "ba", seen["0:3"])
		require.Equal(t, "a", seen["0:2"])
		require.Equal(t, "b", seen["0:4"], "what was behind is not handled by who has lost it")
	})
}

func TestAHandlerThatGoesFromRecordToRecordDoesNotHang(t *testing.T) {
	for _, workers := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1)
			w.fill(t, "orders", 10, 10)
			m := w.live(Config{Workers: workers, ProgressTimeout: time.Minute}, func(*mortal, record.Record) error {
				time.Sleep(50 * time.Second)
				return nil
			})
			settle()
			id := m.Member()
			time.Sleep(10 * time.Minute)
			require.Equal(t, record.Offset(10), w.committed(orders(0)))
			require.Equal(t, id, m.Member(), "it has not stood down")
			w.close(m.Group)
		})
	}
}

func TestOneOfSeveralWorkersHangsWhateverTheOthersFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.fill(t, "orders", 10, 10)
		hang := make(chan struct{})
		m := w.live(Config{Workers: 10, ProgressTimeout: time.Minute}, func(_ *mortal, r record.Record) error {
			if r.Offset < 9 {
				time.Sleep(time.Duration(r.Offset) * 6 * time.Second)
			} else {
				<-hang
			}
			return nil
		})
		time.Sleep(55 * time.Second)
		require.Equal(t, record.Offset(9), w.committed(orders(0)))
		require.Equal(t, []record.TopicPartition{orders(0)}, m.Owned(), "not yet")
		time.Sleep(10 * time.Second)
		require.Empty(t, m.Owned())
		close(hang)
		settle()
		w.close(m.Group)
	})
}

func TestAMemberThatDoesNotPollGivesItsPartitionsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.fill(t, "orders", 10, 10)
		a := w.join("a", Config{ProgressTimeout: time.Minute})
		held := w.poll(a)
		b := w.join("b", Config{ProgressTimeout: time.Minute})
		time.Sleep(59 * time.Second)
		require.Empty(t, b.Owned())
		time.Sleep(2 * time.Second)
		require.Equal(t, want(0, 0, 10), values(w.poll(b)))
		require.ErrorIs(t, a.Commit(t.Context(), held), record.ErrFenced)
		time.Sleep(10 * time.Second)
		w.coordinator.mu.Lock()
		require.Len(t, w.coordinator.members, 1)
		w.coordinator.mu.Unlock()
		w.close(b)
		b2, err := a.Poll(t.Context()) // it is back with the call
		require.NoError(t, err)
		require.Equal(t, want(0, 0, 10), values(b2))
		w.close(a)
	})
}

func TestAMemberWithNothingToDoNeedNotPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		a := w.join("a", Config{ProgressTimeout: time.Minute})
		id := a.Member()
		time.Sleep(time.Hour)
		require.Equal(t, id, a.Member())
		w.close(a)
	})
}

// static joins over the coordinator that ships.
func static(t *testing.T, m memory, coord Coordinator, instance string) *Group {
	g, err := Join(t.Context(), m, coord, "billing", []string{"orders"}, Config{InstanceID: instance})
	require.NoError(t, err)
	return g
}

func TestAStaticMemberThatReturnsInTimeFindsItsPartitionsAndNobodyElseMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory("orders", 4)
		coord := newBuilt(t, m)
		a, b := static(t, m, coord, "a"), static(t, m, coord, "b")
		settle()
		had, other := a.Owned(), b.Owned()
		require.Len(t, had, 2)
		fetches := m["orders"][other[0].Partition].fetches
		require.NoError(t, a.Close(t.Context()))
		time.Sleep(9 * time.Second) // a restart
		require.Equal(t, other, b.Owned())
		a = static(t, m, coord, "a")
		settle()
		require.Equal(t, had, a.Owned())
		require.Equal(t, other, b.Owned())
		require.Equal(t, fetches, m["orders"][other[0].Partition].fetches, "the other one was interrupted")

		require.NoError(t, a.Close(t.Context()))
		time.Sleep(11 * time.Second)
		require.Len(t, b.Owned(), 4, "it has stayed away too long")
		require.NoError(t, b.Close(t.Context()))
	})
}

func TestOfTwoClientsWithOneInstanceTheLastOneStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory("orders", 1)
		coord := newBuilt(t, m)
		first := static(t, m, coord, "a")
		settle()
		second := static(t, m, coord, "a")
		_, err := first.Poll(t.Context())
		require.ErrorIs(t, err, record.ErrFenced)
		time.Sleep(time.Minute)
		require.Len(t, second.Owned(), 1)
		require.NoError(t, first.Close(t.Context()))
		require.NoError(t, second.Close(t.Context()))
	})
}

// lossy loses answers: what was asked was done.
type lossy struct {
	Coordinator
	mu   sync.Mutex
	lose map[group.Op]int
}

func (l *lossy) Group(ctx context.Context, name string, req group.Request) (group.Response, error) {
	resp, err := l.Coordinator.Group(ctx, name, req)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lose[req.Op] > 0 {
		l.lose[req.Op]--
		return group.Response{}, record.ErrOutcomeUnknown
	}
	return resp, err
}

func TestClientsThatLoseAnswersAndSessionsAreNoMoreMembersThanClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients = 3
		m := newMemory("orders", 6)
		coord := newBuilt(t, m)
		var members []*Group
		var links []*lossy
		for i := range clients {
			l := &lossy{Coordinator: coord, lose: map[group.Op]int{group.OpJoin: 2}}
			g, err := Join(t.Context(), m, l, "billing", []string{"orders"}, Config{ClientID: fmt.Sprint(i)})
			require.NoError(t, err)
			members, links = append(members, g), append(links, l)
		}
		count := func() int {
			resp, err := coord.Group(t.Context(), "billing", group.Request{Op: group.OpDescribe})
			require.NoError(t, err)
			return len(resp.Members)
		}
		require.Equal(t, clients, count())
		for range 3 {
			for _, l := range links { // it believes it was given up; the coordinator has heard it all the time
				l.mu.Lock()
				l.lose[group.OpHeartbeat], l.lose[group.OpJoin] = 52, 1
				l.mu.Unlock()
			}
			for range 30 {
				time.Sleep(time.Second)
				require.LessOrEqual(t, count(), clients)
			}
		}
		owned := 0
		for _, g := range members {
			owned += len(g.Owned())
			require.NoError(t, g.Close(t.Context()))
		}
		require.Equal(t, 6, owned)
		require.Zero(t, count())
	})
}

func TestASurplusMemberStandsByAndTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory("orders", 1)
		m.fill(t, "orders", 3, 3)
		coord := newBuilt(t, m)
		a, err := Join(t.Context(), m, coord, "billing", []string{"orders"}, Config{})
		require.NoError(t, err)
		settle()
		b, err := Join(t.Context(), m, coord, "billing", []string{"orders"}, Config{})
		require.NoError(t, err)
		ran := make(chan error, 1)
		stop := errors.New("stop")
		go func() {
			ran <- b.Run(t.Context(), func(_ context.Context, r record.Record) error {
				if r.Offset == 2 {
					return stop
				}
				return nil
			})
		}()
		time.Sleep(time.Hour)
		require.Empty(t, b.Owned())
		require.NoError(t, a.Close(t.Context()))
		require.ErrorIs(t, <-ran, stop)
		require.NoError(t, b.Close(t.Context()))
	})
}
