package replica

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
)

// TestEveryAppendIsAnsweredWhenTheReplicaStops fails a sync while Raft's queue
// is full. Raft forgets what it holds then, and Close must end all the same.
func TestEveryAppendIsAnsweredWhenTheReplicaStops(t *testing.T) {
	for range 20 {
		c := newTrio(t, "a")
		lead := c.leader()
		hold, held := make(chan struct{}), make(chan struct{}, 1)
		c.disks["a"].(*vfs.Mem).Fail(func(op vfs.Op, name string) error {
			if op != vfs.OpSync || !strings.HasSuffix(name, ".log") {
				return nil
			}
			select {
			case held <- struct{}{}:
			default:
			}
			<-hold
			return errors.New("the disk is on fire")
		})
		var answers []<-chan outcome
		answers = append(answers, lead.send(buildBatch(t, 7, 0, 0, 1), AppendOptions{}))
		<-held
		for i := range 300 {
			answers = append(answers, lead.send(buildBatch(t, record.ProducerID(100+i), 0, 0, 1), AppendOptions{}))
		}
		close(hold)
		for _, ch := range answers {
			require.Error(t, c.get(ch).err)
		}
		closed := make(chan struct{})
		go func() { c.stop("a"); close(closed) }()
		select {
		case <-closed:
		case <-time.After(10 * time.Second):
			require.FailNow(t, "close does not end")
		}
	}
}

// TestWhatStoppedTheReplicaIsTheAnswerHoweverLateItIsHeard keeps the replica from hearing
// what Raft says of appends whose sync fails until Raft has ended, which it says too.
func TestWhatStoppedTheReplicaIsTheAnswerHoweverLateItIsHeard(t *testing.T) {
	c := newTrio(t, "a")
	lead := c.leader()
	onFire := errors.New("the disk is on fire")
	syncing, sync, burnt := make(chan struct{}), make(chan error), make(chan struct{})
	c.disks["a"].(*vfs.Mem).Fail(func(op vfs.Op, name string) error {
		if op != vfs.OpSync || !strings.HasSuffix(name, ".log") {
			return nil
		}
		select {
		case syncing <- struct{}{}:
			return <-sync
		case <-burnt:
			return onFire
		}
	})
	deaf := make(chan struct{})
	lead.Append(t.Context(), buildBatch(t, 7, 0, 0, 1), AppendOptions{}, func(record.Appended, error) { <-deaf })
	<-syncing
	var answers []<-chan outcome
	for i := range 20 { // Raft takes them together
		answers = append(answers, lead.send(buildBatch(t, record.ProducerID(100+i), 0, 0, 1), AppendOptions{}))
	}
	sync <- nil
	<-syncing
	ended := lead.raft().ended
	sync <- onFire
	close(burnt)
	<-ended
	close(deaf)
	for _, ch := range answers {
		require.ErrorIs(t, c.get(ch).err, onFire)
	}
}

// TestFuturesOfRaftCanBeMadeToEndWithIt pins what answers.wait relies on.
func TestFuturesOfRaftCanBeMadeToEndWithIt(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	lead := c.leader()
	for name, f := range map[string]raft.Future{
		"apply":    lead.raft().ApplyLog(raft.Log{}, 0),
		"barrier":  lead.raft().Barrier(0),
		"transfer": lead.raft().LeadershipTransfer(),
	} {
		answers := lead.raft().answers()
		_ = answers.wait(f)
		require.NotNil(t, answers.path, name)
		require.Equal(t, answers.ended, reflect.ValueOf(f).Elem().FieldByName("ShutdownCh").Interface(), name)
	}
}

// TestAnAppendThatMayBeOnDiskIsUnknown: a replica whose sync fails takes no more
// writes, and what it was writing may be there, and be committed, after its restart.
func TestAnAppendThatMayBeOnDiskIsUnknown(t *testing.T) {
	c := newTrio(t, "a")
	lead := c.leader()
	disk := c.disks["a"].(*vfs.Mem)
	require.NoError(t, c.get(lead.send(buildBatch(t, 7, 0, 0, 1), AppendOptions{})).err)
	disk.Fail(func(op vfs.Op, name string) error {
		if op == vfs.OpSync && strings.HasSuffix(name, ".log") {
			disk.Crash()
		}
		return nil
	})
	o := c.get(lead.send(buildBatch(t, 7, 0, 1, 1), AppendOptions{}))
	require.ErrorIs(t, o.err, record.ErrOutcomeUnknown)
	require.ErrorIs(t, o.err, vfs.ErrCrashed)

	c.stop("a")
	c.disks["a"] = disk.Reboot(1) // all that was written has got to the disk
	require.Equal(t, []string{"7/0", "7/1"}, c.values(c.start("a"), 2))
}
