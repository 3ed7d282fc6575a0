package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/replica"
	"github.com/quorumlog/quorumlog/transport"
)

// forgetful notes when it was asked to forget, and answers as it is told.
type forgetful struct {
	began time.Time
	at    []time.Duration
	keep  log.Retention
	do    func(ctx context.Context) error
}

func (f *forgetful) Retain(ctx context.Context, keep log.Retention) (log.Plan, error) {
	f.at, f.keep = append(f.at, time.Since(f.began)), keep
	if f.do != nil {
		return log.Plan{}, f.do(ctx)
	}
	return log.Plan{}, nil
}

func TestOneTimerServesAllPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told bytes.Buffer
		began := time.Now()
		quick := &forgetful{began: began}
		failing := &forgetful{began: began, do: func(context.Context) error { return errors.New("no luck") }}
		deposed := &forgetful{began: began, do: func(context.Context) error { return &record.NotLeaderError{} }}
		hanging := &forgetful{began: began, do: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
		last := &forgetful{began: began}
		var list []retained
		for i, f := range []*forgetful{quick, failing, deposed, hanging, last} {
			list = append(list, retained{f, part("orders", int32(i)), log.Retention{MaxBytes: int64(i)}})
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			retainEvery(ctx, 5*time.Minute, func() []retained { return list }, slog.New(slog.NewTextHandler(&told, nil)))
		}()
		time.Sleep(16 * time.Minute)
		cancel()
		<-ended
		on := []time.Duration{5 * time.Minute, 10 * time.Minute, 15 * time.Minute}
		require.Equal(t, on, quick.at)
		require.Equal(t, on, failing.at, "and again, though it failed")
		require.Equal(t, on, hanging.at)
		for i := range on {
			on[i] += retainTimeout
		}
		require.Equal(t, on, last.at, "one that hangs holds up the others for so long")
		require.Equal(t, log.Retention{MaxBytes: 4}, last.keep)
		require.Equal(t, 3, strings.Count(told.String(), "no luck"), told.String())
		require.Equal(t, 3, strings.Count(told.String(), "partition=orders/3"), told.String())
		require.NotContains(t, told.String(), "partition=orders/2", "the next leader sees to it")
	})
}

func TestOldRecordsGoByThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		endpoint, err := transport.NewNetwork().Join("a")
		require.NoError(t, err)
		disk := vfs.NewMem()
		n, err := Open(context.Background(), Config{FS: disk, Dir: "data", Stable: replica.NewMemoryStable(), Endpoint: endpoint, ElectionTimeout: time.Minute})
		require.NoError(t, err)
		ctx := context.Background()
		for _, cfg := range []TopicConfig{
			{Name: "short", Partitions: 1, RetentionAge: time.Hour},
			{Name: "kept", Partitions: 1},
		} {
			_, err = n.CreateTopic(ctx, cfg)
			require.NoError(t, err)
		}
		write := func(topic, value string) {
			var b record.Builder
			require.NoError(t, b.Append(&record.Record{Value: []byte(value)}))
			batch, err := b.Build(record.BatchOptions{})
			require.NoError(t, err)
			_, err = appendOnce(ctx, n, part(topic, 0), batch, record.AckQuorum)
			require.NoError(t, err)
		}
		start := func(topic string) record.Offset {
			s, err := n.Status(ctx, topic) // not Offsets, whose barrier is an append too
			require.NoError(t, err)
			return s.Partitions[0].StartOffset
		}
		for i := range 8 { // a record each half hour; a segment holds two
			for _, topic := range []string{"short", "kept"} {
				write(topic, fmt.Sprint(i))
			}
			time.Sleep(30 * time.Minute)
		}
		time.Sleep(time.Minute)
		require.Equal(t, record.Offset(4), start("short"), "the segment with 4 and 5 was sealed an hour ago, 3 minutes before the last look")
		require.Equal(t, record.Offset(0), start("kept"))
		time.Sleep(24 * time.Hour)
		require.Equal(t, record.Offset(8), start("short"), "the last trim was an append, and sealed the segment with 6 and 7")
		write("short", "8")
		values, err := readValues(ctx, n, part("short", 0), 8, 1)
		require.NoError(t, err)
		require.Equal(t, []string{"8"}, values)
		_, err = readValues(ctx, n, part("short", 0), 7, 1)
		require.ErrorIs(t, err, record.ErrOffsetOutOfRange)

		dirs, err := disk.List("data/partitions")
		require.NoError(t, err)
		for _, dir := range dirs {
			files, err := disk.List(path.Join("data/partitions", dir))
			require.NoError(t, err)
			if strings.HasPrefix(dir, "short") {
				require.NotContains(t, files, "00000000000000000000.log")
				require.Contains(t, files, "00000000000000000008.log")
			} else {
				require.Contains(t, files, "00000000000000000000.log", dir)
			}
		}
		require.NoError(t, n.Close())
		require.NoError(t, endpoint.Close())
	})
}

func TestRetentionOnDemandThroughAnyNode(t *testing.T) {
	c := startCluster(t, nil, "a", "b", "c")
	cfg := TopicConfig{Name: "orders", Partitions: 2, Replicas: 3, SegmentBytes: 1 << 10, RetentionBytes: 2 << 10}
	_, err := c.node("a").CreateTopic(c.ctx(), cfg)
	require.NoError(t, err)
	w := c.writer(c.node("a"), part("orders", 1))
	for range 50 {
		w.send(c.node("a"), strings.Repeat("x", 100))
	}
	for _, id := range c.peers {
		plans, err := c.node(id).PlanRetention(c.ctx(), "orders")
		require.NoError(t, err)
		require.Len(t, plans, 2)
		require.Empty(t, plans[0].Segments)
		require.NotEmpty(t, plans[1].Segments)
		require.Equal(t, log.ReasonBytes, plans[1].Segments[0].Reason)
	}
	plans, err := c.node("b").PlanRetention(c.ctx(), "orders")
	require.NoError(t, err)
	done, err := c.node("c").Retain(c.ctx(), "orders")
	require.NoError(t, err)
	require.Equal(t, plans, done)
	start, _, err := c.node("a").Offsets(c.ctx(), part("orders", 1), record.ReadUncommitted)
	require.NoError(t, err)
	require.Equal(t, plans[1].Start, start)
	done, err = c.node("a").Retain(c.ctx(), "orders")
	require.NoError(t, err)
	require.Equal(t, []PartitionPlan{{Partition: 0}, {Partition: 1, Plan: log.Plan{Start: start}}}, done, "nothing is left to do")

	_, err = c.node("a").Retain(c.ctx(), "none")
	require.ErrorIs(t, err, record.ErrUnknownTopic)
	for _, topic := range []string{MetadataTopic, OffsetsTopic} {
		_, err = c.node("a").Retain(c.ctx(), topic)
		require.ErrorIs(t, err, record.ErrInvalid)
		p, _ := c.node("a").known(part(topic, 0))
		if p != nil {
			require.Zero(t, c.node("a").keep(p))
		}
	}
}

func TestRetentionThatMakesNoSenseIsRefusedWithTheTopic(t *testing.T) {
	for says, cfg := range map[string]TopicConfig{
		"retention age":  {RetentionAge: -1},
		"retention size": {RetentionBytes: -1},
		"record time":    {RetentionByRecordTime: true},
	} {
		cfg.Name, cfg.Partitions = "orders", 1
		_, _, err := newMetadata().createTopic(cfg, record.NewTopicID(), []string{"a"})
		require.ErrorIs(t, err, record.ErrInvalid)
		require.ErrorContains(t, err, says)
	}
	require.Equal(t, log.DefaultSegmentAge, TopicConfig{}.segmentAge())
	require.Equal(t, time.Hour, TopicConfig{RetentionAge: time.Hour}.segmentAge())
	require.Equal(t, log.DefaultSegmentAge, TopicConfig{RetentionAge: 1000 * time.Hour}.segmentAge())
}
