package cluster

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
)

// Raft cuts off what a former leader alone has, and stores what is right instead.
// Between the two the disk may be full. Raft then believes in what was cut off.
func TestALeaderThatIsReplacedWhileItsDiskIsFullCatchesUp(t *testing.T) {
	c := startCluster(t, quickElections, "a", "b", "c")
	tp := part("orders", 0)
	c.create(tp.Topic, 1)
	old := c.leader(c.node("a"), tp)
	others := c.other(old)

	c.network.Isolate(old)
	for range 5 { // more than the others write below
		ctx, cancel := context.WithCancel(c.ctx())
		c.node(old).Append(ctx, record.TopicID{}, tp, testBatch(t, "lost"), record.AckQuorum, func(record.Appended, error) {})
		defer cancel()
	}
	p, err := c.node(old).known(tp)
	require.NoError(t, err)
	end := func() record.Offset {
		rep, _, _ := p.state()
		if rep == nil {
			return record.NoOffset
		}
		return rep.Status().EndOffset
	}
	require.Eventually(t, func() bool { return end() == 5 }, 20*time.Second, time.Millisecond)
	require.Eventually(t, func() bool {
		_, err := appendOnce(c.ctx(), others, tp, testBatch(t, "kept"), record.AckQuorum)
		return err == nil
	}, 20*time.Second, time.Millisecond)

	var once sync.Once
	full := make(chan struct{})
	disk := c.machines[old].disk
	disk.Fail(func(op vfs.Op, name string) error {
		if op == vfs.OpWrite && strings.Contains(name, "/orders.") && strings.HasSuffix(name, ".log") {
			once.Do(func() { close(full) })
			return vfs.ErrNoSpace
		}
		return nil
	})
	c.network.Heal()
	<-full
	disk.Fail(nil)
	_, high, err := others.Offsets(c.ctx(), tp, record.ReadUncommitted)
	require.NoError(t, err)
	require.Less(t, high, record.Offset(5))
	require.Eventually(t, func() bool {
		rep, _, _ := p.state()
		return rep != nil && rep.Status().HighWatermark == high && end() == high
	}, 20*time.Second, time.Millisecond, "it follows nobody any more: its log ends at %d", end())
}
