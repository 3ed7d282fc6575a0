package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/quorumlog/quorumlog/cluster"
	"github.com/quorumlog/quorumlog/record"
)

// Run runs the torture and returns what it found. The error is about cfg, or
// about a cluster that did not even start; a broken promise is in the report.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	before := runtime.NumGoroutine()
	s := newStory(cfg.Log)
	h := newHistory(s)
	f, err := newFleet(cfg, h, s)
	if err != nil {
		return nil, err
	}
	r := &run{
		cfg: cfg, story: s, history: h, fleet: f,
		rng: rand.New(rand.NewPCG(cfg.Seed, 0)), faults: map[string]int{},
	}
	err = errors.Join(r.run(ctx), f.network.Close())
	if err != nil {
		return nil, err
	}
	r.leaks(ctx, before)
	report := h.report()
	report.Config, report.Faults, report.LeaderChanges = cfg, r.faults, r.changes
	if report.Failed() {
		report.Story = s.String()
	}
	return report, nil
}

// run is one run under way.
type run struct {
	cfg     Config
	story   *story
	history *history
	fleet   *fleet
	rng     *rand.Rand
	faults  map[string]int
	changes int
}

func (r *run) run(ctx context.Context) error {
	defer r.fleet.stopAll()
	for _, m := range r.fleet.machines {
		r.fleet.start(ctx, m)
	}
	if r.history.found() {
		return nil
	}
	for _, t := range topics {
		creating, cancel := context.WithTimeout(ctx, r.cfg.Bound)
		_, err := r.fleet.machines[0].node.Load().CreateTopic(creating, cluster.TopicConfig{
			Name: t.name, Partitions: int(t.partitions), Replicas: r.cfg.replicas(t), SegmentBytes: t.segmentBytes,
			RetentionBytes: t.retention, Flush: r.cfg.flush(t),
		})
		cancel()
		if err != nil {
			return fmt.Errorf("seed %d: create topic %s: %w", r.cfg.Seed, t.name, err)
		}
	}

	creating, cancel := context.WithTimeout(ctx, r.cfg.Bound)
	_, err := r.fleet.machines[0].node.Load().CreateTopic(creating, cluster.TopicConfig{Name: grows, Partitions: 1})
	cancel()
	if err != nil {
		return fmt.Errorf("seed %d: create topic %s: %w", r.cfg.Seed, grows, err)
	}
	r.fleet.partitions = 1

	var writers, others sync.WaitGroup
	writing, endWriting := context.WithCancel(ctx)
	defer writers.Wait()
	defer endWriting()
	reading, endReading := context.WithCancel(ctx)
	defer others.Wait()
	defer endReading()
	r.startWriters(writing, &writers)
	r.startTellers(writing, &writers)
	r.startReaders(reading, &others)

	r.breakThings(ctx)
	r.fleet.heal(ctx)
	if r.rng.IntN(2) == 0 {
		r.fleet.gather(ctx)
	}
	r.verify(ctx, func() {
		endWriting()
		writers.Wait()
	}, func() {
		endReading()
		others.Wait()
	})
	return nil
}

func (r *run) startWriters(ctx context.Context, wg *sync.WaitGroup) {
	for i := range writerCount {
		w := newWriter(int32(i), r.fleet, r.child())
		wg.Go(func() { w.run(ctx) })
	}
}

func (r *run) startTellers(ctx context.Context, wg *sync.WaitGroup) {
	for i := range tellerCount {
		t := newTeller(int32(firstTeller+i), fmt.Sprintf("teller-%d", i/2), r.fleet, r.child())
		wg.Go(func() { t.run(ctx) })
	}
}

func (r *run) startReaders(ctx context.Context, wg *sync.WaitGroup) {
	for i := range readerCount {
		for _, tp := range partitions() {
			rd := newReader(i, tp, r.fleet, r.child())
			wg.Go(func() { rd.run(ctx) })
		}
	}
	for g := range groupCount {
		for i := range groupSize {
			m := newMember(groupName(g), i, r.fleet, r.child())
			wg.Go(func() { m.run(ctx) })
		}
	}
}

func groupName(g int) string { return fmt.Sprintf("group-%d", g) }

// breakThings injects faults for the time of the run.
func (r *run) breakThings(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Duration)
	defer cancel()
	c := &chaos{fleet: r.fleet, rng: r.child(), faults: r.faults}
	c.run(ctx)
}

// child returns a source of chance of its own for one goroutine.
func (r *run) child() *rand.Rand { return rand.New(rand.NewPCG(r.rng.Uint64(), r.rng.Uint64())) }

// verify makes sure that everybody gets on and that all is there. It ends early
// when something is wrong.
func (r *run) verify(ctx context.Context, endWriting, endReading func()) {
	f := r.fleet
	highs := map[record.TopicPartition]record.Offset{}
	replicated := highs
	steps := []struct {
		what string
		do   func(ctx context.Context) error
	}{
		{"every partition has a leader that every node finds", f.ready},
		{"the topic that grows has all its partitions", f.grown},
		{"every node takes records", func(ctx context.Context) error {
			for i := range f.machines {
				w := newWriter(int32(writerCount+i), f, r.child())
				w.client.home = i
				if err := w.probe(ctx); err != nil {
					return err
				}
			}
			return newTeller(firstTeller+tellerCount, "probe", f, r.child()).probe(ctx)
		}},
		{"the writers finish", func(context.Context) error {
			endWriting()
			return nil
		}},
		{"no transaction holds readers back", f.stable},
		{"all nodes agree on the ends", func(ctx context.Context) (err error) {
			highs, err = f.highs(ctx)
			return err
		}},
		{"all is read through every node", f.readAll},
		{"readers and groups get to the ends", r.caughtUp},
		{"readers and groups finish", func(context.Context) error {
			endReading()
			return nil
		}},
		{"the power comes back everywhere", func(ctx context.Context) error {
			if r.rng.IntN(2) == 0 && !r.cfg.Relaxed {
				f.blackout(ctx, r.rng)
			}
			return f.ready(ctx)
		}},
		{"all is read once more", f.readAll},
		{"the ends have not moved", func(ctx context.Context) error {
			again, err := f.highs(ctx)
			for tp, high := range highs {
				// A transaction that has written nothing, and is timed out now, leaves markers.
				late := topicOf(tp.Topic).transactions && again[tp] > high
				if err == nil && again[tp] != high && !late {
					r.history.violate(Vanished, "%v ended at %d, and at %d after the loss of power", tp, high, again[tp])
				}
			}
			if err == nil {
				replicated, err = f.replicated(ctx, highs)
			}
			return err
		}},
		{"no partition moves", f.moved},
		{"followers catch up", f.settle},
	}
	for _, s := range steps {
		if r.history.found() || !f.within(ctx, s.what, s.do) {
			return
		}
	}
	r.history.finalLeaps()
	for g := range groupCount {
		for _, tp := range partitions() {
			r.history.finalGroup(groupPart{groupName(g), tp})
		}
	}
	f.stopAll()
	r.changes = f.compare(ctx, replicated)
}

// caughtUp waits until every reader and every group has got the last record that
// it is shown.
func (r *run) caughtUp(ctx context.Context) error {
	h := r.history
	for _, tp := range partitions() {
		for i := range readerCount {
			s, end := stream{fmt.Sprintf("reader %d", i), tp}, h.lastShown(tp, isolation(i))
			if err := h.await(ctx, func() bool { return h.streams[s] >= end }); err != nil {
				return fmt.Errorf("%s is at %d of %d in %v: %w", s.who, h.position(s.who, tp), end, tp, err)
			}
		}
		for g := range groupCount {
			k, end := groupPart{groupName(g), tp}, h.lastShown(tp, record.ReadCommitted)
			if err := h.await(ctx, func() bool { return h.group(k).stored >= end }); err != nil {
				return fmt.Errorf("%s is at %d of %d in %v: %w\n%s", k.group, h.stored(k), end, tp, err, r.fleet.groupRecords(context.WithoutCancel(ctx)))
			}
		}
	}
	return nil
}

// stuck counts what is known to be left behind: hashicorp/raft 1.7.3 may wait for
// ever to hurry a replication that has just ended, when leadership is lost during
// its transfer; and with it who waits for the end of the transfer.
func stuck() int { return 2 * strings.Count(stacks(), "raft.(*Raft).leadershipTransfer(") }

// leaks waits until as many goroutines are left as there were before.
func (r *run) leaks(ctx context.Context, before int) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Bound)
	defer cancel()
	for runtime.NumGoroutine() > before+stuck() {
		if !pause(ctx, 20*time.Millisecond) {
			r.history.violate(Leak, "%d, before it were %d\n%s", runtime.NumGoroutine(), before, stacks())
			return
		}
	}
}
