package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlog/quorumlog"
	"github.com/quorumlog/quorumlog/cluster"
	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/replica"
	"github.com/quorumlog/quorumlog/transport"
)

func p11() []scenario {
	return []scenario{
		{id: "P11/spread", title: "3 nodes, 3 copies, fsync, async produce to many partitions", unit: recordsPerSecond, once: true, rows: []row{
			{"quorumlog, 1,000 partitions", "FlushEach, RoundRobin", syncedQuorum, goal{}, spread(1000)},
			{"quorumlog, 100 partitions", "FlushEach, RoundRobin", syncedQuorum, goal{}, spread(100)},
			{"quorumlog, 10 partitions", "FlushEach, RoundRobin", syncedQuorum, goal{}, spread(10)},
			{"quorumlog, 1 partition", "FlushEach, RoundRobin", syncedQuorum, times(0.5), spread(1)},
		}},
		{id: "P11/batches", title: "3 copies, fsync, 50 partitions, one batch in flight in each", unit: batchesPerSecond, rows: []row{
			{"quorumlog", "FlushEach, 3 nodes, batches of one record", syncedQuorum, goal{}, withTopic(3, quorumlog.TopicConfig{Partitions: manyPartitions, Flush: quorumlog.FlushEach}, batches)},
			{"quorumlog, blocking fdatasync", "the same; each append holds up a thread", syncedQuorum, times(2), blockingNodes},
			{"files, blocking fdatasync", "50 x 3 files, each with its goroutine", "fdatasync on 3 of 3 copies", goal{}, blocking},
			{"quorumlog's files alone", "50 x 3 files, each with its goroutine", "fdatasync on 3 of 3 copies", goal{}, notBlocking},
		}},
	}
}

const manyPartitions = 50

// spread passes records one by one to a producer, each to the next of so many
// partitions, or of as many as the run may have. In the duration of other runs it
// would do little more than fill the producer's buffer, so it takes five times as long.
func spread(partitions int) func(context.Context, env) (sample, error) {
	return func(ctx context.Context, e env) (sample, error) {
		some := min(partitions, e.partitions)
		e.duration *= 5
		cfg := quorumlog.TopicConfig{Partitions: some, Flush: quorumlog.FlushEach}
		s, err := withTopic(3, cfg, func(ctx context.Context, e env, n *quorumlog.Node) (sample, error) {
			return sendBy(ctx, e, n, quorumlog.ProducerConfig{Partitioner: quorumlog.RoundRobin}, some)
		})(ctx, e)
		if some < partitions {
			s.note = fmt.Sprintf("only %d partitions in this run", some)
		}
		return s, err
	}
}

// batches has a caller for each partition, who writes one record and waits, again and
// again: each record is a batch of its own.
func batches(ctx context.Context, e env, n *quorumlog.Node) (sample, error) {
	p, err := n.Producer(quorumlog.ProducerConfig{Partitioner: quorumlog.ByPartition})
	if err != nil {
		return sample{}, err
	}
	return batchesOf(ctx, e, p)
}

func batchesOf(ctx context.Context, e env, p *quorumlog.Producer) (sample, error) {
	defer p.Close(ctx)
	each := make([]sample, manyPartitions)
	g, ctx := errgroup.WithContext(ctx)
	for i := range each {
		g.Go(func() (err error) {
			r := quorumlog.Record{Topic: topic, Partition: int32(i), Value: e.value()}
			each[i], err = calls(e.duration, 1, func() error {
				_, err := p.Send(ctx, r)
				return err
			})
			return err
		})
	}
	err := g.Wait()
	return together(each), err
}

// blockingNodes is batches on nodes whose files sync as anybody's would, put together
// here since Open has no setting for it.
func blockingNodes(ctx context.Context, e env) (s sample, err error) {
	nw, peers := transport.NewNetwork(), []string{"0", "1", "2"}
	var nodes []*cluster.Node
	var all closers
	defer func() { err = errors.Join(err, all.Close()) }()
	for _, id := range peers {
		dir := filepath.ToSlash(filepath.Join(e.dir, id))
		fsys := vfs.NewCapped(vfs.OS, vfs.DefaultLimit())
		if err := fsys.MkdirAll(dir); err != nil {
			return sample{}, err
		}
		stable, err := replica.OpenStable(filepath.Join(dir, "votes.db"))
		if err != nil {
			return sample{}, err
		}
		all = append(all, stable)
		endpoint, err := nw.Join(id)
		if err != nil {
			return sample{}, err
		}
		all = append(all, endpoint)
		n, err := cluster.Open(ctx, cluster.Config{FS: fsys, Dir: dir, Stable: stable, Endpoint: endpoint, Peers: peers})
		if err != nil {
			return sample{}, err
		}
		all, nodes = append(all, n), append(nodes, n)
	}
	if _, err := nodes[0].CreateTopic(ctx, quorumlog.TopicConfig{Name: topic, Partitions: manyPartitions, Replicas: 3, Flush: quorumlog.FlushEach}); err != nil {
		return sample{}, err
	}
	p, err := producer.New(nodes[0].Client(), producer.Config{Partitioner: quorumlog.ByPartition})
	if err != nil {
		return sample{}, err
	}
	return batchesOf(ctx, e, p)
}

// closers close in the reverse order.
type closers []io.Closer

func (c closers) Close() error {
	var errs []error
	for _, one := range slices.Backward(c) {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

func blocking(_ context.Context, e env) (sample, error) { return copies(e, blockingFile) }

// notBlocking is blocking with files as quorumlog's, whose Sync holds up no thread
// where the system can do that.
func notBlocking(_ context.Context, e env) (sample, error) {
	fsys := vfs.NewOS()
	s, err := copies(e, func(name string) (syncer, error) { return fsys.Create(filepath.ToSlash(name)) })
	return s, errors.Join(err, fsys.Close())
}

// copies appends what a batch of one record has to a file for each copy of each
// partition. A batch is there when all of its copies are.
func copies(e env, create func(name string) (syncer, error)) (sample, error) {
	const copies = 3
	each := make([]sample, copies*manyPartitions)
	var g errgroup.Group
	for i := range each {
		g.Go(func() (err error) {
			each[i], err = appendAndSync(e, create, strconv.Itoa(i))
			return err
		})
	}
	err := g.Wait()
	s := together(each)
	s.records /= copies
	return s, err
}
