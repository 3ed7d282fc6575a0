package quorumlog_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog"
)

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func openNode(t *testing.T, dir string, cfg quorumlog.Config) *quorumlog.Node {
	t.Helper()
	n, err := quorumlog.Open(dir, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	return n
}

// openThree opens nodes a, b and c on one network.
func openThree(t *testing.T) (map[string]*quorumlog.Node, *quorumlog.Network) {
	t.Helper()
	dir, nw := t.TempDir(), quorumlog.NewNetwork()
	peers := map[string]string{"a": "", "b": "", "c": ""}
	nodes := map[string]*quorumlog.Node{}
	for id := range peers {
		nodes[id] = openNode(t, filepath.Join(dir, id), quorumlog.Config{ID: id, Network: nw, Peers: peers, ElectionTimeout: 500 * time.Millisecond})
	}
	return nodes, nw
}

func values(t *testing.T, ctx context.Context, n *quorumlog.Node, topic string, opts ...quorumlog.ReadOption) []string {
	t.Helper()
	var got []string
	for r, err := range n.Read(ctx, topic, append(opts, quorumlog.UntilEnd())...) {
		require.NoError(t, err)
		got = append(got, string(r.Value))
	}
	return got
}

func TestRecordsAreThereAfterReopening(t *testing.T) {
	dir, ctx := t.TempDir(), within(t, 30*time.Second)
	n, err := quorumlog.Open(dir, quorumlog.Config{})
	require.NoError(t, err)
	for i := range 10 {
		res, err := n.Produce(ctx, "orders", quorumlog.Record{Value: fmt.Appendf(nil, "%d", i)})
		require.NoError(t, err)
		require.Equal(t, quorumlog.Offset(i), res.Offset)
	}
	require.NoError(t, n.Close())
	require.NoError(t, n.Close(), "again")

	n = openNode(t, dir, quorumlog.Config{})
	require.Equal(t, []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}, values(t, ctx, n, "orders"))
	res, err := n.Produce(ctx, "orders", quorumlog.Record{Value: []byte("10")})
	require.NoError(t, err)
	require.Equal(t, quorumlog.Offset(10), res.Offset)
}

func TestWhatANodeMayForgetAndWhenItSleepsIsItsConfigs(t *testing.T) {
	_, err := quorumlog.OpenMemory(quorumlog.Config{ProducerExpiry: -time.Second, MaxProducers: -7})
	require.ErrorIs(t, err, quorumlog.ErrInvalid)
	require.ErrorContains(t, err, "ProducerExpiry is -1s")
	require.ErrorContains(t, err, "MaxProducers is -7")

	ctx := within(t, 20*time.Second)
	n, err := quorumlog.OpenMemory(quorumlog.Config{SleepAfter: 10 * time.Millisecond})
	require.NoError(t, err)
	defer func() { require.NoError(t, n.Close()) }()
	_, err = n.Produce(ctx, "orders", quorumlog.Record{Value: []byte("x")})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		for s, err := range n.Watch(ctx) {
			require.NoError(t, err)
			if s.Topic == "orders" {
				return s.Asleep
			}
		}
		return false
	}, 20*time.Second, 5*time.Millisecond)
}

func TestAnOpenDirectoryIsRefusedAtOnceAndSaysWho(t *testing.T) {
	dir := t.TempDir()
	openNode(t, dir, quorumlog.Config{ID: "first"})
	_, err := quorumlog.Open(dir, quorumlog.Config{ID: "first"})
	require.ErrorIs(t, err, quorumlog.ErrLocked)
	var locked *quorumlog.LockedError
	require.ErrorAs(t, err, &locked)
	require.Contains(t, locked.Owner, `node "first"`)
	require.Contains(t, locked.Owner, fmt.Sprintf("process %d", os.Getpid()))
	require.ErrorContains(t, err, "close that node or use another directory")
}

func TestADirectoryOpenInAnotherProcessIsRefused(t *testing.T) {
	const env = "QUORUMLOG_TEST_OPEN"
	if dir := os.Getenv(env); dir != "" { // the other process
		_, err := quorumlog.Open(dir, quorumlog.Config{ID: "first"})
		fmt.Println(errors.Is(err, quorumlog.ErrLocked), err)
		return
	}
	dir := t.TempDir()
	openNode(t, dir, quorumlog.Config{ID: "first"})
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), env+"="+dir)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "true directory "+dir)
	require.Contains(t, string(out), fmt.Sprintf("process %d", os.Getpid()))
}

func TestADirectoryBelongsToOneNode(t *testing.T) {
	dir := t.TempDir()
	n, err := quorumlog.Open(dir, quorumlog.Config{ID: "a"})
	require.NoError(t, err)
	require.NoError(t, n.Close())
	_, err = quorumlog.Open(dir, quorumlog.Config{ID: "b"})
	require.ErrorIs(t, err, quorumlog.ErrInvalid)
	require.ErrorContains(t, err, `belongs to node "a", not to "b"`)
}

func TestADirectoryThatCannotBeUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := quorumlog.Open(file, quorumlog.Config{})
	var dirErr *quorumlog.DirError
	require.ErrorAs(t, err, &dirErr)
	require.Equal(t, file, dirErr.Dir)

	_, err = quorumlog.Open("", quorumlog.Config{})
	require.ErrorIs(t, err, quorumlog.ErrInvalid)

	if runtime.GOOS == "windows" || os.Getuid() == 0 {
		t.Skip("permissions bind neither root nor, in this way, windows")
	}
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o500))
	_, err = quorumlog.Open(dir, quorumlog.Config{})
	require.ErrorIs(t, err, os.ErrPermission)
	require.ErrorContains(t, err, "give this process the right to")
}

func TestADamagedIdentityIsNamed(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "node.json")
	require.NoError(t, os.WriteFile(name, []byte("{"), 0o600))
	_, err := quorumlog.Open(dir, quorumlog.Config{})
	require.ErrorIs(t, err, quorumlog.ErrCorrupt)
	require.ErrorContains(t, err, "node.json")

	require.NoError(t, os.WriteFile(name, []byte(`{"version":7,"id":"node"}`), 0o600))
	_, err = quorumlog.Open(dir, quorumlog.Config{})
	require.ErrorContains(t, err, "format version 7")
}

func TestBadConfigsAreRefusedWithEverythingThatIsWrong(t *testing.T) {
	_, err := quorumlog.Open(t.TempDir(), quorumlog.Config{ID: "x", Peers: map[string]string{"a": "", "b": ""}})
	require.ErrorIs(t, err, quorumlog.ErrInvalid)
	require.ErrorContains(t, err, `do not hold ID "x"`)
	require.ErrorContains(t, err, "no way to them")

	_, err = quorumlog.Open(t.TempDir(), quorumlog.Config{ElectionTimeout: -1})
	require.ErrorIs(t, err, quorumlog.ErrInvalid)
	_, err = quorumlog.Open(t.TempDir(), quorumlog.Config{Defaults: quorumlog.TopicConfig{Replicas: 2}})
	require.ErrorIs(t, err, quorumlog.ErrInvalid)
}

func TestBadArgumentsGetTypedErrors(t *testing.T) {
	n := openNode(t, t.TempDir(), quorumlog.Config{NoAutoCreate: true})
	ctx := within(t, 30*time.Second)
	require.NoError(t, n.CreateTopic(ctx, quorumlog.TopicConfig{Name: "orders", Partitions: 1}))

	for name, cfg := range map[string]quorumlog.TopicConfig{
		"empty name":      {Partitions: 1},
		"slash":           {Name: "a/b", Partitions: 1},
		"negative":        {Name: "x", Partitions: -1},
		"too many copies": {Name: "x", Partitions: 1, Replicas: 2},
		"internal":        {Name: "__x", Partitions: 1},
	} {
		err := n.CreateTopic(ctx, cfg)
		require.ErrorIs(t, err, quorumlog.ErrInvalid, name)
		var topic *quorumlog.InvalidTopicError
		require.ErrorAs(t, err, &topic, name)
	}
	require.ErrorIs(t, n.CreateTopic(ctx, quorumlog.TopicConfig{Name: "orders", Partitions: 1}), quorumlog.ErrTopicExists)
	require.NoError(t, n.CreateTopic(ctx, quorumlog.TopicConfig{Name: "x"}), "one partition is the default")

	_, err := n.Produce(ctx, "nowhere", quorumlog.Record{})
	require.ErrorIs(t, err, quorumlog.ErrUnknownTopic)
	_, err = n.Produce(ctx, "", quorumlog.Record{})
	require.ErrorIs(t, err, quorumlog.ErrInvalid)
	_, err = n.Produce(ctx, "orders", quorumlog.Record{Value: make([]byte, 9<<20)})
	var large *quorumlog.TooLargeError
	require.ErrorAs(t, err, &large)
	require.Greater(t, large.Size, large.Limit)

	first := func(opts ...quorumlog.ReadOption) error {
		for _, err := range n.Read(ctx, "orders", append(opts, quorumlog.UntilEnd())...) {
			return err
		}
		return nil
	}
	require.ErrorIs(t, first(quorumlog.FromOffset(-1)), quorumlog.ErrInvalid)
	require.ErrorIs(t, first(quorumlog.FromOffset(99)), quorumlog.ErrOffsetOutOfRange)
	require.ErrorIs(t, first(quorumlog.Partition(4)), quorumlog.ErrUnknownTopic)
	for _, err := range n.Read(ctx, "nowhere") {
		require.ErrorIs(t, err, quorumlog.ErrUnknownTopic)
	}
	_, err = n.Group(ctx, "", []string{"orders"}, quorumlog.GroupConfig{})
	require.ErrorIs(t, err, quorumlog.ErrInvalid)
	_, err = n.Status(ctx, "nowhere")
	require.ErrorIs(t, err, quorumlog.ErrUnknownTopic)

	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = n.Produce(cancelled, "orders", quorumlog.Record{})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, n.CreateTopic(cancelled, quorumlog.TopicConfig{Name: "y", Partitions: 1}), context.Canceled)
	for _, err := range n.Read(cancelled, "orders") {
		require.ErrorIs(t, err, context.Canceled)
	}
}

func TestAClosedNodeSaysSo(t *testing.T) {
	n, err := quorumlog.Open(t.TempDir(), quorumlog.Config{})
	require.NoError(t, err)
	ctx := within(t, 30*time.Second)
	_, err = n.Produce(ctx, "orders", quorumlog.Record{})
	require.NoError(t, err)
	require.NoError(t, n.Close())

	_, err = n.Produce(ctx, "orders", quorumlog.Record{})
	require.ErrorIs(t, err, quorumlog.ErrClosed)
	require.ErrorIs(t, n.CreateTopic(ctx, quorumlog.TopicConfig{Name: "x", Partitions: 1}), quorumlog.ErrClosed)
	for _, err := range n.Read(ctx, "orders") {
		require.ErrorIs(t, err, quorumlog.ErrClosed)
	}
	_, err = n.Group(ctx, "g", []string{"orders"}, quorumlog.GroupConfig{})
	require.ErrorIs(t, err, quorumlog.ErrClosed)
	_, err = n.Status(ctx, "orders")
	require.ErrorIs(t, err, quorumlog.ErrClosed)
}

// goroutines returns the stacks of all goroutines but this one's and the
// test runner's.
func goroutines() []string {
	buf := make([]byte, 4<<20)
	var own []string
	for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if !strings.Contains(g, "testing.") && !strings.Contains(g, "runtime.Stack") {
			own = append(own, g)
		}
	}
	return own
}

func TestCloseLeavesNoGoroutine(t *testing.T) {
	before := len(goroutines())
	t.Run("run", func(t *testing.T) {
		nodes, _ := openThree(t)
		ctx := within(t, 60*time.Second)
		require.NoError(t, nodes["a"].CreateTopic(ctx, quorumlog.TopicConfig{Name: "orders", Partitions: 3, Replicas: 3}))
		_, err := nodes["b"].Produce(ctx, "orders", quorumlog.Record{Value: []byte("x")})
		require.NoError(t, err)
		g, err := nodes["c"].Group(ctx, "g", []string{"orders"}, quorumlog.GroupConfig{})
		require.NoError(t, err)
		b, err := g.Poll(ctx)
		require.NoError(t, err)
		require.NoError(t, g.Commit(ctx, b))
		require.NoError(t, g.Close(ctx))
	})
	// What Close waits for is gone; a goroutine that has only its return left may
	// still be on the list for a moment.
	var left []string
	for range 1000 {
		if left = goroutines(); len(left) <= before {
			return
		}
		runtime.Gosched()
		runtime.GC()
	}
	require.LessOrEqual(t, len(left), before, strings.Join(left, "\n\n"))
}

func TestThreeNodesServeTheSameRecords(t *testing.T) {
	nodes, _ := openThree(t)
	ctx := within(t, 60*time.Second)
	require.NoError(t, nodes["a"].CreateTopic(ctx, quorumlog.TopicConfig{Name: "orders", Partitions: 3, Replicas: 3}))
	want := map[string]bool{}
	for i := range 60 {
		v := fmt.Sprint(i)
		want[v] = true
		id := string(rune('a' + i%3))
		_, err := nodes[id].Produce(ctx, "orders", quorumlog.Record{Key: []byte(v), Value: []byte(v)})
		require.NoError(t, err)
	}
	for _, n := range nodes {
		got := map[string]bool{}
		for _, v := range values(t, ctx, n, "orders") {
			require.False(t, got[v], "twice: %s", v)
			got[v] = true
		}
		require.Equal(t, want, got)
	}
	s, err := nodes["a"].Status(ctx, "orders")
	require.NoError(t, err)
	require.Len(t, s.Partitions, 3)
	leaders := map[string]bool{}
	for _, p := range s.Partitions {
		leaders[p.Leader] = true
		require.Len(t, p.Replicas, 3)
	}
	require.Len(t, leaders, 3, "leaders are spread")
}

func TestProducingGoesOnWhileTheLeaderStops(t *testing.T) {
	nodes, _ := openThree(t)
	ctx := within(t, 60*time.Second)
	require.NoError(t, nodes["a"].CreateTopic(ctx, quorumlog.TopicConfig{Name: "orders", Partitions: 1, Replicas: 3}))
	s, err := nodes["a"].Status(ctx, "orders")
	require.NoError(t, err)
	leader := s.Partitions[0].Leader
	var stays *quorumlog.Node
	for id, n := range nodes {
		if id != leader {
			stays = n
		}
	}
	p, err := stays.Producer(quorumlog.ProducerConfig{})
	require.NoError(t, err)
	var want []string
	failed := make(chan error, 1000)
	for i := range 500 {
		v := fmt.Sprint(i)
		want = append(want, v)
		p.SendAsync(ctx, quorumlog.Record{Topic: "orders", Value: []byte(v)}, func(_ quorumlog.Result, err error) {
			if err != nil {
				failed <- err
			}
		})
		if i == 250 {
			require.NoError(t, nodes[leader].Close())
		}
	}
	require.NoError(t, p.Close(ctx))
	require.Empty(t, failed)
	require.Equal(t, want, values(t, ctx, stays, "orders"), "nothing lost, nothing twice, in order")
}
