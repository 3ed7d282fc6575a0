package torture

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlog/quorumlog/cluster"
	"github.com/quorumlog/quorumlog/consumer"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

// stable waits until no transaction holds readers back, at any node.
func (f *fleet) stable(ctx context.Context) error {
	for _, tp := range partitions() {
		for _, n := range f.running() {
			for {
				_, stable, err := n.Offsets(ctx, tp, record.ReadCommitted)
				if err != nil {
					return err
				}
				_, high, err := n.Offsets(ctx, tp, record.ReadUncommitted)
				if err != nil {
					return err
				}
				if stable == high {
					break
				}
				if !pause(ctx, 20*time.Millisecond) {
					return fmt.Errorf("%w: the last stable offset of %v stands still at %d, the high watermark is %d", ctx.Err(), tp, stable, high)
				}
			}
		}
	}
	return nil
}

// heal ends every fault. Afterwards everybody must get on.
func (f *fleet) heal(ctx context.Context) {
	f.network.Heal()
	for _, m := range f.machines {
		if m.node.Load() == nil {
			f.start(ctx, m)
		}
	}
}

// within runs something that must end without an error, in time.
func (f *fleet) within(ctx context.Context, what string, do func(ctx context.Context) error) bool {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Bound)
	defer cancel()
	f.story.step("now %s", what)
	err := do(ctx)
	switch {
	case err == nil:
		return true
	case ctx.Err() != nil:
		f.history.violate(NoProgress, "%s: not within %v: %v\n%s%s", what, f.cfg.Bound, err, f.statuses(), stacks())
	default:
		f.history.violate(NoProgress, "%s: %v", what, err)
	}
	return false
}

// statuses returns what each node's replicas say of themselves.
func (f *fleet) statuses() string {
	var lines []string
	for _, n := range f.running() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		for s, err := range n.Watch(ctx) { // each once, then what changes
			if err == nil {
				lines = append(lines, fmt.Sprintf("%v on %s: leader %q epoch %d start %d stable %d high %d end %d unsure %t asleep %t error %v\n",
					s.TopicPartition, s.Node, s.Leader, s.Epoch, s.StartOffset, s.LastStableOffset, s.HighWatermark, s.EndOffset, s.Unsure, s.Asleep, s.Err))
			}
		}
		cancel()
	}
	slices.Sort(lines)
	return strings.Join(lines, "") + f.troubles.String()
}

// ready waits until each node reaches every partition's leader.
func (f *fleet) ready(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, m := range f.machines {
		n := m.node.Load()
		if n == nil {
			return fmt.Errorf("%s does not run", m.id)
		}
		for _, t := range topics {
			g.Go(func() error { return n.WaitReady(ctx, t.name) })
		}
	}
	return g.Wait()
}

// highs returns the high watermarks, on which all nodes agree sooner or later: the
// markers of transactions that nobody has ended come late.
func (f *fleet) highs(ctx context.Context) (map[record.TopicPartition]record.Offset, error) {
	highs := map[record.TopicPartition]record.Offset{}
	for _, tp := range partitions() {
		for {
			all, err := f.ends(ctx, tp)
			if err != nil {
				return nil, err
			}
			highs[tp] = all[0]
			if slices.Min(all) == slices.Max(all) {
				break
			}
			if !pause(ctx, 20*time.Millisecond) {
				return nil, fmt.Errorf("%w: %v ends at %d by the nodes", ctx.Err(), tp, all)
			}
		}
	}
	return highs, nil
}

// ends returns the high watermark of a partition as each node gives it.
func (f *fleet) ends(ctx context.Context, tp record.TopicPartition) (all []record.Offset, err error) {
	for _, m := range f.machines {
		floor := f.history.floor(tp)
		_, high, err := m.node.Load().Offsets(ctx, tp, record.ReadUncommitted)
		if err != nil {
			return nil, err
		}
		f.history.reached(m.id, tp, floor, high)
		all = append(all, high)
	}
	return all, nil
}

// readAll reads everything through every node and compares.
func (f *fleet) readAll(ctx context.Context) error {
	for _, m := range f.machines {
		src := f.cfg.WrapSource(m.node.Load())
		visible := map[sentValue]bool{}
		for _, tp := range partitions() {
			start, all, err := f.readOne(ctx, m.id, src, tp, record.ReadUncommitted)
			if err != nil {
				return fmt.Errorf("read %v through %s: %w", tp, m.id, err)
			}
			f.history.final(m.id, tp, start, all)
			start, committed, err := f.readOne(ctx, m.id, src, tp, record.ReadCommitted)
			if err != nil {
				return fmt.Errorf("read what is committed of %v through %s: %w", tp, m.id, err)
			}
			for _, v := range f.history.finalCommitted(m.id, tp, start, committed) {
				visible[v] = true
			}
		}
		f.history.finalTransactions(m.id, visible)
	}
	return nil
}

// readOne reads one partition from its log start offset to its end. who is the
// node it is read through.
func (f *fleet) readOne(ctx context.Context, who string, src consumer.Source, tp record.TopicPartition, iso record.Isolation) (start record.Offset, found []placed, err error) {
	start, _, err = src.Offsets(ctx, tp, iso)
	if err != nil {
		return 0, nil, err
	}
	next, t := start, topicOf(tp.Topic)
	for rec, err := range consumer.Read(ctx, src, tp.Topic, consumer.Partition(tp.Partition), consumer.Isolation(iso), consumer.UntilEnd()) {
		if err != nil {
			return 0, nil, err
		}
		v, err := parse(tp, rec.Value)
		if err != nil {
			f.history.violate(BadData, "%s at the end, offset %d: %v", who, rec.Offset, err)
			continue
		}
		if t.retention > 0 && len(found) == 0 {
			start, next = max(start, rec.Offset), max(start, rec.Offset) // it may just have moved
		}
		if rec.Offset < next || rec.Offset > next && !t.transactions {
			f.history.violate(Skipped, "%s at the end got offset %d of %v, want %d", who, rec.Offset, tp, next)
		}
		found = append(found, placed{rec.Offset, v})
		next = rec.Offset + 1
	}
	return start, found, nil
}

// blackout takes the power from all machines at once and starts them in any order.
func (f *fleet) blackout(ctx context.Context, rng *rand.Rand) {
	for _, m := range f.machines {
		f.powerOff(m, uint64(rng.IntN(3)))
	}
	for _, i := range rng.Perm(len(f.machines)) {
		f.start(ctx, f.machines[i])
	}
}

// settle waits until all replicas of each partition end at the same entry: a follower
// that is behind must catch up though nobody writes.
func (f *fleet) settle(ctx context.Context) error {
	for {
		behind := f.behind()
		if behind == "" {
			return nil
		}
		if !pause(ctx, 50*time.Millisecond) {
			return fmt.Errorf("%s: %w", behind, ctx.Err())
		}
	}
}

// behind names a partition whose replicas end at different entries, "" if there is none.
func (f *fleet) behind() string {
	for dir, holders := range f.replicas() {
		ends := map[record.EntryNumber]string{}
		for _, m := range holders {
			ends[lastEntry(m, dir)] += " " + m.id
		}
		if len(ends) > 1 {
			return fmt.Sprintf("%s ends at %v", dir, ends)
		}
	}
	return ""
}

// lastEntry returns the number of the last entry in the files of a running replica.
func lastEntry(m *machine, dir string) record.EntryNumber {
	names, _ := m.disk.List(dir) // it changes while we look
	names = slices.DeleteFunc(names, func(n string) bool { return path.Ext(n) != ".log" })
	if len(names) == 0 {
		return 0
	}
	b, _ := m.disk.ReadFile(path.Join(dir, slices.Max(names)))
	h, err := segment.DecodeHeader(b)
	if err != nil {
		return 0
	}
	const frame = 40 // bytes of an entry's header; those from 4 to 8 are its payload's length
	n := h.BaseEntry - 1
	for b = b[segment.HeaderSize:]; len(b) >= frame; n++ {
		size := frame + int(binary.BigEndian.Uint32(b[4:]))
		if len(b) < size {
			break
		}
		b = b[size:]
	}
	return n
}

// stopAll stops all nodes in peace.
func (f *fleet) stopAll() {
	var g errgroup.Group
	for _, m := range f.machines {
		g.Go(func() error { f.stop(m); return nil })
	}
	_ = g.Wait()
}

// gather brings every partition to as many machines as possible, wherever moves have
// left it.
func (f *fleet) gather(ctx context.Context) {
	n := f.machines[0].node.Load()
	if n == nil {
		return // it could not be started, which is a finding of its own
	}
	// A node that gave up leaving may have been decided on since.
	if !f.within(ctx, "every node is a member", func(ctx context.Context) error {
		for _, m := range f.machines {
			if err := n.AddNode(ctx, m.id); err != nil {
				return err
			}
		}
		return nil
	}) {
		return
	}
	var moves []cluster.Move
	for _, tp := range partitions() {
		moves = append(moves, cluster.Move{Partition: tp, To: f.ids()[:f.cfg.most()]})
	}
	f.within(ctx, "every partition moves to all machines that it may be on", func(ctx context.Context) error {
		return n.Reassign(ctx, moves, nil)
	})
}

// moved waits until no partition is on its way to other nodes, and the files are
// where the partitions are, and nowhere else.
func (f *fleet) moved(ctx context.Context) error {
	for {
		why, err := f.moving(ctx)
		if err != nil || why == "" {
			return err
		}
		if !pause(ctx, 50*time.Millisecond) {
			return fmt.Errorf("%w: %s", ctx.Err(), why)
		}
	}
}

// moving says what is not where it belongs, "" if all is.
func (f *fleet) moving(ctx context.Context) (string, error) {
	n := f.machines[0].node.Load()
	moves, err := n.Moves(ctx)
	if err != nil || len(moves) > 0 {
		return fmt.Sprintf("moves %v", moves), err
	}
	f.placed = map[record.TopicPartition][]string{{Topic: cluster.MetadataTopic}: f.ids()}
	for _, topic := range f.topics() {
		s, err := n.Status(ctx, topic)
		if err != nil {
			return "", err
		}
		for _, p := range s.Partitions {
			f.placed[record.TopicPartition{Topic: topic, Partition: p.Partition}] = slices.Sorted(slices.Values(p.Replicas))
		}
	}
	for dir, holders := range f.replicas() {
		if want := f.placed[partitionOf(dir)]; !slices.Equal(want, holders.ids()) {
			return fmt.Sprintf("%s is on %v, want %v", dir, holders.ids(), want), nil
		}
	}
	return "", nil
}

// topics are those that are written to, and the cluster's own but for the metadata.
func (f *fleet) topics() []string {
	names := []string{cluster.OffsetsTopic, cluster.TransactionsTopic, grows}
	for _, t := range topics {
		names = append(names, t.name)
	}
	return names
}

// groupRecords returns what the newest records about groups say, for people.
func (f *fleet) groupRecords(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Bound)
	defer cancel()
	newest := map[string]string{}
	for rec, err := range consumer.Read(ctx, f.running()[0], cluster.OffsetsTopic, consumer.UntilEnd()) {
		if err != nil {
			return err.Error()
		}
		if rec.Value == nil {
			delete(newest, string(rec.Key))
		} else {
			newest[string(rec.Key)] = string(rec.Value)
		}
	}
	var b strings.Builder
	for _, k := range slices.Sorted(keys(newest)) {
		fmt.Fprintf(&b, "%s = %s\n", k, newest[k])
	}
	return b.String()
}

// stacks returns what every goroutine is doing.
func stacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}
