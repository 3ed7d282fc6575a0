package txn_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/consumer"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/txn"
)

// ledger is a database: what the local transaction of each message has come to.
type ledger struct {
	mu       sync.Mutex
	verdicts map[txn.ID]txn.Decision
	value    map[txn.ID]string
}

func (l *ledger) get(id txn.ID) txn.Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.verdicts[id]
}

// TestNoKillLosesOrDoublesAHalfMessage sends half messages over nodes that lose power
// and links, with producers that die before they have decided. What the local
// transactions have committed, and nothing else, must be in the topic, once.
func TestNoKillLosesOrDoublesAHalfMessage(t *testing.T) {
	seed := seedOf(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute+time.Duration(*runs)*100*time.Millisecond)
	defer cancel()
	f := newFleet(t)
	f.create(ctx, "paid", partitions)
	chaos, calm := context.WithCancel(ctx)
	faults := make(chan int, 1)
	go func() { faults <- f.wreck(chaos, rand.New(rand.NewPCG(seed, 0))) }()

	l := &ledger{verdicts: map[txn.ID]txn.Decision{}, value: map[txn.ID]string{}}
	check := func(_ context.Context, h txn.Half) txn.Decision {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.verdicts[h.ID] == txn.Unknown { // the claim: a local transaction that comes later fails
			l.verdicts[h.ID] = txn.Rollback
		}
		return l.verdicts[h.ID]
	}
	open := func(home int) *txn.HalfProducer {
		p, err := txn.NewHalfProducer(client{f, home}, "orders", check, txn.HalfConfig{
			Schedule: txn.Schedule{First: 200 * time.Millisecond, Every: 200 * time.Millisecond, Most: 1 << 20},
		})
		require.NoError(t, err)
		return p
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(w)+1))
			p := open(w % 3)
			for i := range *runs / workers {
				try, cancel := context.WithTimeout(ctx, 20*time.Second)
				dies, verdict := rng.IntN(5) == 0, txn.Decision(1+rng.IntN(2))
				value := fmt.Sprintf("%d.%d", w, i)
				_, _ = p.Send(try, record.Record{Topic: "paid", Key: []byte(value), Value: []byte(value)}, func(_ context.Context, id txn.ID) txn.Decision {
					l.mu.Lock()
					defer l.mu.Unlock()
					if l.verdicts[id] != txn.Unknown { // a check was here first
						return txn.Rollback
					}
					l.verdicts[id], l.value[id] = verdict, value
					if dies {
						return txn.Unknown // nobody hears of it
					}
					return verdict
				})
				cancel()
				if dies {
					require.NoError(t, p.Close())
					p = open(rng.IntN(3))
				}
			}
			require.NoError(t, p.Close())
		})
	}
	wg.Wait()
	calm()
	n := <-faults
	last := open(0)
	until(ctx, t, "everything is decided", func() bool {
		left, err := last.Undecided(ctx)
		require.NoError(t, err)
		return len(left) == 0
	})
	var want []string
	for id, value := range l.value {
		if l.get(id) == txn.Commit {
			want = append(want, value)
		}
	}
	var got []string
	until(ctx, t, "everything is delivered", func() bool {
		got = got[:0]
		for r, err := range consumer.Read(ctx, client{f, 0}, "paid", consumer.UntilEnd()) {
			require.NoError(t, err)
			got = append(got, string(r.Value))
		}
		return len(got) >= len(want)
	})
	require.ElementsMatch(t, want, got)
	require.NoError(t, last.Close())
	t.Logf("%d half messages, %d committed, %d faults", len(l.value), len(want), n)
}
