// Retries runs a pool of workers over payments, some of which fail in ways that
// are known beforehand, and prints what becomes of each: tried again in place,
// tried again later, given up, and sent back when the cause is mended.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quorumlog/quorumlog"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

var (
	errTimeout   = errors.New("the bank did not answer")
	errNoAccount = errors.New("no such account")
)

// bank fails as each payment says. It is called by several workers.
type bank struct {
	mu     sync.Mutex
	calls  map[string]int
	mended bool
	booked []string
	left   int           // payments whose fate is open
	done   chan struct{} // closed when there are none
}

// pay is the handler's work for one payment.
func (b *bank) pay(payment string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls[payment]++
	switch n := b.calls[payment]; {
	case payment == "flaky" && n < 3: // passes in place
		return errTimeout
	case payment == "slow" && n < 5: // needs a longer wait
		return errTimeout
	case payment == "closed" && !b.mended: // no wait will help
		b.settled()
		return quorumlog.Permanent(errNoAccount)
	case payment == "broken" && !b.mended: // a bug
		b.settled()
		var amounts []int
		_ = amounts[n]
	}
	b.booked = append(b.booked, payment)
	b.settled()
	return nil
}

func (b *bank) settled() {
	if b.left--; b.left == 0 {
		close(b.done)
	}
}

func (b *bank) report(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	slices.Sort(b.booked)
	fmt.Printf("%s: %s\n", what, strings.Join(b.booked, ", "))
	b.booked = nil
}

func run(ctx context.Context) error {
	n, err := quorumlog.OpenMemory(quorumlog.Config{})
	if err != nil {
		return err
	}
	defer n.Close()
	payments := []string{"coffee", "flaky", "slow", "closed", "broken", "tea"}
	for _, p := range payments {
		if _, err := n.Produce(ctx, "payments", quorumlog.Record{Key: []byte(p), Value: []byte(p)}); err != nil {
			return err
		}
	}

	g, err := n.Group(ctx, "billing", []string{"payments"}, quorumlog.GroupConfig{
		Workers: 4,
		Retry: quorumlog.RetryPolicy{
			InPlace: 2,
			Backoff: 5 * time.Millisecond,
			Delays:  []time.Duration{50 * time.Millisecond, 200 * time.Millisecond},
		},
	})
	if err != nil {
		return err
	}
	defer g.Close(ctx)
	b := &bank{calls: map[string]int{}, left: len(payments), done: make(chan struct{})}
	ran := make(chan error, 1)
	go func() {
		ran <- g.Run(ctx, func(_ context.Context, r quorumlog.Record) error { return b.pay(string(r.Value)) })
	}()
	if err := wait(ctx, b.done, ran); err != nil {
		return err
	}
	b.report("booked")
	fmt.Printf("tries: flaky %d, slow %d\n", b.calls["flaky"], b.calls["slow"])

	// Given up: with what came of it, how often it was tried, and whence it is.
	dead, err := letters(ctx, n, 2)
	if err != nil {
		return err
	}
	for _, l := range dead {
		f := l.Failure
		fmt.Printf("dead: %s (%s, tried %d time, from %v): %s\n", l.Value, f.Cause, f.Attempts, f.Origin, lastPart(f.Reason))
	}

	// The account is open again and the bug is mended: send both back.
	b.mu.Lock()
	b.mended, b.left, b.done = true, 2, make(chan struct{})
	b.mu.Unlock()
	back, err := n.DeadLetters("billing").Redrive(ctx, nil)
	if err != nil {
		return err
	}
	fmt.Println("redriven:", back)
	if err := wait(ctx, b.done, ran); err != nil {
		return err
	}
	b.report("booked then")
	if dead, err = letters(ctx, n, 0); err != nil {
		return err
	}
	fmt.Println("dead letters left:", len(dead))
	return nil
}

// wait waits for the workers, or for what has ended them.
func wait(ctx context.Context, done <-chan struct{}, ran <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	select {
	case <-done:
		return nil
	case err := <-ran:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// letters returns the dead letters, sorted, when there are so many: the last one
// may still be on its way.
func letters(ctx context.Context, n *quorumlog.Node, want int) ([]quorumlog.Letter, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		var all []quorumlog.Letter
		for l, err := range n.DeadLetters("billing").List(ctx) {
			if err != nil {
				return nil, err
			}
			all = append(all, l)
		}
		if len(all) == want {
			slices.SortFunc(all, func(a, b quorumlog.Letter) int { return int(b.Failure.Offset - a.Failure.Offset) })
			return all, nil
		}
	}
}

// lastPart leaves out where a panic was.
func lastPart(reason string) string {
	if _, after, ok := strings.Cut(reason, "handler panicked at offset 4: "); ok {
		return after
	}
	return reason
}
