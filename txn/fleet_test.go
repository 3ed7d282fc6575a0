package txn_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/cluster"
	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/replica"
	"github.com/quorumlog/quorumlog/transport"
	"github.com/quorumlog/quorumlog/txn/coordinator"
	"github.com/quorumlog/quorumlog/txn/half"
)

// machine is what outlives a node's process.
type machine struct {
	id       string
	disk     *vfs.Mem
	stable   *replica.Stable
	endpoint transport.Endpoint
	node     atomic.Pointer[cluster.Node] // nil while it does not run
}

// fleet is three machines, which lose power and their links.
type fleet struct {
	t        *testing.T
	network  *transport.Network
	machines []*machine

	life   context.Context // ends with the test
	echoes sync.WaitGroup
}

func newFleet(t *testing.T) *fleet {
	f := &fleet{t: t, network: transport.NewNetwork(), life: t.Context()}
	for _, id := range []string{"a", "b", "c"} {
		f.machines = append(f.machines, &machine{id: id, disk: vfs.NewMem(), stable: replica.NewMemoryStable()})
	}
	for _, m := range f.machines {
		f.start(m)
	}
	t.Cleanup(func() {
		f.echoes.Wait()
		f.network.Heal()
		for _, m := range f.machines {
			if n := m.node.Swap(nil); n != nil {
				_ = n.Close()
				_ = m.endpoint.Close()
			}
		}
	})
	return f
}

func (f *fleet) start(m *machine) {
	e, err := f.network.Join(m.id)
	require.NoError(f.t, err)
	n, err := cluster.Open(context.Background(), cluster.Config{
		FS: m.disk, Dir: "data", Stable: m.stable, Endpoint: e, Peers: []string{"a", "b", "c"}, ElectionTimeout: 150 * time.Millisecond,
		CompactionFloor: 8 << 10, // so that coordinators die while they rewrite their log
	})
	require.NoError(f.t, err)
	m.endpoint = e
	m.node.Store(n)
}

// powerOff is the loss of power; the disk comes back with what survived by the seed.
func (f *fleet) powerOff(m *machine, seed uint64) {
	n := m.node.Swap(nil)
	_ = m.endpoint.Close()
	m.disk.Crash()
	_ = n.Close()
	m.disk = m.disk.Reboot(seed)
}

// wreck injects faults until ctx ends, one after the other, and mends all of them.
func (f *fleet) wreck(ctx context.Context, rng *rand.Rand) (faults int) {
	for ; ; faults++ {
		m := f.machines[rng.IntN(len(f.machines))]
		mend := func() {}
		switch rng.IntN(4) {
		case 0, 1:
			f.powerOff(m, rng.Uint64())
			mend = func() { f.start(m) }
		case 2:
			f.network.Isolate(m.id)
			mend = f.network.Heal
		case 3: // the coordinators and the partitions move
			for _, topic := range []string{cluster.TransactionsTopic, cluster.OffsetsTopic, "in", "out"} {
				tp := record.TopicPartition{Topic: topic, Partition: rng.Int32N(4)}
				_ = m.node.Load().TransferLeader(ctx, tp, "")
			}
		}
		wait(ctx, time.Duration(50+rng.IntN(250))*time.Millisecond)
		mend()
		wait(ctx, time.Duration(50+rng.IntN(250))*time.Millisecond)
		if ctx.Err() != nil {
			return faults + 1
		}
	}
}

// wait waits for d or the end of ctx.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// client is the cluster as one client sees it: through the node of its home, or the
// next one that runs.
type client struct {
	f    *fleet
	home int
}

// echo repeats something a while after it was done, now and then: the network has
// delivered it twice. It must have no effect.
func (c client) echo(again func()) {
	if rand.IntN(4) > 0 {
		return
	}
	c.f.echoes.Go(func() {
		wait(c.f.life, time.Duration(rand.IntN(400))*time.Millisecond)
		again()
	})
}

func (c client) node() (*cluster.Node, error) {
	for i := range c.f.machines {
		if n := c.f.machines[(c.home+i)%len(c.f.machines)].node.Load(); n != nil {
			return n, nil
		}
	}
	return nil, fmt.Errorf("no node runs: %w", record.ErrUnreachable)
}

// repeat asks until the answer is not the fault of the node.
func repeat[T any](ctx context.Context, c client, ask func(n *cluster.Node) (T, error)) (T, error) {
	for {
		n, err := c.node()
		var v T
		if err == nil {
			v, err = ask(n)
		}
		dying := errors.Is(err, record.ErrClosed) || errors.Is(err, record.ErrUnreachable) ||
			err != nil && strings.Contains(err.Error(), vfs.ErrCrashed.Error())
		if err == nil || ctx.Err() != nil || !dying {
			return v, err
		}
		wait(ctx, 5*time.Millisecond)
	}
}

func (c client) Layout(ctx context.Context, topic string) (record.TopicID, int, error) {
	type layout struct {
		id record.TopicID
		n  int
	}
	l, err := repeat(ctx, c, func(n *cluster.Node) (l layout, err error) {
		l.id, l.n, err = n.Layout(ctx, topic)
		return l, err
	})
	return l.id, l.n, err
}

func (c client) Partitions(ctx context.Context, topic string) (int, error) {
	return repeat(ctx, c, func(n *cluster.Node) (int, error) { return n.Partitions(ctx, topic) })
}

func (c client) Append(ctx context.Context, id record.TopicID, tp record.TopicPartition, b record.Batch, acks record.Acks, done func(record.Appended, error)) {
	n, err := c.node()
	if err != nil {
		done(record.Appended{}, err)
		return
	}
	again := slices.Clone(b)
	if rand.IntN(8) == 0 { // it is on its way for long, perhaps longer than its client lives
		c.f.echoes.Go(func() {
			wait(c.f.life, time.Duration(rand.IntN(400))*time.Millisecond)
			n.Append(context.WithoutCancel(ctx), id, tp, b, acks, done)
		})
		return
	}
	n.Append(ctx, id, tp, b, acks, done)
	c.echo(func() {
		if n, err := c.node(); err == nil {
			n.Append(c.f.life, id, tp, again, acks, func(record.Appended, error) {})
		}
	})
}

func (c client) NewProducer(context.Context, string) (record.ProducerID, record.ProducerEpoch, error) {
	return 0, 0, errors.New("not to be asked")
}

func (c client) RenewProducer(context.Context, string, record.ProducerID, record.ProducerEpoch) (record.ProducerID, record.ProducerEpoch, error) {
	return 0, 0, errors.New("not to be asked")
}

func (c client) Transaction(ctx context.Context, id string, req coordinator.Request) (coordinator.Response, error) {
	defer c.echo(func() {
		if n, err := c.node(); err == nil {
			ctx, cancel := context.WithTimeout(c.f.life, time.Second)
			defer cancel()
			_, _ = n.Transaction(ctx, id, req)
		}
	})
	return repeat(ctx, c, func(n *cluster.Node) (coordinator.Response, error) { return n.Transaction(ctx, id, req) })
}

func (c client) Group(ctx context.Context, name string, req group.Request) (group.Response, error) {
	defer c.echo(func() {
		if n, err := c.node(); err == nil && req.Op == group.OpPend {
			ctx, cancel := context.WithTimeout(c.f.life, time.Second)
			defer cancel()
			_, _ = n.Group(ctx, name, req)
		}
	})
	return repeat(ctx, c, func(n *cluster.Node) (group.Response, error) { return n.Group(ctx, name, req) })
}

func (c client) Half(ctx context.Context, name string, req half.Request) (half.Response, error) {
	if req.Op == half.OpStore || req.Op == half.OpDecide {
		defer c.echo(func() {
			if n, err := c.node(); err == nil {
				ctx, cancel := context.WithTimeout(c.f.life, time.Second)
				defer cancel()
				_, _ = n.Half(ctx, name, req)
			}
		})
	}
	return repeat(ctx, c, func(n *cluster.Node) (half.Response, error) { return n.Half(ctx, name, req) })
}

func (c client) Fetch(ctx context.Context, tp record.TopicPartition, from record.Offset, maxBytes int, iso record.Isolation) (record.Fetched, error) {
	return repeat(ctx, c, func(n *cluster.Node) (record.Fetched, error) { return n.Fetch(ctx, tp, from, maxBytes, iso) })
}

func (c client) Offsets(ctx context.Context, tp record.TopicPartition, iso record.Isolation) (record.Offset, record.Offset, error) {
	b, err := repeat(ctx, c, func(n *cluster.Node) (b [2]record.Offset, err error) {
		b[0], b[1], err = n.Offsets(ctx, tp, iso)
		return b, err
	})
	return b[0], b[1], err
}

func (c client) OffsetForTime(context.Context, record.TopicPartition, time.Time) (record.Offset, bool, error) {
	return 0, false, errors.New("not to be asked")
}

func (f *fleet) create(ctx context.Context, topic string, partitions int) {
	_, err := f.machines[0].node.Load().CreateTopic(ctx, cluster.TopicConfig{Name: topic, Partitions: partitions})
	require.NoError(f.t, err)
}

// verdicts is what the clients were told of their transactions.
type verdicts struct {
	mu   sync.Mutex
	told map[string]error // by the name of the transaction; nil is committed
}

func (v *verdicts) put(name string, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.told[name] = err
}
