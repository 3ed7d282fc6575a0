package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"

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

func openQuorum(ctx context.Context, e env, nodes int, flush quorumlog.FlushPolicy) (*quorum, error) {
	nw, peers := quorumlog.NewNetwork(), map[string]string{}
	for i := range nodes {
		peers[fmt.Sprint(i)] = ""
	}
	var q quorum
	for i := range nodes {
		id := fmt.Sprint(i)
		n, err := quorumlog.Open(filepath.Join(e.dir, id), quorumlog.Config{ID: id, Network: nw, Peers: peers})
		if err != nil {
			return nil, errors.Join(err, q.close())
		}
		q.nodes = append(q.nodes, n)
	}
	cfg := quorumlog.TopicConfig{Name: topic, Partitions: 1, Replicas: nodes, Flush: flush}
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

// withQuorum runs what a row measures on a fresh cluster.
func withQuorum(nodes int, flush quorumlog.FlushPolicy, run func(context.Context, env, *quorumlog.Node) (sample, error)) func(context.Context, env) (sample, error) {
	return func(ctx context.Context, e env) (sample, error) {
		q, err := openQuorum(ctx, e, nodes, flush)
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
	p, err := n.Producer(quorumlog.ProducerConfig{})
	if err != nil {
		return sample{}, err
	}
	r := quorumlog.Record{Topic: topic, Value: e.value()}
	if _, err := p.Send(ctx, r); err != nil { // identity and routes are there
		return sample{}, errors.Join(err, p.Close(ctx))
	}
	var failed atomic.Pointer[error]
	done := func(_ quorumlog.Result, err error) {
		if err != nil {
			failed.CompareAndSwap(nil, &err)
		}
	}
	s, err := stream(e.duration,
		func() error { p.SendAsync(ctx, r, done); return nil },
		func() error { return p.Flush(ctx) })
	if first := failed.Load(); first != nil {
		err = errors.Join(err, *first)
	}
	return s, errors.Join(err, p.Close(ctx))
}

// produce writes one record and waits, again and again.
func produce(ctx context.Context, e env, n *quorumlog.Node) (sample, error) {
	r := quorumlog.Record{Value: e.value()}
	return calls(e.duration, 1, func() error {
		_, err := n.Produce(ctx, topic, r)
		return err
	})
}
