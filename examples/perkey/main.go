// Perkey moves money between the states of many accounts with eight workers: the
// records of an account are handled in the order they were sent, those of
// different accounts at the same time.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/quorumlog/quorumlog"
)

const (
	accounts = 40
	steps    = 25 // records of each account
	workers  = 8
	work     = 2 * time.Millisecond // of one record
)

func main() {
	if err := run(context.Background(), true); err != nil {
		log.Fatal(err)
	}
}

// books is what the handlers have seen.
type books struct {
	mu       sync.Mutex
	last     map[string]int // step of each account
	disorder int
	handled  int
	now, top int // handlers under way, and the most there were
}

func (b *books) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now++
	b.top = max(b.top, b.now)
}

// end notes a step and reports whether it was the last one of all.
func (b *books) end(account string, step int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if step != b.last[account]+1 {
		b.disorder++
	}
	b.last[account] = step
	b.now--
	b.handled++
	return b.handled == accounts*steps
}

var errDone = errors.New("all is handled")

func run(ctx context.Context, timing bool) error {
	n, err := quorumlog.OpenMemory(quorumlog.Config{})
	if err != nil {
		return err
	}
	defer n.Close()
	if err := n.CreateTopic(ctx, quorumlog.TopicConfig{Name: "accounts", Partitions: 2}); err != nil {
		return err
	}
	p, err := n.Producer(quorumlog.ProducerConfig{})
	if err != nil {
		return err
	}
	for step := 1; step <= steps; step++ {
		for a := range accounts {
			r := quorumlog.Record{Topic: "accounts", Key: fmt.Appendf(nil, "account-%02d", a), Value: fmt.Append(nil, step)}
			p.SendAsync(ctx, r, func(_ quorumlog.Result, err error) {
				if err != nil {
					log.Print(err)
				}
			})
		}
	}
	if err := p.Close(ctx); err != nil {
		return err
	}

	g, err := n.Group(ctx, "ledger", []string{"accounts"}, quorumlog.GroupConfig{Workers: workers})
	if err != nil {
		return err
	}
	defer g.Close(ctx)
	b := &books{last: map[string]int{}}
	start := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err = g.Run(ctx, func(_ context.Context, r quorumlog.Record) error {
		b.begin()
		time.Sleep(work) // a call to somewhere else
		var step int
		if _, err := fmt.Sscan(string(r.Value), &step); err != nil {
			return err
		}
		if b.end(string(r.Key), step) {
			cancel(errDone)
		}
		return nil
	})
	if !errors.Is(context.Cause(ctx), errDone) {
		return err
	}
	took := time.Since(start)

	fmt.Printf("%d records of %d accounts, %d workers at once at the most\n", b.handled, len(b.last), b.top)
	fmt.Println("out of order within an account:", b.disorder)
	if timing {
		fmt.Printf("took %v; one after the other it would have been %v\n", took.Round(time.Millisecond), accounts*steps*work)
	}
	lags, err := n.Lags(context.WithoutCancel(ctx), "ledger")
	if err != nil {
		return err
	}
	for _, l := range lags {
		fmt.Printf("%v: %d records behind\n", l.TopicPartition, l.Records)
	}
	return nil
}
