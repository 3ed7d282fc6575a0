package torture

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorumlog/quorumlog/cluster"
	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/replica"
	"github.com/quorumlog/quorumlog/transport"
)

// errDisk is what a broken disk says.
var errDisk = errors.New("injected disk error")

const dataDir = "data"

// machine is what outlives a node's process: its disk, its votes and its place
// in the network. The chaos goroutine, and after it verify, starts and stops it.
type machine struct {
	id       string
	disk     *vfs.Mem
	stable   *replica.Stable
	endpoint transport.Endpoint
	node     atomic.Pointer[cluster.Node] // nil while it does not run; clients look
	broken   atomic.Bool                  // its disk has had a fault since the start
	joins    bool                         // it is not the founder any more that it was
}

// machines are some machines, in the order of their ids.
type machines []*machine

// fleet is all machines.
type fleet struct {
	cfg      Config
	history  *history
	story    *story
	network  network
	machines machines
	// partitions is how many the topic that grows was asked to have.
	partitions int
	troubles   troubles // of replication
	// placed is where the partitions are in the end: ids of machines, sorted.
	placed map[record.TopicPartition][]string
}

func newFleet(cfg Config, h *history, s *story) (*fleet, error) {
	f := &fleet{cfg: cfg, history: h, story: s}
	for i := range cfg.Nodes {
		f.machines = append(f.machines, &machine{id: fmt.Sprintf("n%d", i+1), disk: vfs.NewMem(), stable: replica.NewMemoryStable()})
	}
	var err error
	f.network, err = newNetwork(cfg, f.ids())
	return f, err
}

func (f *fleet) ids() []string { return f.machines.ids() }

func (ms machines) ids() (ids []string) {
	for _, m := range ms {
		ids = append(ids, m.id)
	}
	return ids
}

// start starts the node of m. That must always work.
func (f *fleet) start(ctx context.Context, m *machine) {
	f.story.step("start %s", m.id)
	e, err := f.network.Join(m.id)
	if err != nil {
		f.history.violate(Unopened, "%s joins the network: %v", m.id, err)
		return
	}
	m.broken.Store(false)
	n, err := cluster.Open(ctx, cluster.Config{
		FS: f.cfg.WrapFS(m.disk), Dir: dataDir, Stable: m.stable, Endpoint: e, Peers: f.ids(), Join: m.joins,
		ElectionTimeout: f.cfg.temper().election, SleepAfter: f.cfg.temper().sleep,
		RetentionInterval: 3 * time.Second, CompactionFloor: 8 << 10, Logger: slog.New(&listener{fleet: f, machine: m}),
	})
	if err != nil {
		f.history.violate(Unopened, "%s: %v", m.id, err)
		_ = e.Close()
		return
	}
	m.endpoint = e
	m.node.Store(n)
}

// stop closes the node of m as a user would.
func (f *fleet) stop(m *machine) {
	n := m.node.Swap(nil)
	if n == nil {
		return
	}
	f.story.step("stop %s", m.id)
	f.close(m, n)
	_ = m.endpoint.Close()
}

// powerOff is the loss of power: the network is gone first, so that the dying
// node can tell nobody. The disk comes back with what survived by the seed.
func (f *fleet) powerOff(m *machine, seed uint64) {
	n := m.node.Swap(nil)
	if n == nil {
		return
	}
	f.story.step("power loss of %s (reboot seed %d)", m.id, seed)
	m.broken.Store(true)
	_ = m.endpoint.Close()
	m.disk.Crash()
	f.close(m, n)
	m.disk = m.disk.Reboot(seed)
}

// close waits for the node's end, which must come.
func (f *fleet) close(m *machine, n *cluster.Node) {
	began := time.Now()
	done := make(chan error, 1)
	go func() { done <- n.Close() }()
	t := time.NewTimer(f.cfg.Bound)
	defer t.Stop()
	select {
	case err := <-done:
		if err != nil && !m.broken.Load() && !injected(err) {
			f.history.violate(BadError, "close of %s: %v", m.id, err)
		}
	case <-t.C:
		f.history.violate(NoProgress, "close of %s takes more than %v\n%s", m.id, f.cfg.Bound, stacks())
		<-done
	}
	if d := time.Since(began); d > 5*time.Second {
		f.story.step("closing %s took %v", m.id, d)
	}
}

// running returns the nodes that run.
func (f *fleet) running() (nodes []*cluster.Node) {
	for _, m := range f.machines {
		if n := m.node.Load(); n != nil {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// injected reports whether err comes from a fault of a disk.
func injected(err error) bool {
	for _, e := range []error{errDisk, vfs.ErrCrashed, vfs.ErrNoSpace} {
		if errors.Is(err, e) || strings.Contains(err.Error(), e.Error()) {
			return true
		}
	}
	return false
}

// troubles is the last of each kind of trouble that replication had, and when.
type troubles struct {
	mu   sync.Mutex
	last map[string]string // by kind and beginning
}

func (t *troubles) note(kind, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == nil {
		t.last = map[string]string{}
	}
	what, _, _ := strings.Cut(text, " error=")
	t.last[kind+what] = time.Now().Format(time.TimeOnly) + " " + text + "\n"
}

func (t *troubles) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Values(t.last)), "")
}

// listener is the slog.Handler of one node. What a node calls an error must be
// the fault of its disk.
type listener struct {
	fleet   *fleet
	machine *machine
	attrs   []slog.Attr
}

func (l *listener) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (l *listener) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	var cause error
	fmt.Fprintf(&b, "%s %v %s", l.machine.id, r.Level, r.Message)
	note := func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok {
			cause = err
		}
		fmt.Fprintf(&b, " %v", a)
		return true
	}
	for _, a := range l.attrs {
		note(a)
	}
	r.Attrs(note)
	for _, noise := range []string{"failed to appendEntries", "failed to heartbeat", "failed to make request", "failed to contact"} {
		if strings.Contains(r.Message, noise) {
			l.fleet.troubles.note(r.Message, b.String())
			return nil
		}
	}
	if cause != nil && strings.Contains(cause.Error(), vfs.ErrCrashed.Error()) {
		return nil // the last words of the dead
	}
	l.fleet.story.hear(b.String())
	if r.Level < slog.LevelError || cause == nil || injected(cause) || errors.Is(cause, record.ErrClosed) || errors.Is(cause, context.Canceled) {
		return nil
	}
	if l.machine.broken.Load() && l.machine.disk.Crashed() {
		return nil
	}
	l.fleet.history.violate(Stopped, "%s", b.String())
	return nil
}

func (l *listener) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &listener{fleet: l.fleet, machine: l.machine, attrs: append(l.attrs[:len(l.attrs):len(l.attrs)], attrs...)}
}

func (l *listener) WithGroup(string) slog.Handler { return l }

// client is the cluster as one client sees it: through the node of its home
// machine, or the next one that runs.
type client struct {
	fleet *fleet
	mu    sync.Mutex
	home  int
}

func (f *fleet) client(home int) *client { return &client{fleet: f, home: home} }

// moveHome makes another machine the home.
func (c *client) moveHome(rng *rand.Rand) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.home = rng.IntN(len(c.fleet.machines))
}

func (c *client) node() (*cluster.Node, error) {
	c.mu.Lock()
	home := c.home
	c.mu.Unlock()
	ms := c.fleet.machines
	for i := range ms {
		if n := ms[(home+i)%len(ms)].node.Load(); n != nil {
			return n, nil
		}
	}
	return nil, fmt.Errorf("no node runs: %w", record.ErrUnreachable)
}
