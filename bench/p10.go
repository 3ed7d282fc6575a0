package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/quorumlog/quorumlog"
)

// p10 has one scenario for each size of transaction, and one where both sides keep
// everything in memory.
func p10() []scenario {
	var all []scenario
	for _, lot := range []int{1, 10, 100, 1000} {
		of := goal{}
		if lot == 100 {
			of = times(1.5)
		}
		title := fmt.Sprintf("1 node, one lot of %d records at a time, no fsync", lot)
		all = append(all, scenario{id: fmt.Sprintf("P10/%d", lot), title: title, unit: recordsPerSecond, rows: []row{
			{"quorumlog, transaction", "FlushNever, Txn.Do", cachedOne, goal{}, withQuorum(1, quorumlog.FlushNever, transactions(lot))},
			{"franz-go + kfake, transaction", "memory, no linger", inMemory, of, withKafka(inMemory, kafkaLots(lot, true), kgo.TransactionalID("bench"))},
			{"quorumlog, no transaction", "FlushNever, SendAsync, Flush", cachedOne, goal{}, withQuorum(1, quorumlog.FlushNever, lots(lot))},
			{"franz-go + kfake, no transaction", "memory, no linger", inMemory, goal{}, withKafka(inMemory, kafkaLots(lot, false))},
		}})
	}
	return append(all, scenario{id: "P10/memory", title: "the same in memory, one lot of 100 records at a time", unit: recordsPerSecond, rows: []row{
		{"quorumlog, transaction", "OpenMemory, Txn.Do", "memory of the one node", goal{}, withMemory(transactions(100))},
		{"franz-go + kfake, transaction", "memory, no linger", inMemory, times(1.5), withKafka(inMemory, kafkaLots(100, true), kgo.TransactionalID("bench"))},
	}})
}

func transactions(lot int) func(context.Context, env, *quorumlog.Node) (sample, error) {
	return func(ctx context.Context, e env, n *quorumlog.Node) (sample, error) {
		c, err := n.Txn("bench", quorumlog.TxnConfig{})
		if err != nil {
			return sample{}, err
		}
		r := quorumlog.Record{Topic: topic, Value: e.value()}
		s, err := calls(e.duration, lot, func() error {
			return c.Do(ctx, func(tx *quorumlog.Tx) error {
				for range lot {
					if err := tx.Send(r); err != nil {
						return err
					}
				}
				return nil
			})
		})
		return s, errors.Join(err, c.Close(ctx))
	}
}

func lots(lot int) func(context.Context, env, *quorumlog.Node) (sample, error) {
	return func(ctx context.Context, e env, n *quorumlog.Node) (sample, error) {
		p, err := n.Producer(quorumlog.ProducerConfig{})
		if err != nil {
			return sample{}, err
		}
		r := quorumlog.Record{Topic: topic, Value: e.value()}
		var failed error // written by done, read behind Flush
		done := func(_ quorumlog.Result, err error) { failed = errors.Join(failed, err) }
		s, err := calls(e.duration, lot, func() error {
			for range lot {
				p.SendAsync(ctx, r, done)
			}
			return errors.Join(p.Flush(ctx), failed)
		})
		return s, errors.Join(err, p.Close(ctx))
	}
}
