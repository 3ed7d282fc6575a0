package replica

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

func TestReadIndexSeesAllThatIsCommittedAndWritesNothing(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	h := c.leader()
	c.produce(h, 0, 10)
	before := h.store.log.Bounds().Next
	for range 50 {
		epoch, high, err := h.ReadIndex(c.within(5 * time.Second))
		require.NoError(t, err)
		require.Equal(t, record.Offset(10), high)
		_, leads := h.Leader()
		require.Equal(t, leads, epoch)
	}
	require.Equal(t, before, h.store.log.Bounds().Next, "no entry was written")
	for _, node := range others(c, h) {
		_, _, err := c.live[node].ReadIndex(c.within(5 * time.Second))
		require.ErrorIs(t, err, record.ErrNotLeader)
	}
}

// TestADeposedLeaderGivesNoReadIndex: it does not know what the others have
// committed meanwhile.
func TestADeposedLeaderGivesNoReadIndex(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	old := c.leader()
	c.produce(old, 0, 1)
	c.net.Isolate(old.Status().Node)
	_, _, err := old.ReadIndex(c.within(10 * time.Second)) // it believes to lead still
	require.ErrorIs(t, err, record.ErrNotLeader)
}

// TestANewLeaderGivesAReadIndexOnlyWhenItKnowsAll: every answer of a leader that
// has just been elected includes what the one before it acknowledged.
func TestANewLeaderGivesAReadIndexOnlyWhenItKnowsAll(t *testing.T) {
	c := startTrio(t, &trio{timeout: 300 * time.Millisecond}, "a", "b", "c")
	for i := range 5 {
		h := c.leader()
		c.produce(h, 3*i, 3)
		rest := others(c, h)
		_ = h.TransferLeadership(c.within(5*time.Second), "")
		c.eventually("a read index", func() bool {
			for _, node := range append(rest, h.Status().Node) {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				_, high, err := c.live[node].ReadIndex(ctx)
				cancel()
				if err == nil {
					require.GreaterOrEqual(t, high, record.Offset(3*i+3))
					return true
				}
			}
			return false
		})
	}
}

func TestReadIndexEndsWithItsContext(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	h := c.leader()
	c.net.Isolate(h.Status().Node)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, _, err := h.ReadIndex(ctx)
		ended <- err
	}()
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	c.net.Heal()
}

// BenchmarkLinearizableRead compares the two ways of knowing that nobody has
// committed more, on files:
//
//	go test ./replica -run '^$' -bench LinearizableRead
func BenchmarkLinearizableRead(b *testing.B) {
	for name, read := range map[string]func(*Replica, context.Context) (record.LeaderEpoch, record.Offset, error){
		"barrier":    (*Replica).Barrier,
		"read index": (*Replica).ReadIndex,
	} {
		b.Run(name, func(b *testing.B) {
			c := startTrio(b, &trio{dir: b.TempDir()}, "a", "b", "c")
			h := c.leader()
			c.produce(h, 0, 1)
			before := h.store.log.Bounds().Next
			for b.Loop() {
				_, _, err := read(h.Replica, context.Background())
				require.NoError(b, err)
			}
			b.ReportMetric(float64(h.store.log.Bounds().Next-before)/float64(b.N), "entries/op")
		})
	}
}
