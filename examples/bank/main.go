// Bank moves money between accounts that lie in different partitions. Each transfer
// is a transaction of two records; tellers die in the middle of one and are replaced,
// and a node is stopped and comes back. What is there at the end is what was there at
// the beginning.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/quorumlog/quorumlog"
)

const (
	accounts = 20
	tellers  = 3
	opening  = 100 // of each account
)

func main() {
	transfers := flag.Int("transfers", 300, "how many")
	flag.Parse()
	if err := run(context.Background(), *transfers); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, transfers int) error {
	dir, err := os.MkdirTemp("", "bank")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bank{dir: dir, network: quorumlog.NewNetwork(), peers: map[string]string{"a": "a", "b": "b", "c": "c"}, nodes: map[string]*quorumlog.Node{}}
	for id := range b.peers {
		if err := b.start(id); err != nil {
			return err
		}
	}
	defer b.stopAll()
	err = b.node("a").CreateTopic(ctx, quorumlog.TopicConfig{Name: "moves", Partitions: 4})
	if err != nil {
		return err
	}
	var first []quorumlog.Record
	for i := range accounts {
		first = append(first, move(i, opening))
	}
	if err := b.node("a").ProduceAll(ctx, first...); err != nil {
		return err
	}

	errs := make(chan error, tellers)
	for i := range tellers {
		go func() { errs <- b.teller(ctx, fmt.Sprintf("teller-%d", i), transfers/tellers) }()
	}
	for range tellers {
		if err := <-errs; err != nil {
			return err
		}
	}

	balances, err := b.audit(ctx)
	if err != nil {
		return err
	}
	total := 0
	for _, balance := range balances {
		total += balance
	}
	fmt.Printf("%d accounts hold %d\n", len(balances), total)
	return nil
}

// move is what one account gets.
func move(account, amount int) quorumlog.Record {
	return quorumlog.Record{Topic: "moves", Key: strconv.AppendInt(nil, int64(account), 10), Value: strconv.AppendInt(nil, int64(amount), 10)}
}

// teller makes its transfers, each until it is committed. Every tenth time it dies
// after the first half, and another one with its name takes over.
func (b *bank) teller(ctx context.Context, name string, transfers int) error {
	desk := func() (*quorumlog.Txn, error) { return b.node("a").Txn(name, quorumlog.TxnConfig{}) }
	t, err := desk()
	if err != nil {
		return err
	}
	for made := 0; made < transfers; {
		from, to, amount := rand.IntN(accounts), rand.IntN(accounts), 1+rand.IntN(50)
		if made%10 == 9 && rand.IntN(2) == 0 {
			if tx, err := t.Begin(ctx); err == nil {
				_ = tx.Send(move(from, -amount)) // and it is never seen again
			}
			if t, err = desk(); err != nil {
				return err
			}
		}
		err := t.Do(ctx, func(tx *quorumlog.Tx) error {
			if err := tx.Send(move(from, -amount)); err != nil {
				return err
			}
			return tx.Send(move(to, amount))
		})
		switch {
		case err == nil:
			made++
		case errors.Is(err, quorumlog.ErrAborted), errors.Is(err, quorumlog.ErrOutcomeUnknown):
			// Nothing was moved, or all of it: either way no money is lost.
		default:
			return err
		}
		if name == "teller-0" && made == transfers/2 && err == nil {
			if err := b.restart("c"); err != nil {
				return err
			}
		}
	}
	return t.Close(ctx)
}

// audit adds up what is committed.
func (b *bank) audit(ctx context.Context) (map[string]int, error) {
	balances := map[string]int{}
	for r, err := range b.node("b").Read(ctx, "moves", quorumlog.UntilEnd()) {
		if err != nil {
			return nil, err
		}
		amount, err := strconv.Atoi(string(r.Value))
		if err != nil {
			return nil, err
		}
		balances[string(r.Key)] += amount
	}
	return balances, nil
}

// bank is three nodes in one process.
type bank struct {
	dir     string
	network *quorumlog.Network
	peers   map[string]string
	mu      sync.Mutex
	nodes   map[string]*quorumlog.Node
}

func (b *bank) node(id string) *quorumlog.Node {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.nodes[id]
}

func (b *bank) start(id string) error {
	n, err := quorumlog.Open(filepath.Join(b.dir, id), quorumlog.Config{ID: id, Network: b.network, Peers: b.peers, ElectionTimeout: 200 * time.Millisecond})
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodes[id] = n
	return nil
}

// restart stops a node and starts it again.
func (b *bank) restart(id string) error {
	if err := b.node(id).Close(); err != nil {
		return err
	}
	return b.start(id)
}

func (b *bank) stopAll() {
	for id := range b.peers {
		_ = b.node(id).Close()
	}
}
