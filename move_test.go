package quorumlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/consumer"
	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/txn"
	"github.com/quorumlog/quorumlog/txn/coordinator"
)

// deadly is a process's way to the cluster. The process dies at one step of its first
// move: the step is done or not, and nothing that is asked for afterwards is.
type deadly struct {
	txn.Cluster
	kill func()

	mu    sync.Mutex
	step  int  // of the move, where it dies; 0: before the first
	done  bool // the step itself is done
	taken int
	dead  bool
}

// take reports whether a request is sent, and whether its answer comes.
func (d *deadly) take(ofMove bool) (sent, answered bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return false, false
	}
	if !ofMove {
		return true, true
	}
	d.taken++
	if d.taken <= d.step {
		return true, true
	}
	d.dead = true
	d.kill()
	return d.done, false
}

// requireDeath checks that the process died, unless it had fewer steps this time: what
// goes in one batch, or in one request, depends on the scheduler.
func requireDeath(t *testing.T, d *deadly) {
	require.True(t, d.dead || d.taken <= d.step)
}

func (d *deadly) Append(ctx context.Context, id record.TopicID, tp record.TopicPartition, b record.Batch, acks record.Acks, done func(record.Appended, error)) {
	sent, answered := d.take(true)
	if !sent {
		done(record.Appended{}, record.ErrUnreachable)
		return
	}
	d.Cluster.Append(ctx, id, tp, b, acks, func(a record.Appended, err error) {
		if !answered {
			a, err = record.Appended{}, &record.OutcomeUnknownError{Err: record.ErrUnreachable}
		}
		done(a, err)
	})
}

func (d *deadly) Group(ctx context.Context, name string, req group.Request) (group.Response, error) {
	return through(d, req.Op == group.OpPend, func() (group.Response, error) { return d.Cluster.Group(ctx, name, req) })
}

func (d *deadly) Transaction(ctx context.Context, id string, req coordinator.Request) (coordinator.Response, error) {
	return through(d, true, func() (coordinator.Response, error) { return d.Cluster.Transaction(ctx, id, req) })
}

func through[T any](d *deadly, ofMove bool, ask func() (T, error)) (none T, err error) {
	sent, answered := d.take(ofMove)
	if !sent {
		return none, record.ErrUnreachable
	}
	got, err := ask()
	if !answered {
		return none, &record.OutcomeUnknownError{Err: record.ErrUnreachable}
	}
	return got, err
}

// process returns what makes the moves of a process whose way to the cluster is way.
func process(t *testing.T, n *Node, way txn.Cluster, name string) mover {
	p, err := producer.New(way, ProducerConfig{})
	require.NoError(t, err)
	return mover{n.cluster, p, n.mover.defaults, &clients{node: name, open: func(id string) (*txn.Client, error) {
		return txn.New(way, id, TxnConfig{Timeout: time.Second})
	}}}
}

// member is one of a group whose requests, records and moves go by way: a process.
type member struct {
	*Group
	mover mover
}

// join starts a member.
func join(t *testing.T, n *Node, way txn.Cluster, name, topic string, workers int) *member {
	m := process(t, n, way, name)
	g, err := consumer.Join(t.Context(), n.cluster.Client(), way, "billing", []string{topic}, GroupConfig{
		Mover: m, Workers: workers, Retry: RetryPolicy{DeadLetters: true},
		SessionTimeout: 500 * time.Millisecond, HeartbeatInterval: 50 * time.Millisecond,
	})
	require.NoError(t, err)
	return &member{g, m}
}

// end ends what the member's process has running. ctx bounds the time it has for it.
func (m *member) end(ctx context.Context) {
	_ = m.Close(ctx)
	_ = m.mover.producer.Close(ctx)
	_ = m.mover.atomic.close(ctx)
}

const (
	moveRecords = 12
	moveDone    = "0 1 4 5 6 8 9 10" // the others fail
)

// A process dies at every step between the decision to move a record and the last
// commit. Whoever goes on moves what was not moved, and nothing twice.
func TestAMoveHappensOnceWhereverItsProcessDies(t *testing.T) {
	for _, workers := range []int{1, 4} {
		steps := 0
		t.Run(fmt.Sprintf("%d workers, nobody dies", workers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { steps = diesWhileMoving(t, math.MaxInt, false, workers) })
		})
		require.GreaterOrEqual(t, steps, 4, "of four moves")
		for step := range steps {
			for _, done := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d workers, step %d, done %v", workers, step, done), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { diesWhileMoving(t, step, done, workers) })
				})
			}
		}
	}
}

// diesWhileMoving returns how many steps there were.
func diesWhileMoving(t *testing.T, step int, done bool, workers int) int {
	ctx := t.Context()
	n, err := OpenMemory(Config{})
	require.NoError(t, err)
	defer func() { require.NoError(t, n.Close()) }()
	require.NoError(t, n.CreateTopic(ctx, TopicConfig{Name: "orders", Partitions: 1}))
	for i := range moveRecords {
		_, err := n.Produce(ctx, "orders", Record{Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Append(nil, i)})
		require.NoError(t, err)
	}
	var mu sync.Mutex
	handled := map[string]bool{}
	handle := func(_ context.Context, r Record) error {
		if !slices.Contains(strings.Fields(moveDone), string(r.Value)) {
			return errors.New("busy")
		}
		mu.Lock()
		defer mu.Unlock()
		handled[string(r.Value)] = true
		return nil
	}
	life, kill := context.WithCancel(ctx)
	defer kill()
	way := &deadly{Cluster: n.cluster.Client(), kill: kill, step: step, done: done}
	running := make(chan error, 1)
	first := join(t, n, way, "first", "orders", workers)
	go func() { running <- first.Run(life, handle) }()
	time.Sleep(time.Minute) // virtual
	kill()
	require.ErrorIs(t, <-running, context.Canceled)
	first.end(life)
	requireDeath(t, way)

	next := join(t, n, n.cluster.Client(), "next", "orders", workers)
	go func() { running <- next.Run(ctx, handle) }()
	time.Sleep(time.Minute)
	tp := TopicPartition{Topic: "orders"}
	at, err := next.Committed(ctx, []TopicPartition{tp})
	require.NoError(t, err)
	require.Equal(t, Offset(moveRecords), at[tp])
	next.end(ctx)
	require.ErrorIs(t, <-running, ErrClosed)

	var dead []string
	for r, err := range n.Read(ctx, consumer.DeadLetterTopic("billing"), UntilEnd()) {
		require.NoError(t, err)
		dead = append(dead, string(r.Value))
	}
	require.ElementsMatch(t, []string{"2", "3", "7", "11"}, dead)
	require.ElementsMatch(t, strings.Fields(moveDone), slices.Collect(maps.Keys(handled)))
	return way.taken
}

// A process dies at every step of a redrive, or of a drop. Whoever calls it again
// finishes it, and no letter is sent back twice.
func TestARedriveHappensOnceWhereverItsProcessDies(t *testing.T) {
	for _, drop := range []bool{false, true} {
		steps := 0
		t.Run(fmt.Sprintf("drop %v, nobody dies", drop), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { steps = diesWhileRedriving(t, math.MaxInt, false, drop) })
		})
		require.GreaterOrEqual(t, steps, 4)
		for step := range steps {
			for _, done := range []bool{false, true} {
				t.Run(fmt.Sprintf("drop %v, step %d, done %v", drop, step, done), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { diesWhileRedriving(t, step, done, drop) })
				})
			}
		}
	}
}

// diesWhileRedriving returns how many steps there were.
func diesWhileRedriving(t *testing.T, step int, done, drop bool) int {
	ctx := t.Context()
	n, dead := nodeWithLetters(t, 5)
	defer func() { require.NoError(t, n.Close()) }()
	odd := func(l Letter) bool { return l.Value[0]%2 == 1 }
	act := func(ctx context.Context, m mover) (int, error) {
		d := consumer.NewDeadLetters(n.cluster.Client(), m, "billing")
		if drop {
			return d.Drop(ctx, odd)
		}
		return d.Redrive(ctx, odd)
	}
	life, kill := context.WithCancel(ctx)
	defer kill()
	way := &deadly{Cluster: n.cluster.Client(), kill: kill, step: step, done: done}
	m := process(t, n, way, "first")
	count, err := act(life, m)
	requireDeath(t, way)
	if way.dead && err == nil {
		require.Equal(t, 2, count, "what was answered last was not needed")
	}
	_ = m.producer.Close(life)

	next := process(t, n, n.cluster.Client(), "next")
	again, err := act(ctx, next)
	require.NoError(t, err)
	require.LessOrEqual(t, count+again, 2)
	require.NoError(t, next.producer.Close(ctx))
	left := letterValues(t, dead)
	require.Equal(t, []string{"0", "2", "4"}, left)
	var back []string
	for r, err := range n.Read(ctx, "billing.redrive", UntilEnd()) {
		require.NoError(t, err)
		back = append(back, string(r.Value))
	}
	if drop {
		require.Empty(t, back)
	} else {
		require.Equal(t, []string{"1", "3"}, back)
	}
	return way.taken
}

// nodeWithLetters returns a node on which the group "billing" has so many dead
// letters, "0" and so on.
func nodeWithLetters(t *testing.T, count int) (*Node, *DeadLetters) {
	ctx := t.Context()
	n, err := OpenMemory(Config{})
	require.NoError(t, err)
	require.NoError(t, n.CreateTopic(ctx, TopicConfig{Name: "orders", Partitions: 1}))
	for i := range count {
		_, err := n.Produce(ctx, "orders", Record{Value: fmt.Append(nil, i)})
		require.NoError(t, err)
	}
	m := join(t, n, n.cluster.Client(), "billing", "orders", 1)
	running := make(chan error, 1)
	go func() { running <- m.Run(ctx, func(context.Context, Record) error { return errors.New("busy") }) }()
	time.Sleep(time.Minute) // virtual
	m.end(ctx)
	require.ErrorIs(t, <-running, ErrClosed)
	dead := n.DeadLetters("billing")
	require.Len(t, letterValues(t, dead), count)
	return n, dead
}

func letterValues(t *testing.T, d *DeadLetters) (values []string) {
	for l, err := range d.List(t.Context()) {
		require.NoError(t, err)
		values = append(values, string(l.Value))
	}
	return values
}

func TestOfTwoRedrivesAtOnceTheLaterOneGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		n, dead := nodeWithLetters(t, 250) // of which a hundred at a time are sent back
		defer func() { require.NoError(t, n.Close()) }()
		seen, inner := 0, 0
		count, err := dead.Redrive(ctx, func(Letter) bool {
			if seen++; seen == 150 {
				var err error
				inner, err = dead.Redrive(ctx, nil)
				require.NoError(t, err)
			}
			return true
		})
		require.ErrorIs(t, err, ErrFenced)
		require.Equal(t, 100, count)
		require.Equal(t, 150, inner)
		require.Empty(t, letterValues(t, dead))
		back := map[string]int{}
		for r, err := range n.Read(ctx, "billing.redrive", UntilEnd()) {
			require.NoError(t, err)
			back[string(r.Value)]++
		}
		require.Len(t, back, 250)
		for v, times := range back {
			require.Equal(t, 1, times, v)
		}
	})
}

// Nodes are cut off one after the other, with the partitions, the group and the
// transactions that they lead, while members on two of them handle, fail and move.
func TestMovesHappenOnceWhileLeadersAreCutOff(t *testing.T) {
	seed := rand.Uint64()
	if s := os.Getenv("QUORUMLOG_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("QUORUMLOG_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, seed))
	synctest.Test(t, func(t *testing.T) { cutOffWhileMoving(t, random) })
}

func cutOffWhileMoving(t *testing.T, random *rand.Rand) {
	const records = 120
	ctx, nw := t.Context(), NewNetwork()
	ids, peers := []string{"a", "b", "c"}, map[string]string{"a": "", "b": "", "c": ""}
	nodes := map[string]*Node{}
	for _, id := range ids {
		n, err := OpenMemory(Config{ID: id, Peers: peers, Network: nw, Defaults: TopicConfig{Replicas: 3}})
		require.NoError(t, err)
		nodes[id] = n
		defer func() { require.NoError(t, n.Close()) }()
	}
	require.NoError(t, nodes["a"].CreateTopic(ctx, TopicConfig{Name: "orders", Partitions: 2, Replicas: 3}))
	fails := func(r Record) bool { return r.Value[len(r.Value)-1]%4 == 0 } // those that end in 0, 4 and 8
	handle := func(_ context.Context, r Record) error {
		if fails(r) {
			return errors.New("busy")
		}
		return nil
	}
	var running sync.WaitGroup
	var members []*Group
	for i, id := range []string{"a", "b"} {
		g, err := nodes[id].Group(ctx, "billing", []string{"orders"}, GroupConfig{
			Workers: 1 + 3*i, Retry: RetryPolicy{DeadLetters: true}, SessionTimeout: time.Second, HeartbeatInterval: 100 * time.Millisecond,
		})
		require.NoError(t, err)
		members = append(members, g)
		running.Go(func() {
			if err := g.Run(ctx, handle); !errors.Is(err, ErrClosed) {
				t.Errorf("member on %s: %v", id, err)
			}
		})
	}
	var want []string
	delay := func() { // Heal ends it
		for _, from := range ids {
			for _, to := range ids {
				nw.Delay(from, to, 10*time.Millisecond)
			}
		}
	}
	delay()
	for i := range records {
		r := Record{Topic: "orders", Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Append(nil, i)}
		if fails(r) {
			want = append(want, string(r.Value))
		}
		_, err := nodes["c"].Produce(ctx, "orders", r)
		require.NoError(t, err)
		time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond)
		switch i % 10 {
		case 2:
			nw.Isolate(ids[random.IntN(len(ids)-1)]) // the producer's node stays
		case 7:
			time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
			nw.Heal()
			delay()
		}
	}
	time.Sleep(2 * time.Minute)
	lags, err := nodes["c"].Lags(ctx, "billing")
	require.NoError(t, err)
	for _, l := range lags {
		require.Zero(t, l.Records, "%v", l)
	}
	var dead []string
	for l, err := range nodes["c"].DeadLetters("billing").List(ctx) {
		require.NoError(t, err)
		dead = append(dead, string(l.Value))
	}
	require.ElementsMatch(t, want, dead)
	for _, g := range members {
		require.NoError(t, g.Close(ctx))
	}
	running.Wait()
}
