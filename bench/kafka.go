package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What a record stands on when kfake, a broker in this process, has acknowledged it.
const (
	inMemory    = "memory of the one broker"
	cachedFiles = "page cache of the one broker"
	syncedFiles = "fsync on the one broker"
)

// kafkaStore says where a broker keeps its records, one of the constants above.
type kafkaStore string

// withKafka runs what a row measures on a fresh broker, with a client that neither
// compresses nor lingers.
func withKafka(store kafkaStore, run func(context.Context, env, *kgo.Client, []kgo.Opt) (sample, error), more ...kgo.Opt) func(context.Context, env) (sample, error) {
	return func(ctx context.Context, e env) (sample, error) {
		opts := []kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(1, topic)}
		if store != inMemory {
			opts = append(opts, kfake.DataDir(e.dir))
		}
		if store == syncedFiles {
			opts = append(opts, kfake.SyncWrites())
		}
		broker, err := kfake.NewCluster(opts...)
		if err != nil {
			return sample{}, err
		}
		defer broker.Close()
		base := []kgo.Opt{
			kgo.SeedBrokers(broker.ListenAddrs()...), kgo.DefaultProduceTopic(topic),
			kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(0),
			kgo.FetchMaxPartitionBytes(8 << 20),
		}
		client, err := kgo.NewClient(append(base, more...)...)
		if err != nil {
			return sample{}, err
		}
		defer client.Close()
		return run(ctx, e, client, base)
	}
}

// kafkaAsync passes records one by one to a client.
func kafkaAsync(ctx context.Context, e env, c *kgo.Client, _ []kgo.Opt) (sample, error) {
	value := e.value()
	if err := c.ProduceSync(ctx, &kgo.Record{Value: value}).FirstErr(); err != nil {
		return sample{}, err
	}
	var failed firstError
	done := func(_ *kgo.Record, err error) { failed.note(err) }
	s, err := stream(e.duration,
		func() error { c.Produce(ctx, &kgo.Record{Value: value}, done); return nil },
		func() error { return c.Flush(ctx) })
	return s, errors.Join(failed.get(), err, kafkaHolds(ctx, c, s.records))
}

// kafkaHolds fails when the partition ends before what was acknowledged.
func kafkaHolds(ctx context.Context, c *kgo.Client, records int) error {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp = -1 // the end
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, c)
	if err != nil {
		return err
	}
	if end := resp.Topics[0].Partitions[0].Offset; end < int64(records) {
		return fmt.Errorf("the partition has %d of %d records", end, records)
	}
	return nil
}

// kafkaSync writes one record and waits, again and again.
func kafkaSync(ctx context.Context, e env, c *kgo.Client, _ []kgo.Opt) (sample, error) {
	value := e.value()
	return calls(e.duration, 1, func() error { return c.ProduceSync(ctx, &kgo.Record{Value: value}).FirstErr() })
}

// kafkaRead writes for e.duration, then reads all of it with a client of its own, in a
// group if that is named. What a group's first poll returns is not counted, unless it
// is everything: after it the member has joined.
func kafkaRead(group string) func(context.Context, env, *kgo.Client, []kgo.Opt) (sample, error) {
	return func(ctx context.Context, e env, c *kgo.Client, base []kgo.Opt) (sample, error) {
		filled, err := kafkaAsync(ctx, e, c, base)
		if err != nil {
			return sample{}, err
		}
		opts := append(base, kgo.ConsumeTopics(topic))
		if group != "" {
			opts = append(opts, kgo.ConsumerGroup(group))
		}
		reader, err := kgo.NewClient(opts...)
		if err != nil {
			return sample{}, err
		}
		defer reader.Close()
		var s sample
		began, first := time.Now(), group != ""
		for got := 0; got < filled.records+1; {
			fetches := reader.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				return sample{}, err
			}
			n, wrong := 0, 0
			fetches.EachRecord(func(r *kgo.Record) {
				if n++; len(r.Value) != e.size {
					wrong++
				}
			})
			if wrong > 0 {
				return sample{}, fmt.Errorf("%d records are not of %d bytes", wrong, e.size)
			}
			got += n
			if first && got < filled.records+1 {
				began, first = time.Now(), false
				continue
			}
			s.records += n
		}
		s.took = time.Since(began)
		return s, nil
	}
}

// kafkaLots sends lot records and waits for them, again and again, in transactions
// or without.
func kafkaLots(lot int, transaction bool) func(context.Context, env, *kgo.Client, []kgo.Opt) (sample, error) {
	return func(ctx context.Context, e env, c *kgo.Client, _ []kgo.Opt) (sample, error) {
		value := e.value()
		var failed error // written by done one call at a time, read behind Flush
		done := func(_ *kgo.Record, err error) { failed = errors.Join(failed, err) }
		return calls(e.duration, lot, func() error {
			if transaction {
				if err := c.BeginTransaction(); err != nil {
					return err
				}
			}
			for range lot {
				c.Produce(ctx, &kgo.Record{Value: value}, done)
			}
			if err := errors.Join(c.Flush(ctx), failed); err != nil || !transaction {
				return err
			}
			return c.EndTransaction(ctx, kgo.TryCommit)
		})
	}
}
