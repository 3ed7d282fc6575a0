package torture

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/quorumlog/quorumlog/cluster"
	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

// replicas returns the directories of partitions, and which machines have them.
func (f *fleet) replicas() map[string]machines {
	holders := map[string]machines{}
	for _, m := range f.machines {
		dir := path.Join(dataDir, "partitions")
		names, err := m.disk.List(dir)
		if err != nil {
			f.history.violate(Unopened, "%s of %s: %v", dir, m.id, err)
		}
		for _, name := range names {
			holders[path.Join(dir, name)] = append(holders[path.Join(dir, name)], m)
		}
	}
	return holders
}

// partitionOf returns the partition whose directory it is: <topic>.<id>-<partition>.
func partitionOf(dir string) record.TopicPartition {
	topic, rest, _ := strings.Cut(path.Base(dir), ".")
	_, p, _ := strings.Cut(rest, "-")
	n, _ := strconv.Atoi(p)
	return record.TopicPartition{Topic: topic, Partition: int32(n)}
}

// replicated returns the high watermarks of all partitions, the cluster's own too.
func (f *fleet) replicated(ctx context.Context, highs map[record.TopicPartition]record.Offset) (map[record.TopicPartition]record.Offset, error) {
	all := maps.Clone(highs)
	n := f.machines[0].node.Load()
	for _, topic := range []string{cluster.MetadataTopic, cluster.OffsetsTopic, cluster.TransactionsTopic} {
		count := 1
		if topic != cluster.MetadataTopic {
			var err error
			if count, err = n.Partitions(ctx, topic); err != nil {
				return nil, err
			}
		}
		for p := range count {
			tp := record.TopicPartition{Topic: topic, Partition: int32(p)}
			_, high, err := n.Offsets(ctx, tp, record.ReadUncommitted)
			if err != nil {
				return nil, err
			}
			all[tp] = high
		}
	}
	return all, nil
}

// compare compares the replicas of each partition on their disks, byte by byte
// below the high watermark, and returns how many changes of leader they have seen.
func (f *fleet) compare(ctx context.Context, highs map[record.TopicPartition]record.Offset) (changes int) {
	holders := f.replicas()
	for _, dir := range slices.Sorted(keys(holders)) {
		tp := partitionOf(dir)
		high, ok := highs[tp]
		if !ok {
			continue
		}
		if want := f.placed[tp]; !slices.Equal(want, holders[dir].ids()) {
			f.history.violate(Diverged, "%s is on %v, want %v", dir, holders[dir].ids(), want)
		}
		changes += f.compareOne(ctx, tp, dir, holders[dir], high)
	}
	return changes
}

func (f *fleet) compareOne(ctx context.Context, tp record.TopicPartition, dir string, holders machines, high record.Offset) (changes int) {
	var logs []*log.Log
	for _, m := range holders {
		l, err := f.openLog(ctx, m, dir)
		if err != nil {
			f.history.violate(Unopened, "%s of %s: %v", dir, m.id, err)
			return 0
		}
		defer l.Close()
		if end := l.Bounds().End; end < high {
			f.history.violate(Diverged, "%s of %s ends at %d, below the high watermark %d", dir, m.id, end, high)
		}
		logs = append(logs, l)
	}
	f.compareRetention(tp, logs[0])
	first := record.EntryNumber(1)
	next := logs[0].Bounds().Next
	for _, l := range logs {
		first, next = max(first, l.Bounds().First), min(next, l.Bounds().Next)
	}
	var term uint64
	for n := first; n < next; n++ {
		var want segment.Entry
		for i, l := range logs {
			e, err := l.ReadEntry(n)
			if err != nil {
				f.history.violate(Diverged, "%s of %s: entry %d: %v", dir, holders[i].id, n, err)
				return changes
			}
			if i == 0 {
				want = e
			}
			if e.Term == want.Term && e.Kind == want.Kind && e.Offset == want.Offset && bytes.Equal(e.Data, want.Data) {
				continue
			}
			if e.Offset < high || want.Offset < high {
				f.history.violate(Diverged, "%s: entry %d is %v at offset %d of term %d on %s, and %v at offset %d of term %d on %s", dir, n,
					e.Kind, e.Offset, e.Term, holders[i].id, want.Kind, want.Offset, want.Term, holders[0].id)
			}
			return changes // above the high watermark nothing was promised
		}
		if n > first && want.Term != term {
			changes++
		}
		term = want.Term
	}
	return changes
}

// compareRetention checks that a replica has kept what retention leaves, at least
// half of it: the leader who decided counted whole segments, with headers and
// entries that are no records, and its segments end elsewhere.
func (f *fleet) compareRetention(tp record.TopicPartition, l *log.Log) {
	start, keep := f.history.start(tp), topicOf(tp.Topic).retention
	if start == 0 {
		return
	}
	var kept int64
	for n := l.Bounds().First; n < l.Bounds().Next; n++ {
		if e, err := l.ReadEntry(n); err == nil && e.Offset >= start {
			kept += int64(len(e.Data))
		}
	}
	if kept < keep/2 {
		f.history.violate(Overtrimmed, "%v has %d bytes from its log start %d on, and keeps %d", tp, kept, start, keep)
	}
}

// openLog opens a partition's log as its owner would.
func (f *fleet) openLog(ctx context.Context, m *machine, dir string) (*log.Log, error) {
	names, err := m.disk.List(dir)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(names, func(name string) bool { return strings.HasSuffix(name, ".log") })
	if i < 0 {
		return nil, fmt.Errorf("it has no segment: %q", names)
	}
	b, err := m.disk.ReadFile(path.Join(dir, names[i]))
	if err != nil {
		return nil, err
	}
	h, err := segment.DecodeHeader(b)
	if err != nil {
		return nil, err
	}
	return log.Open(ctx, dir, log.Config{FS: m.disk, TopicID: h.TopicID, Partition: h.Partition})
}
