package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/quorumlog/quorumlog"
)

const topic = "bench"

// What an acknowledgement of quorumlog's stands on.
const (
	syncedOne     = "fdatasync on the one node"
	cachedOne     = "page cache of the one node"
	syncedQuorum  = "fdatasync on 2 of 3 copies"
	cachedQuorum  = "page cache of 2 of 3 copies"
	pageCacheRead = "read from the page cache"
)

// quorum is a cluster in this process, with one topic.
type quorum struct{ nodes []*quorumlog.Node }

func openQuorum(ctx context.Context, e env, nodes int, cfg quorumlog.TopicConfig) (*quorum, error) {
	nw, peers := quorumlog.NewNetwork(), map[string]string{}
	for i := range nodes {
		peers[fmt.Sprint(i)] = ""
	}
	var q quorum
	for i := range nodes {
		id := fmt.Sprint(i)
		n, err := quorumlog.Open(filepath.Join(e.dir, id), quorumlog.Config{
			ID: id, Network: nw, Peers: peers,
			Defaults: quorumlog.TopicConfig{Flush: cfg.Flush}, // which offsets and transactions follow
		})
		if err != nil {
			return nil, errors.Join(err, q.close())
		}
		q.nodes = append(q.nodes, n)
	}
	cfg.Name, cfg.Replicas, cfg.Partitions = topic, nodes, max(cfg.Partitions, 1)
	if err := q.nodes[0].CreateTopic(ctx, cfg); err != nil {
		return nil, errors.Join(err, q.close())
	}
	return &q, nil
}

func (q *quorum) close() error {
	var errs []error
	for _, n := range q.nodes {
		errs = append(errs, n.Close())
	}
	return errors.Join(errs...)
}

// withQuorum runs what a row measures on a fresh cluster with one partition.
func withQuorum(nodes int, flush quorumlog.FlushPolicy, run func(context.Context, env, *quorumlog.Node) (sample, error)) func(context.Context, env) (sample, error) {
	return withTopic(nodes, quorumlog.TopicConfig{Flush: flush}, run)
}

// withTopic runs what a row measures on a fresh cluster whose topic is kept as cfg says.
func withTopic(nodes int, cfg quorumlog.TopicConfig, run func(context.Context, env, *quorumlog.Node) (sample, error)) func(context.Context, env) (sample, error) {
	return func(ctx context.Context, e env) (sample, error) {
		q, err := openQuorum(ctx, e, nodes, cfg)
		if err != nil {
			return sample{}, err
		}
		s, err := run(ctx, e, q.nodes[0])
		return s, errors.Join(err, q.close())
	}
}

// withMemory is withQuorum on one node without a disk.
func withMemory(run func(context.Context, env, *quorumlog.Node) (sample, error)) func(context.Context, env) (sample, error) {
	return func(ctx context.Context, e env) (sample, error) {
		n, err := quorumlog.OpenMemory(quorumlog.Config{})
		if err != nil {
			return sample{}, err
		}
		if err := n.CreateTopic(ctx, quorumlog.TopicConfig{Name: topic, Partitions: 1}); err != nil {
			return sample{}, errors.Join(err, n.Close())
		}
		s, err := run(ctx, e, n)
		return s, errors.Join(err, n.Close())
	}
}

// sendAsync passes records one by one to a producer.
func sendAsync(ctx context.Context, e env, n *quorumlog.Node) (sample, error) {
	return sendBy(ctx, e, n, quorumlog.ProducerConfig{}, 1)
}

// sendBy is sendAsync with a producer as cfg says, after some records that do not count.
func sendBy(ctx context.Context, e env, n *quorumlog.Node, cfg quorumlog.ProducerConfig, first int) (sample, error) {
	p, err := n.Producer(cfg)
	if err != nil {
		return sample{}, err
	}
	r := quorumlog.Record{Topic: topic, Value: e.value()}
	var failed firstError
	done := func(_ quorumlog.Result, err error) { failed.note(err) }
	for range first { // behind them identity and routes are there
		p.SendAsync(ctx, r, done)
	}
	if err := p.Flush(ctx); err != nil {
		return sample{}, errors.Join(err, p.Close(ctx))
	}
	s, err := stream(e.duration,
		func() error { p.SendAsync(ctx, r, done); return nil },
		func() error { return p.Flush(ctx) })
	return s, errors.Join(failed.get(), err, p.Close(ctx), holds(ctx, n, s.records))
}

// holds fails when fewer records are committed than were acknowledged. A new leader
// learns within moments how many are, so it asks again for a while.
func holds(ctx context.Context, n *quorumlog.Node, records int) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		status, err := n.Status(ctx, topic)
		if err != nil {
			return err
		}
		var committed int
		for _, p := range status.Partitions {
			committed += int(p.HighWatermark)
		}
		if committed >= records {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%d of %d records are committed", committed, records)
		}
	}
}

// produce writes one record and waits, again and again.
func produce(ctx context.Context, e env, n *quorumlog.Node) (sample, error) {
	r := quorumlog.Record{Value: e.value()}
	return calls(e.duration, 1, func() error {
		_, err := n.Produce(ctx, topic, r)
		return err
	})
}
