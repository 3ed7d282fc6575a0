package replica

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/consumer"
	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
)

func TestRetentionMovesTheStartOnAllReplicas(t *testing.T) {
	c := newTrioOf(t, 4<<10, "a", "b", "c")
	h := c.leader()
	c.produce(h, 0, 200)
	keep := log.Retention{MaxBytes: 8 << 10}
	ctx := c.within(10 * time.Second)

	plan, err := h.PlanRetention(ctx, keep)
	require.NoError(t, err)
	require.NotEmpty(t, plan.Segments)
	require.Equal(t, record.Offset(0), h.Status().StartOffset, "a plan changes nothing")
	require.LessOrEqual(t, plan.Start, h.Status().HighWatermark)
	again, err := h.Retain(ctx, keep)
	require.NoError(t, err)
	require.Equal(t, plan, again)
	for _, node := range c.nodes {
		r := c.live[node]
		c.eventually("trim on "+node, func() bool { return r.Status().StartOffset == plan.Start && r.store.log.Bounds().Start > 0 })
		if node == h.Status().Node {
			continue
		}
		_, err := r.Retain(ctx, keep)
		require.ErrorIs(t, err, record.ErrNotLeader)
		_, err = r.PlanRetention(ctx, keep)
		require.ErrorIs(t, err, record.ErrNotLeader)
	}
	require.GreaterOrEqual(t, h.Status().SizeBytes, keep.MaxBytes)
	require.Equal(t, 200-int(plan.Start), readable(t, h, plan.Start))

	again, err = h.Retain(ctx, keep)
	require.NoError(t, err)
	require.Equal(t, log.Plan{Start: plan.Start}, again, "nothing is left to do")
	_, err = h.Retain(ctx, log.Retention{MaxBytes: -1})
	require.ErrorIs(t, err, record.ErrInvalid)
}

// What a leader has and nobody else does is not committed and does not go.
func TestRetentionStopsAtTheHighWatermark(t *testing.T) {
	c := newTrioOf(t, 4<<10, "a", "b", "c")
	h := c.leader()
	c.produce(h, 0, 50)
	c.net.Isolate(h.Status().Node)
	for i := 50; i < 170; i++ {
		h.send(buildBatch(t, 1, 0, record.Sequence(i), 1), AppendOptions{})
	}
	c.eventually("the tail is placed", func() bool { return h.store.log.Bounds().End >= 170 })
	plan, err := h.store.log.PlanRetention(context.Background(), log.Retention{MaxBytes: 1}, record.Offset(h.high.Load()))
	require.NoError(t, err)
	require.LessOrEqual(t, plan.Start, record.Offset(50))
	all, err := h.store.log.PlanRetention(context.Background(), log.Retention{MaxBytes: 1}, 170)
	require.NoError(t, err)
	require.Greater(t, all.Start, record.Offset(50))
}

// source is a partition as a consumer sees it.
type source struct{ rep *host }

func (s source) Partitions(context.Context, string) (int, error) { return 1, nil }

func (s source) Offsets(context.Context, record.TopicPartition, record.Isolation) (start, high record.Offset, err error) {
	st := s.rep.Status()
	return st.StartOffset, st.HighWatermark, nil
}

func (s source) OffsetForTime(context.Context, record.TopicPartition, time.Time) (record.Offset, bool, error) {
	return record.NoOffset, false, nil
}

func (s source) Fetch(ctx context.Context, _ record.TopicPartition, from record.Offset, maxBytes int, iso record.Isolation) (record.Fetched, error) {
	if err := s.rep.WaitReadable(ctx, from, iso); err != nil {
		return record.Fetched{}, err
	}
	return s.rep.Read(from, maxBytes, iso)
}

func TestReadsBeginAtAStartInsideABatch(t *testing.T) {
	c := newTrioOf(t, 4<<10, "a", "b", "c")
	h := c.leader()
	ctx := c.within(10 * time.Second)
	for i := range 20 { // batches of ten
		require.NoError(t, c.get(h.send(buildBatch(t, 1, 0, record.Sequence(10*i), 10), AppendOptions{})).err)
	}
	start, err := h.TrimTo(ctx, 157)
	require.NoError(t, err)
	require.Equal(t, record.Offset(157), start)
	for _, node := range c.nodes {
		r := c.live[node]
		c.eventually("trim on "+node, func() bool { s := r.Status(); return s.StartOffset == 157 && s.HighWatermark == 200 })
		f, err := r.Read(157, 1, record.ReadCommitted)
		require.NoError(t, err)
		require.Equal(t, record.Offset(150), f.Batches[0].BaseOffset(), "the batch is whole")
		require.Equal(t, record.Offset(157), f.StartOffset)
		_, err = r.Read(156, 1, record.ReadCommitted)
		var out *record.OffsetRangeError
		require.ErrorAs(t, err, &out)
		require.Equal(t, record.Offset(157), out.Start)

		next := record.Offset(157)
		for rec, err := range consumer.Read(ctx, source{r}, testPartition.Topic, consumer.FromStart(), consumer.UntilEnd()) {
			require.NoError(t, err)
			require.Equal(t, next, rec.Offset)
			require.Equal(t, fmt.Sprintf("1/%d", next), string(rec.Value))
			next++
		}
		require.Equal(t, record.Offset(200), next)
	}

	start, err = h.TrimTo(ctx, 1000)
	require.NoError(t, err)
	require.Equal(t, record.Offset(200), start)
	for _, err := range consumer.Read(ctx, source{h}, testPartition.Topic, consumer.FromStart(), consumer.UntilEnd()) {
		require.FailNow(t, "there is nothing", "%v", err)
	}
}

// TestRetentionIsDoneOrNotAfterACrash crashes the disk at every call from the
// decision to the last segment's removal.
func TestRetentionIsDoneOrNotAfterACrash(t *testing.T) {
	keep := log.Retention{MaxBytes: 2 << 10}
	for point := 0; ; point++ {
		c := newTrioOf(t, 1<<10, "a")
		h := c.leader()
		c.produce(h, 0, 40)
		plan, err := h.PlanRetention(context.Background(), keep)
		require.NoError(t, err)
		require.NotEmpty(t, plan.Segments)
		disk := c.disks["a"].(*vfs.Mem)
		disk.CrashAfter(point)
		_, err = h.Retain(c.within(10*time.Second), keep)
		if err == nil {
			c.eventually("trim or crash", func() bool { return disk.Crashed() || h.store.log.Bounds().Start == plan.Start })
		}
		crashed := disk.Crashed()
		disk.Crash()
		_ = h.Close() // its disk is gone
		require.NoError(t, h.mux.Close())
		require.NoError(t, h.endpoint.Close())
		delete(c.live, "a")
		for seed := range uint64(3) {
			msg := fmt.Sprintf("point %d, seed %d", point, seed)
			c.disks["a"] = disk.Reboot(seed)
			h := c.start("a")
			require.Same(t, h, c.leader())
			start := h.Status().StartOffset
			require.Contains(t, []record.Offset{0, plan.Start}, start, msg)
			if err == nil {
				require.Equal(t, plan.Start, start, "%s: it was decided", msg)
			}
			require.Equal(t, 40-int(start), readable(t, h, start), msg)
			_, err := h.Retain(c.within(10*time.Second), keep)
			require.NoError(t, err, msg)
			c.eventually("trim, "+msg, func() bool { return h.store.log.Bounds().Start >= plan.Start })
			require.Equal(t, 40-int(plan.Start), readable(t, h, plan.Start), msg)
			c.stop("a")
		}
		if !crashed {
			t.Logf("%d crash points", point)
			return // every point has been tried
		}
	}
}
