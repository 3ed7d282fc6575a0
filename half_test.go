package quorumlog_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog"
)

// quick is a schedule for tests.
var quick = quorumlog.HalfConfig{Schedule: quorumlog.HalfSchedule{First: 50 * time.Millisecond, Every: 50 * time.Millisecond, Most: 1000}}

func openHalf(t *testing.T, n *quorumlog.Node, check func(context.Context, quorumlog.Half) quorumlog.Decision) *quorumlog.HalfProducer {
	t.Helper()
	p, err := n.HalfProducer("orders", check, quick)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func decides(d quorumlog.Decision) func(context.Context, quorumlog.HalfID) quorumlog.Decision {
	return func(context.Context, quorumlog.HalfID) quorumlog.Decision { return d }
}

func unknown(context.Context, quorumlog.Half) quorumlog.Decision { return quorumlog.HalfUnknown }

func TestAHalfMessageIsSeenWhenItsLocalTransactionHasCommitted(t *testing.T) {
	n := openMemory(t, "t")
	ctx := within(t, 20*time.Second)
	p := openHalf(t, n, unknown)
	d, err := p.Send(ctx, rec("t", "k", "1"), func(ctx context.Context, id quorumlog.HalfID) quorumlog.Decision {
		left, err := p.Undecided(ctx)
		require.NoError(t, err)
		require.Equal(t, id, left[0].ID, "it is stored before the local transaction runs")
		_, err = n.Produce(ctx, "t", rec("", "k", "meanwhile"))
		require.NoError(t, err)
		require.Equal(t, []string{"meanwhile"}, values(t, ctx, n, "t", quorumlog.UntilEnd()), "it holds nobody back, and is not seen")
		return quorumlog.HalfCommit
	})
	require.NoError(t, err)
	require.Equal(t, quorumlog.HalfCommit, d)
	_, err = p.Send(ctx, rec("t", "k", "2"), decides(quorumlog.HalfRollback))
	require.NoError(t, err)
	_, err = p.Send(ctx, rec("t", "k", "3"), decides(quorumlog.HalfCommit))
	require.NoError(t, err)
	var got []string
	for r, err := range n.Read(ctx, "t") {
		require.NoError(t, err)
		if got = append(got, string(r.Value)); len(got) == 3 {
			break
		}
	}
	require.Equal(t, []string{"meanwhile", "1", "3"}, got)
	_, err = p.Send(ctx, rec("nowhere", "k", string(make([]byte, 2<<20))), decides(quorumlog.HalfCommit))
	require.ErrorIs(t, err, quorumlog.ErrTooLarge)
}

func TestUndecidedMessagesAreCheckedWithAnyInstanceOnAnyNode(t *testing.T) {
	nodes, _ := openThree(t)
	ctx := within(t, 30*time.Second)
	var mu sync.Mutex
	asked := map[quorumlog.HalfID]int{}
	dead := openHalf(t, nodes["a"], unknown)
	var ids []quorumlog.HalfID
	for i := range 4 {
		func() {
			defer func() { _ = recover() }()
			_, err := dead.Send(ctx, rec("t", "k", fmt.Sprint(i)), func(_ context.Context, id quorumlog.HalfID) quorumlog.Decision {
				ids = append(ids, id)
				if i == 0 {
					panic("the local transaction dies")
				}
				return quorumlog.HalfUnknown
			})
			require.NoError(t, err)
		}()
	}
	require.NoError(t, dead.Close())
	check := func(_ context.Context, h quorumlog.Half) quorumlog.Decision {
		mu.Lock()
		defer mu.Unlock()
		switch asked[h.ID]++; {
		case asked[h.ID] < 3:
			return quorumlog.HalfUnknown
		case asked[h.ID] == 3:
			panic("a check that panics is no decision")
		case h.ID == ids[1]:
			return quorumlog.HalfRollback
		}
		return quorumlog.HalfCommit
	}
	openHalf(t, nodes["b"], check)
	openHalf(t, nodes["c"], check)
	var got []string
	for r, err := range nodes["b"].Read(ctx, "t") {
		require.NoError(t, err)
		if got = append(got, string(r.Value)); len(got) == 3 {
			break
		}
	}
	require.ElementsMatch(t, []string{"0", "2", "3"}, got)
	d, err := dead.Decide(ctx, ids[0], quorumlog.HalfRollback)
	require.NoError(t, err)
	require.Equal(t, quorumlog.HalfCommit, d, "a late decision is told what counts")
}
