package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quorumlog/quorumlog/cluster"
	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/record"
)

// fault is something to inject, so often among all.
type fault struct {
	name   string
	weight int
	costs  cost
	inject func(c *chaos, ctx context.Context, m *machine)
}

// cost is what a fault takes from the machine.
type cost int8

const (
	costsNothing  cost = iota
	costsTime          // it cannot do its part for a while
	costsPower         // also, it forgets what is not synced
	costsAllPower      // all machines forget that
)

// faults is what there is. The machine is one that nothing else is wrong with.
var faults = []fault{
	{"stop", 4, costsTime, func(c *chaos, ctx context.Context, m *machine) {
		c.fleet.stop(m)
		c.later(m, func() { c.fleet.start(ctx, m) })
	}},
	{"power loss", 5, costsPower, func(c *chaos, ctx context.Context, m *machine) {
		c.fleet.powerOff(m, c.rebootSeed())
		c.later(m, func() { c.fleet.start(ctx, m) })
	}},
	{"power loss in a write", 5, costsPower, func(c *chaos, ctx context.Context, m *machine) {
		n := c.rng.IntN(150)
		c.step("the disk of %s dies after %d more writes", m.id, n)
		m.broken.Store(true)
		m.disk.CrashAfter(n)
		c.later(m, func() {
			c.fleet.powerOff(m, c.rebootSeed())
			c.fleet.start(ctx, m)
		})
	}},
	{"amnesia", 3, costsPower, func(c *chaos, ctx context.Context, m *machine) {
		// Some know nothing of what is written now, one of those who do forgets it,
		// and these together are a majority.
		others := slices.DeleteFunc(c.shuffled(), func(o *machine) bool { return o == m })
		late, knowing := others[:len(others)/2], others[len(others)/2:]
		c.pauseAll(late)
		pause(ctx, 100*time.Millisecond+c.upTo(200*time.Millisecond))
		c.fleet.powerOff(m, c.rebootSeed())
		c.fleet.start(ctx, m)
		c.pauseAll(knowing)
		for _, o := range late {
			c.step("resume %s", o.id)
			c.fleet.network.Resume(o.id)
		}
		c.heal(m)
	}},
	{"disk full", 3, costsTime, func(c *chaos, _ context.Context, m *machine) {
		room := c.rng.Int64N(6000)
		c.step("the disk of %s has %d bytes left", m.id, room)
		m.disk.SetCapacity(m.disk.Used() + room)
		c.later(m, func() {
			c.step("the disk of %s has space", m.id)
			m.disk.SetCapacity(vfs.Unlimited)
		})
	}},
	{"restart on a full disk", 2, costsPower, func(c *chaos, ctx context.Context, m *machine) {
		room := c.rng.Int64N(300)
		c.step("the disk of %s has %d bytes left", m.id, room)
		m.disk.SetCapacity(m.disk.Used() + room)
		if c.rng.IntN(2) == 0 {
			c.fleet.stop(m)
		} else {
			c.fleet.powerOff(m, c.rebootSeed())
		}
		c.fleet.start(ctx, m)
		disk := m.disk
		c.later(m, func() {
			c.step("the disk of %s has space", m.id)
			disk.SetCapacity(vfs.Unlimited)
		})
	}},
	{"disk error", 3, costsTime, func(c *chaos, ctx context.Context, m *machine) {
		n := c.rng.IntN(100)
		c.step("write %d of %s will fail", n, m.id)
		m.broken.Store(true)
		m.disk.FailAt(n, errDisk)
		c.later(m, func() {
			m.disk.FailAt(-1, nil)
			c.fleet.stop(m)
			c.fleet.start(ctx, m)
		})
	}},
	{"read errors", 1, costsTime, func(c *chaos, ctx context.Context, m *machine) {
		c.step("reads of %s fail", m.id)
		m.broken.Store(true)
		m.disk.Fail(func(op vfs.Op, _ string) error {
			if op == vfs.OpRead && rand.IntN(20) == 0 {
				return errDisk
			}
			return nil
		})
		c.later(m, func() {
			m.disk.Fail(nil)
			c.fleet.stop(m)
			c.fleet.start(ctx, m)
		})
	}},
	{"isolation", 4, costsTime, func(c *chaos, _ context.Context, m *machine) {
		c.step("isolate %s", m.id)
		c.fleet.network.Isolate(m.id)
		c.heal(m)
	}},
	{"pause", 5, costsTime, func(c *chaos, _ context.Context, m *machine) {
		c.pauseAll(machines{m})
		c.later(m, func() {
			c.step("resume %s", m.id)
			c.fleet.network.Resume(m.id)
		})
	}},
	{"cut", 3, costsNothing, func(c *chaos, _ context.Context, m *machine) {
		o := c.other(m)
		c.step("cut %s - %s", m.id, o.id)
		c.fleet.network.Cut(m.id, o.id)
		c.heal(nil)
	}},
	{"cut one way", 4, costsNothing, func(c *chaos, _ context.Context, m *machine) {
		o := c.other(m)
		c.step("cut %s -> %s", m.id, o.id)
		c.fleet.network.CutOneWay(m.id, o.id)
		c.heal(nil)
	}},
	{"delay", 4, costsNothing, func(c *chaos, _ context.Context, m *machine) {
		o, d := c.other(m), time.Duration(c.rng.IntN(150))*time.Millisecond
		c.step("delay %s -> %s by %v", m.id, o.id, d)
		c.fleet.network.Delay(m.id, o.id, d)
		c.heal(nil)
	}},
	{"drop", 4, costsNothing, func(c *chaos, _ context.Context, m *machine) {
		o, rate := c.other(m), c.rng.Float64()/2
		c.step("drop %.0f %% of %s -> %s", 100*rate, m.id, o.id)
		c.fleet.network.Drop(m.id, o.id, rate)
		c.heal(nil)
	}},
	{"transfer", 6, costsNothing, func(c *chaos, ctx context.Context, m *machine) {
		c.transfer(ctx, m, c.partition(), "")
	}},
	{"transfers", 3, costsNothing, func(c *chaos, ctx context.Context, m *machine) {
		tp := c.partition()
		for range 3 + c.rng.IntN(4) {
			c.transfer(ctx, m, tp, c.shuffled()[0].id)
		}
	}},
	{"move", 4, costsNothing, func(c *chaos, ctx context.Context, m *machine) {
		c.move(ctx, m)
	}},
	{"grow", 2, costsNothing, func(c *chaos, ctx context.Context, m *machine) {
		c.grow(ctx, m)
	}},
	{leaves, 3, costsTime, func(c *chaos, ctx context.Context, m *machine) {
		done := make(chan struct{})
		c.mends = append(c.mends, mend{machine: m, do: func() {}, done: done})
		go func() {
			defer close(done)
			c.fleet.replace(ctx, m)
		}()
	}},
	{"retention", 4, costsNothing, func(c *chaos, ctx context.Context, m *machine) {
		for _, t := range topics {
			if t.retention == 0 {
				continue
			}
			c.step("retention of %s", t.name)
			ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
			_, _ = m.node.Load().Retain(ctx, t.name) // what cannot go now goes later
			cancel()
		}
	}},
	{"power loss of all", 1, costsAllPower, func(c *chaos, ctx context.Context, _ *machine) {
		c.mendAll()
		for _, m := range c.shuffled() {
			c.fleet.powerOff(m, c.rebootSeed())
			c.later(m, func() { c.fleet.start(ctx, m) })
		}
	}},
}

// leaves is a node that leaves the cluster for good and comes back as a new one.
const leaves = "leave"

func (c *chaos) pauseAll(ms machines) {
	for _, m := range ms {
		c.step("pause %s", m.id)
		c.fleet.network.Pause(m.id)
	}
}

// partition draws one.
func (c *chaos) partition() record.TopicPartition {
	tps := partitions()
	return tps[c.rng.IntN(len(tps))]
}

// transfer has the leader of tp hand over; if nobody can take over, so be it. The
// next leader is a machine, or the best one if that is "".
func (c *chaos) transfer(ctx context.Context, m *machine, tp record.TopicPartition, to string) {
	c.step("transfer leadership of %v to %q", tp, to)
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	_ = m.node.Load().TransferLeader(ctx, tp, to)
}

// move has a partition lie on other machines, as many as a majority of all at least.
// The move goes on when nobody waits for it any more, or is turned by the next.
func (c *chaos) move(ctx context.Context, m *machine) {
	tp, all := c.partition(), c.shuffled()
	majority := len(all)/2 + 1
	var to []string
	for _, m := range all[:majority+c.rng.IntN(c.fleet.cfg.most()-majority+1)] {
		to = append(to, m.id)
	}
	c.step("move %v to %q", tp, to)
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	_ = m.node.Load().Reassign(ctx, []cluster.Move{{Partition: tp, To: to}}, nil)
}

// grows is a topic that nobody writes to until the end, and that gets partitions.
const grows, grownMost = "grows", 12

// grow has it get one or two more. Whether it has, the end asks again.
func (c *chaos) grow(ctx context.Context, m *machine) {
	f := c.fleet
	if f.partitions >= grownMost {
		return
	}
	f.partitions += 1 + c.rng.IntN(2)
	c.step("have topic %q grow to %d partitions", grows, f.partitions)
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	_, _ = m.node.Load().AddPartitions(ctx, grows, f.partitions)
}

// grown has every node say again how large the topic is to be, which changes nothing
// but the first time at most, and writes to each partition through another node.
func (f *fleet) grown(ctx context.Context) error {
	var id record.TopicID
	for i, m := range f.machines {
		n := m.node.Load()
		t, err := n.AddPartitions(ctx, grows, f.partitions)
		if err != nil {
			return err
		}
		if i > 0 && t.ID != id || t.Partitions() != f.partitions {
			return fmt.Errorf("topic %q is %v with %d partitions for %s, not %v with %d", grows, t.ID, t.Partitions(), m.id, id, f.partitions)
		}
		id = t.ID
	}
	p, err := producer.New(f.client(0), producer.Config{Partitioner: producer.Manual})
	if err != nil {
		return err
	}
	defer func() { _ = p.Close(ctx) }()
	for i := range f.partitions {
		r := record.Record{Topic: grows, Partition: int32(i), Value: []byte("grown")}
		if _, err := p.Send(ctx, r); err != nil {
			return err
		}
		got, err := f.machines[i%len(f.machines)].node.Load().Fetch(ctx, r.TopicPartition(), 0, 1, record.ReadCommitted)
		if err != nil {
			return err
		}
		if len(got.Batches) != 1 {
			return fmt.Errorf("%v has %d batches, not the one that was written", r.TopicPartition(), len(got.Batches))
		}
	}
	return nil
}
