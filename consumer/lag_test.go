package consumer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/record"
)

// now appends a batch of n records of this moment.
func (p *partition) now(t testing.TB, n int) {
	var b record.Builder
	for range n {
		require.NoError(t, b.Append(&record.Record{Value: []byte("x")}))
	}
	out, err := b.Build(record.BatchOptions{})
	require.NoError(t, err)
	p.append(out)
}

func lagsOf(t *testing.T, m memory, coord Coordinator) map[record.TopicPartition]Lag {
	t.Helper()
	lags, err := Lags(t.Context(), m, coord, "billing")
	require.NoError(t, err)
	all := map[record.TopicPartition]Lag{}
	for _, l := range lags {
		all[l.TopicPartition] = l
	}
	require.Len(t, all, len(lags))
	return all
}

func TestLagIsShownInRecordsAndInTimeWithAndWithoutMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory("orders", 3)
		coord := newBuilt(t, m)
		require.Empty(t, lagsOf(t, m, coord))
		m["orders"][0].now(t, 5)
		time.Sleep(10 * time.Second)
		m["orders"][0].now(t, 5)
		m["orders"][1].now(t, 2)
		g, err := Join(t.Context(), m, coord, "billing", []string{"orders"}, Config{ClientID: "pod-1"})
		require.NoError(t, err)
		settle() // a second
		require.NoError(t, g.CommitOffsets(t.Context(), map[record.TopicPartition]record.Offset{orders(0): 3, orders(1): 2}))
		time.Sleep(time.Second)
		want := map[record.TopicPartition]Lag{
			orders(0): {TopicPartition: orders(0), Committed: 3, End: 10, Records: 7, Age: 12 * time.Second, Idle: time.Second, Member: g.Member(), Client: "pod-1"},
			orders(1): {TopicPartition: orders(1), Committed: 2, End: 2, Member: g.Member(), Client: "pod-1"},
			orders(2): {TopicPartition: orders(2), Committed: record.NoOffset, Member: g.Member(), Client: "pod-1"},
		}
		require.Equal(t, want, lagsOf(t, m, coord))

		require.NoError(t, g.Close(t.Context()))
		m["orders"][1].now(t, 1)
		time.Sleep(time.Hour)
		got := lagsOf(t, m, coord)
		require.Equal(t, Lag{TopicPartition: orders(0), Committed: 3, End: 10, Records: 7, Age: time.Hour + 12*time.Second, Idle: time.Hour + time.Second}, got[orders(0)])
		require.Equal(t, Lag{TopicPartition: orders(1), Committed: 2, End: 3, Records: 1, Age: time.Hour, Idle: time.Hour}, got[orders(1)], "since the record came")
		require.NotContains(t, got, orders(2), "nobody reads it and nothing was committed")
		m["orders"][0].trim(5)
		require.Equal(t, int64(5), lagsOf(t, m, coord)[orders(0)].Records, "what is gone is not to be read")
	})
}

func TestAGroupThatStandsStillIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory("orders", 1)
		coord := newBuilt(t, m)
		m["orders"][0].now(t, 100)
		g, err := Join(t.Context(), m, coord, "billing", []string{"orders"}, Config{ProgressTimeout: time.Hour})
		require.NoError(t, err)
		hang := make(chan struct{})
		ran := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			ran <- g.Run(ctx, func(_ context.Context, r record.Record) error {
				time.Sleep(10 * time.Second)
				if r.Offset == 10 {
					<-hang
				}
				return nil
			})
		}()
		stalled := func(d time.Duration) bool {
			l := lagsOf(t, m, coord)[orders(0)]
			return l.Stalled(d)
		}
		time.Sleep(95 * time.Second)
		require.False(t, stalled(time.Minute), "slow, but it goes on")
		time.Sleep(2 * time.Minute)
		require.True(t, stalled(time.Minute))
		require.False(t, stalled(10*time.Minute))
		close(hang)
		time.Sleep(time.Second)
		require.False(t, stalled(time.Minute))
		cancel()
		<-ran
		require.NoError(t, g.Close(t.Context()))
	})
}

func TestAGroupIsResetToWhereItIsAskedAndOnlyAfterALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory("orders", 2)
		start := time.Now()
		for range 10 { // one record each minute in each partition
			m["orders"][0].now(t, 1)
			m["orders"][1].now(t, 1)
			time.Sleep(time.Minute)
		}
		m["orders"][1].trim(2)
		coord := newBuilt(t, m)
		_, err := coord.Group(t.Context(), "billing", group.Request{Op: group.OpCommit, Offsets: []group.Offset{{TopicPartition: orders(0), Offset: 7}}})
		require.NoError(t, err)
		committed := func() []record.Offset {
			resp, err := coord.Group(t.Context(), "billing", group.Request{Op: group.OpCommitted, Partitions: []record.TopicPartition{orders(0), orders(1)}})
			require.NoError(t, err)
			return []record.Offset{resp.Offsets[0].Offset, resp.Offsets[1].Offset}
		}
		topics := []string{"orders"}
		from := []record.Offset{7, record.NoOffset}
		for _, c := range []struct {
			name string
			to   ResetTo
			want []record.Offset
		}{
			{"start", ToStart(), []record.Offset{0, 2}},
			{"end", ToEnd(), []record.Offset{10, 10}},
			{"offset", ToOffset(5), []record.Offset{5, 5}},
			{"offset below", ToOffset(1), []record.Offset{1, 2}},
			{"offset above", ToOffset(50), []record.Offset{10, 10}},
			{"time", ToTime(start.Add(4 * time.Minute)), []record.Offset{4, 4}},
			{"time before all", ToTime(time.Time{}), []record.Offset{0, 2}},
			{"time after all", ToTime(start.Add(time.Hour)), []record.Offset{10, 10}},
			{"duration", Back(3 * time.Minute), []record.Offset{7, 7}},
		} {
			plan := []OffsetMove{{orders(0), from[0], c.want[0]}, {orders(1), from[1], c.want[1]}}
			got, err := PlanReset(t.Context(), m, coord, "billing", topics, c.to)
			require.NoError(t, err, c.name)
			require.Equal(t, plan, got, c.name)
			require.Equal(t, from, committed(), "%s: a plan does nothing", c.name)
			got, err = Reset(t.Context(), m, coord, "billing", topics, c.to)
			require.NoError(t, err, c.name)
			require.Equal(t, plan, got, c.name)
			require.Equal(t, c.want, committed(), c.name)
			from = c.want
		}
		got, err := Reset(t.Context(), m, coord, "billing", nil, ToStart())
		require.NoError(t, err)
		require.Len(t, got, 2, "all that it has committed")
	})
}

func TestAResetIsRefusedWhileMembersAreActiveAndForWhatMakesNoSense(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory("orders", 1)
		m.fill(t, "orders", 10, 10)
		coord := newBuilt(t, m)
		g, err := Join(t.Context(), m, coord, "billing", []string{"orders"}, Config{ClientID: "pod-1"})
		require.NoError(t, err)
		settle()
		require.NoError(t, g.CommitOffsets(t.Context(), map[record.TopicPartition]record.Offset{orders(0): 9}))
		_, err = PlanReset(t.Context(), m, coord, "billing", []string{"orders"}, ToStart())
		require.NoError(t, err, "a look is always free")
		_, err = Reset(t.Context(), m, coord, "billing", []string{"orders"}, ToStart())
		var active *ActiveError
		require.ErrorAs(t, err, &active)
		require.Equal(t, &ActiveError{Group: "billing", Members: []string{"pod-1"}}, active)
		require.ErrorIs(t, err, ErrActive)
		_, err = Reset(t.Context(), m, joining{coord}, "billing", []string{"orders"}, ToStart())
		require.ErrorIs(t, err, ErrActive, "it has joined since the look")
		require.NoError(t, g.Close(t.Context()))

		for want, f := range map[error]func() error{
			record.ErrInvalid: func() error {
				_, err := Reset(t.Context(), m, coord, "billing", nil, ToOffset(-1))
				require.ErrorIs(t, err, record.ErrInvalid)
				_, err = Reset(t.Context(), m, coord, "billing", nil, Back(-1))
				return err
			},
			record.ErrUnknownTopic: func() error {
				_, err := Reset(t.Context(), m, coord, "billing", []string{"nobody"}, ToStart())
				return err
			},
		} {
			require.ErrorIs(t, f(), want)
		}
		moves, err := Reset(t.Context(), m, coord, "nobody", nil, ToStart())
		require.NoError(t, err)
		require.Empty(t, moves)
	})
}

// joining shows a group without its members the first time.
type joining struct{ Coordinator }

func (j joining) Group(ctx context.Context, name string, req group.Request) (group.Response, error) {
	resp, err := j.Coordinator.Group(ctx, name, req)
	if req.Op == group.OpDescribe {
		resp.Members = nil
	}
	return resp, err
}
