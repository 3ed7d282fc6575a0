// Invoices reads orders and writes an invoice for each, exactly once: what was read
// counts as handled exactly if what was written counts. Two instances share the work
// and are killed again and again in the middle of it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/quorumlog/quorumlog"
)

func main() {
	orders := flag.Int("orders", 1000, "how many")
	flag.Parse()
	if err := run(context.Background(), *orders); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, orders int) error {
	n, err := quorumlog.OpenMemory(quorumlog.Config{Defaults: quorumlog.TopicConfig{Partitions: 4}})
	if err != nil {
		return err
	}
	defer n.Close()
	for i := range orders {
		id := strconv.AppendInt(nil, int64(i), 10)
		if _, err := n.Produce(ctx, "orders", quorumlog.Record{Key: id, Value: id}); err != nil {
			return err
		}
	}

	working, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	var failed sync.Map
	for i := range 2 {
		name := fmt.Sprintf("invoicing-%d", i)
		wg.Go(func() {
			for working.Err() == nil {
				// The same name after a restart: the new instance ends what the old one has left open.
				if err := instance(working, n, name); err != nil && working.Err() == nil {
					failed.Store(name, err)
					return
				}
			}
		})
	}

	seen := map[string]int{}
	for r, err := range n.Read(ctx, "invoices") {
		if err != nil {
			return err
		}
		if seen[string(r.Key)]++; len(seen) == orders {
			break
		}
	}
	stop()
	wg.Wait()
	failed.Range(func(_, e any) bool { err = errors.Join(err, e.(error)); return true })
	if err != nil {
		return err
	}
	doubled := -len(seen)
	for _, err := range n.Read(ctx, "invoices", quorumlog.UntilEnd()) {
		if err != nil {
			return err
		}
		doubled++
	}
	fmt.Printf("%d orders, %d invoices, %d doubled\n", orders, len(seen), doubled)
	return nil
}

// instance works until it is killed.
func instance(ctx context.Context, n *quorumlog.Node, name string) error {
	life, kill := context.WithTimeout(ctx, time.Duration(1+rand.IntN(10))*time.Millisecond)
	defer kill()
	orders, err := n.Group(ctx, "invoicing", []string{"orders"}, quorumlog.GroupConfig{MaxPollBytes: 500})
	if err != nil {
		return err
	}
	defer orders.Close(context.WithoutCancel(ctx))
	invoices, err := n.Txn(name, quorumlog.TxnConfig{})
	if err != nil {
		return err
	}
	defer invoices.Close(context.WithoutCancel(ctx))
	err = quorumlog.Pipe(life, orders, invoices, func(tx *quorumlog.Tx, b quorumlog.Batch) error {
		for _, order := range b.Records {
			invoice := quorumlog.Record{Topic: "invoices", Key: order.Key, Value: fmt.Appendf(nil, "invoice for order %s", order.Value)}
			if err := tx.Send(invoice); err != nil {
				return err
			}
		}
		return nil
	})
	if life.Err() != nil {
		return nil
	}
	return err
}
