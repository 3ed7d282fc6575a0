package txn_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/consumer"
	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/txn"
)

// runs is how many transactions TestNoKillTearsATransaction makes. A long run is
// -transactions 10000 -timeout 60m.
var runs = flag.Int("transactions", 200, "number of transactions of the run with kills")

const (
	workers    = 4
	partitions = 4
)

// TestNoKillTearsATransaction runs transactions and a pipe over three nodes that
// lose power and their links, with clients that die in the middle, and batches and
// requests that come again late. What readers see
// must be what clients were told, whole and once.
func TestNoKillTearsATransaction(t *testing.T) {
	seed := seedOf(t)
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute+time.Duration(*runs)*100*time.Millisecond)
	defer cancel()
	f := newFleet(t)
	f.create(ctx, "in", partitions)
	f.create(ctx, "out", partitions)

	chaos, calm := context.WithCancel(ctx)
	faults := make(chan int, 1)
	go func() { faults <- f.wreck(chaos, rand.New(rand.NewPCG(seed, 0))) }()
	seen := follow(ctx, t, f)
	v := &verdicts{told: map[string]error{}}
	var wg, pipes sync.WaitGroup
	for w := range workers {
		wg.Go(func() { work(ctx, t, f, w, rand.New(rand.NewPCG(seed, uint64(w)+1)), v) })
	}
	piping, stop := context.WithCancel(ctx)
	for w := range 2 {
		pipes.Go(func() { pipe(piping, t, f, w, rand.New(rand.NewPCG(seed, uint64(w)+100))) })
	}
	wg.Wait()
	calm()
	n := <-faults
	t.Logf("the transactions took %v", time.Since(began).Round(time.Millisecond))
	in := readAll(ctx, t, f, "in")
	until(ctx, t, "the pipe is through", func() bool { return len(readAll(ctx, t, f, "out")) >= len(in) })
	stop()
	pipes.Wait()
	out := readAll(ctx, t, f, "out")
	committed := check(t, v, in)
	require.ElementsMatch(t, in, out, "the pipe lost or doubled something")
	seen.check(t, "in", in)
	seen.check(t, "out", out)
	f.echoes.Wait() // of a client that has died a batch may come now, and hold the end back until its coordinator ends the transaction
	ending, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for _, topic := range []string{"in", "out"} {
		until(ending, t, "open for ever", func() bool {
			open, err := f.machines[0].node.Load().OpenTransactions(ending, topic)
			require.NoError(t, err, "open for ever")
			return len(open) == 0
		})
	}
	t.Logf("%d transactions, %d committed, %d records, %d faults in %v", len(v.told), committed, len(in), n, time.Since(began).Round(time.Millisecond))
}

// work runs its share of the transactions: values are "worker.number.of" with the
// number of records of the transaction.
func work(ctx context.Context, t *testing.T, f *fleet, w int, rng *rand.Rand, v *verdicts) {
	var c *txn.Client
	open := func() {
		var err error
		c, err = txn.New(client{f, rng.IntN(3)}, fmt.Sprint("worker-", w), txn.Config{
			Timeout: 5 * time.Second, Producer: producer.Config{DeliveryTimeout: 5 * time.Second},
		})
		require.NoError(t, err)
	}
	open()
	for i := range *runs / workers {
		name := fmt.Sprintf("%d.%d", w, i)
		count := 1 + rng.IntN(6)
		send := func(tx *txn.Tx) error {
			for range count {
				r := record.Record{Topic: "in", Key: fmt.Append(nil, rng.IntN(100)), Value: fmt.Appendf(nil, "%s.%d", name, count)}
				if err := tx.Send(r); err != nil {
					return err
				}
			}
			return nil
		}
		try, cancel := context.WithTimeout(ctx, time.Duration(20+rng.IntN(20_000))*time.Millisecond)
		switch rng.IntN(8) {
		case 0: // the process dies in the middle
			if tx, err := c.Begin(try); err == nil {
				_ = send(tx)
				wait(ctx, time.Duration(rng.IntN(20))*time.Millisecond)
				v.put(name, txn.ErrAborted)
			}
			dead := c
			open()
			gone, end := context.WithCancel(ctx)
			end() // Close does not wait for what is open
			_ = dead.Close(gone)
		case 1:
			err := c.Do(try, func(tx *txn.Tx) error {
				_ = send(tx)
				return errors.New("changed my mind")
			})
			require.Error(t, err)
			v.put(name, txn.ErrAborted)
		default:
			began := false
			err := c.Do(try, func(tx *txn.Tx) error { began = true; return send(tx) })
			if began {
				v.put(name, err)
			}
			if errors.Is(err, record.ErrFenced) {
				open()
			}
		}
		cancel()
	}
	require.NoError(t, c.Close(ctx))
}

// pipe copies "in" to "out", in instances that die now and then.
func pipe(ctx context.Context, t *testing.T, f *fleet, w int, rng *rand.Rand) {
	for ctx.Err() == nil {
		life, die := context.WithTimeout(ctx, time.Duration(500+rng.IntN(3000))*time.Millisecond)
		at := client{f, rng.IntN(3)}
		g, err := consumer.Join(life, at, at, "pipe", []string{"in"}, consumer.Config{SessionTimeout: 2 * time.Second, MaxPollBytes: 400})
		if err == nil {
			c, err := txn.New(at, fmt.Sprint("pipe-", w), txn.Config{Timeout: 5 * time.Second, Producer: producer.Config{DeliveryTimeout: 5 * time.Second}})
			require.NoError(t, err)
			_ = txn.Pipe(life, g, c, func(tx *txn.Tx, b consumer.Batch) error {
				for _, r := range b.Records {
					if err := tx.Send(record.Record{Topic: "out", Key: r.Key, Value: r.Value}); err != nil {
						return err
					}
				}
				return nil
			})
			gone, end := context.WithTimeout(context.WithoutCancel(ctx), time.Duration(rng.IntN(2))*10*time.Second)
			_ = c.Close(gone)
			_ = g.Close(gone)
			end()
		}
		die()
	}
}

// check compares what is there with what was told, and returns how many
// transactions were committed.
func check(t *testing.T, v *verdicts, in []string) (committed int) {
	count, want := map[string]int{}, map[string]int{}
	for _, value := range in {
		i := strings.LastIndexByte(value, '.')
		name := value[:i]
		n, err := strconv.Atoi(value[i+1:])
		require.NoError(t, err)
		count[name]++
		want[name] = n
	}
	for name, n := range count {
		require.Equal(t, want[name], n, "transaction %s is torn or doubled", name)
		require.Contains(t, v.told, name)
	}
	for name, err := range v.told {
		switch {
		case err == nil:
			require.NotZero(t, count[name], "transaction %s was committed and is not there", name)
			committed++
		case errors.Is(err, record.ErrOutcomeUnknown):
		default:
			require.Zero(t, count[name], "transaction %s was aborted (%v) and is there", name, err)
		}
	}
	require.NotZero(t, committed)
	return committed
}

// readAll returns the committed values of a topic up to its end, when no transaction
// is open in it.
func readAll(ctx context.Context, t *testing.T, f *fleet, topic string) (values []string) {
	t.Helper()
	at := client{f, 0}
	for p := range int32(partitions) {
		tp := record.TopicPartition{Topic: topic, Partition: p}
		until(ctx, t, "nothing is open", func() bool {
			_, stable, err := at.Offsets(ctx, tp, record.ReadCommitted)
			require.NoError(t, err)
			_, high, err := at.Offsets(ctx, tp, record.ReadUncommitted)
			require.NoError(t, err)
			return stable == high
		})
	}
	for r, err := range consumer.Read(ctx, at, topic, consumer.UntilEnd()) {
		require.NoError(t, err)
		values = append(values, string(r.Value))
	}
	return values
}

func until(ctx context.Context, t *testing.T, what string, ok func() bool) {
	t.Helper()
	for !ok() {
		require.NoError(t, ctx.Err(), what)
		wait(ctx, 20*time.Millisecond)
	}
}

// sightings is what readers have seen while all this went on.
type sightings struct {
	stop context.CancelFunc
	wg   sync.WaitGroup
	mu   sync.Mutex
	got  map[string][]string // by topic
}

func follow(ctx context.Context, t *testing.T, f *fleet) *sightings {
	s := &sightings{got: map[string][]string{}}
	ctx, s.stop = context.WithCancel(ctx)
	t.Cleanup(func() { s.stop(); s.wg.Wait() })
	for i, topic := range []string{"in", "out"} {
		s.wg.Go(func() {
			last := map[int32]record.Offset{}
			for r, err := range consumer.Read(ctx, client{f, i}, topic) {
				if ctx.Err() != nil {
					return
				}
				if err != nil {
					t.Errorf("reader of %s: %v", topic, err)
					return
				}
				if at, ok := last[r.Partition]; ok && r.Offset <= at {
					t.Errorf("reader of %s: offset %d after %d", topic, r.Offset, at)
				}
				last[r.Partition] = r.Offset
				s.mu.Lock()
				s.got[topic] = append(s.got[topic], string(r.Value))
				s.mu.Unlock()
			}
		})
	}
	return s
}

// check waits until the reader has seen everything, and compares.
func (s *sightings) check(t *testing.T, topic string, want []string) {
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.got[topic]) >= len(want)
	}, 30*time.Second, 10*time.Millisecond, topic)
	s.mu.Lock()
	defer s.mu.Unlock()
	require.ElementsMatch(t, want, s.got[topic], "a reader of %s has seen what is not there, or twice, or missed something", topic)
}

// seedOf returns the seed of a random run, which QUORUMLOG_SEED takes back.
func seedOf(t *testing.T) uint64 {
	s := uint64(time.Now().UnixNano())
	if env := os.Getenv("QUORUMLOG_SEED"); env != "" {
		var err error
		s, err = strconv.ParseUint(env, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("QUORUMLOG_SEED=%d", s)
	return s
}
