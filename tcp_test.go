package quorumlog_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog"
	"github.com/quorumlog/quorumlog/internal/relay"
)

// machine is a node that the others reach, and that reaches the others, through
// relays alone: one for each pair and direction, and one, its front, that leads to
// the address it tells the others.
type machine struct {
	*quorumlog.Node
	ways []*relay.Relay // from and to all others
	in   []*relay.Relay // to it, the front first
	dir  string
	cfg  quorumlog.Config
}

func newRelay(t *testing.T) *relay.Relay {
	t.Helper()
	r, err := relay.Listen()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// connect lets m reach another node.
func (m *machine) connect(t *testing.T, id string, to *machine) {
	t.Helper()
	r := newRelay(t)
	m.cfg.Peers[id] = r.Addr()
	m.ways, to.ways, to.in = append(m.ways, r), append(to.ways, r), append(to.in, r)
	if to.Node != nil {
		r.Target(to.Addr().String())
	}
}

// open starts the node, or starts it again.
func (m *machine) open(t *testing.T) {
	t.Helper()
	m.Node = openNode(t, m.dir, m.cfg)
	for _, r := range m.in {
		r.Target(m.Addr().String())
	}
}

// vanish cuts the machine off, and nobody is told.
func (m *machine) vanish() {
	for _, r := range m.ways {
		r.Cut(relay.Both, true)
	}
}

func (m *machine) heal() {
	for _, r := range m.ways {
		r.Heal()
	}
}

// newMachine returns a machine that is not open yet.
func newMachine(t *testing.T, id string) *machine {
	t.Helper()
	front := newRelay(t)
	return &machine{in: []*relay.Relay{front}, dir: t.TempDir(), cfg: quorumlog.Config{
		ID: id, Listen: "127.0.0.1:0", Peers: map[string]string{id: front.Addr()}, ElectionTimeout: 500 * time.Millisecond,
	}}
}

// openMachines opens nodes a, b and c that talk over TCP.
func openMachines(t *testing.T) map[string]*machine {
	t.Helper()
	machines := map[string]*machine{}
	for _, id := range []string{"a", "b", "c"} {
		machines[id] = newMachine(t, id)
	}
	for _, m := range machines {
		for id, to := range machines {
			if to != m {
				m.connect(t, id, to)
			}
			m.ways = append(m.ways, to.in[0]) // nobody goes around a cut
		}
	}
	for _, m := range machines {
		m.open(t)
	}
	return machines
}

func TestThreeMachinesAreOneCluster(t *testing.T) {
	ctx, machines := within(t, time.Minute), openMachines(t)
	a := machines["a"]
	require.NoError(t, a.CreateTopic(ctx, quorumlog.TopicConfig{Name: "orders", Partitions: 3, Replicas: 3}))
	p, err := machines["b"].Producer(quorumlog.ProducerConfig{Name: "shop"})
	require.NoError(t, err)
	want := map[string]bool{}
	send := func(from, to int) {
		for i := from; i < to; i++ {
			v := strconv.Itoa(i)
			_, err := p.Send(ctx, quorumlog.Record{Topic: "orders", Key: []byte(v), Value: []byte(v)})
			require.NoError(t, err)
			want[v] = true
		}
	}
	send(0, 100)

	// A machine other than the producer's leads, and is not heard of any more.
	p0 := quorumlog.TopicPartition{Topic: "orders"}
	if leaderOf(t, ctx, a.Node, "") == "b" {
		require.NoError(t, a.TransferLeader(ctx, p0, "c"))
	}
	gone := leaderOf(t, ctx, a.Node, "b")
	machines[gone].vanish()
	send(100, 200)
	machines[gone].heal()
	send(200, 300)
	require.NoError(t, p.Close(ctx))

	// A machine that was not there at the beginning: it knows one of the others, and
	// they hear of it from each other.
	asked, d := machines["b"], newMachine(t, "d")
	d.connect(t, "c", machines["c"])
	d.cfg.Join = true
	d.open(t)
	require.NoError(t, asked.AddNode(ctx, "d"))
	s, err := asked.Status(ctx, "orders")
	require.NoError(t, err)
	from := s.Partitions[1].Leader
	require.NoError(t, asked.MoveReplica(ctx, quorumlog.TopicPartition{Topic: "orders", Partition: 1}, from, "d"))

	machines["d"] = d
	for id, m := range machines {
		got := map[string]bool{}
		for _, v := range values(t, ctx, m.Node, "orders") {
			require.False(t, got[v], "%s is there twice, node %s says", v, id)
			got[v] = true
		}
		require.Equal(t, want, got, "node %s", id)
	}

	// Groups and transactions are the same calls.
	x, err := d.Txn("billing", quorumlog.TxnConfig{})
	require.NoError(t, err)
	defer x.Close(ctx)
	g, err := d.Group(ctx, "billing", []string{"orders"}, quorumlog.GroupConfig{})
	require.NoError(t, err)
	handled, enough := 0, errors.New("enough")
	err = quorumlog.Pipe(ctx, g, x, func(tx *quorumlog.Tx, b quorumlog.Batch) error {
		for _, r := range b.Records {
			handled++
			if err := tx.Send(quorumlog.Record{Topic: "invoices", Value: r.Value}); err != nil {
				return err
			}
		}
		if handled == len(want) {
			return enough
		}
		return nil
	})
	require.ErrorIs(t, err, enough)
	require.NoError(t, g.Close(ctx))
}

func TestANodeThatRestartsOnAnotherMachineGoesOn(t *testing.T) {
	ctx, machines := within(t, time.Minute), openMachines(t)
	a, c := machines["a"], machines["c"]
	_, err := a.Produce(ctx, "orders", quorumlog.Record{Value: []byte("1")})
	require.NoError(t, err)
	require.NoError(t, c.Close())
	_, err = a.Produce(ctx, "orders", quorumlog.Record{Value: []byte("2")})
	require.NoError(t, err)
	c.open(t)
	require.Eventually(t, func() bool {
		return fmt.Sprint(values(t, ctx, c.Node, "orders")) == "[1 2]"
	}, 20*time.Second, time.Millisecond)
}

func TestConfigSaysHowNodesReachEachOther(t *testing.T) {
	two := map[string]string{"a": "host-a:7400", "b": "host-b:7400"}
	for says, cfg := range map[string]quorumlog.Config{
		"no way to them": {ID: "a", Peers: two},
		"both Network":   {ID: "a", Peers: two, Network: quorumlog.NewNetwork(), Listen: "127.0.0.1:0"},
		"TLS is nil":     {ID: "a", Peers: two, Listen: ":0"},
		"without Listen": {Insecure: true},
		"host-b":         {ID: "a", Peers: map[string]string{"a": "host-a:7400", "b": "host-b"}, Listen: "127.0.0.1:0"},
	} {
		_, err := quorumlog.Open(t.TempDir(), cfg)
		require.ErrorIs(t, err, quorumlog.ErrInvalid)
		require.ErrorContains(t, err, says)
	}
	n, err := quorumlog.OpenMemory(quorumlog.Config{})
	require.NoError(t, err)
	require.Nil(t, n.Addr())
	require.NoError(t, n.Close())
}
