package producer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/record"
)

// seeds returns the seeds to run: QUORUMLOG_SEED alone, or n random ones.
func seeds(t *testing.T, n int) []uint64 {
	if s := os.Getenv("QUORUMLOG_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
		return []uint64{seed}
	}
	all := make([]uint64, n)
	for i := range all {
		all[i] = rand.Uint64()
	}
	return all
}

// TestChaosLosesNothingWithinTheDeliveryTimeout sends through a cluster that
// refuses, loses answers, swallows, delays and reorders for a while.
func TestChaosLosesNothingWithinTheDeliveryTimeout(t *testing.T) {
	for _, seed := range seeds(t, 60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newChaos(t, seed, 10*time.Second)
				cfg := c.config()
				c.run(cfg, 4, 150)
				for id, o := range c.outcomes {
					if o.cancelled {
						continue
					}
					require.NoError(t, o.err, id)
				}
				c.check(true)
			})
		})
	}
}

// TestChaosTellsTheTruthWhenRecordsAreGivenUp is the same with batches refused
// for good and a delivery timeout that is too short.
func TestChaosTellsTheTruthWhenRecordsAreGivenUp(t *testing.T) {
	for _, seed := range seeds(t, 60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newChaos(t, seed, time.Minute)
				c.refusing = true
				cfg := c.config()
				cfg.DeliveryTimeout = time.Second
				c.run(cfg, 4, 150)
				// A batch of unknown outcome may still be under way after its
				// producer has a new identity; only a new epoch of the same id
				// fences it.
				c.check(cfg.Name != "")
			})
		})
	}
}

// chaos is one run: a fake that misbehaves until a time, and what became of
// the records.
type chaos struct {
	t        *testing.T
	fake     *fake
	until    time.Time
	refusing bool

	mu       sync.Mutex // guards rng and outcomes
	rng      *rand.Rand
	outcomes map[string]chaosOutcome // by value
}

type chaosOutcome struct {
	res       producer.Result
	err       error
	cancelled bool // its context could end
}

func newChaos(t *testing.T, seed uint64, lasts time.Duration) *chaos {
	c := &chaos{
		t: t, fake: newFake(t, 3), until: time.Now().Add(lasts),
		rng: rand.New(rand.NewPCG(seed, 1)), outcomes: make(map[string]chaosOutcome),
	}
	c.fake.judge = c.judge
	c.fake.identities = func() error {
		if c.roll(3) == 0 && time.Now().Before(c.until) {
			return record.ErrUnreachable
		}
		return nil
	}
	return c
}

func (c *chaos) roll(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.IntN(n)
}

func (c *chaos) upTo(d time.Duration) time.Duration { return time.Duration(c.roll(int(d))) }

func (c *chaos) config() producer.Config {
	return producer.Config{
		Name:        []string{"", "n"}[c.roll(2)],
		MaxInFlight: 1 + c.roll(5),
		Linger:      []time.Duration{0, 5 * time.Millisecond}[c.roll(2)],
		BatchBytes:  1 << 10,
		BufferBytes: 16 << 10,
	}
}

func (c *chaos) judge(tp record.TopicPartition, _ record.Batch) fate {
	if !time.Now().Before(c.until) {
		return fate{}
	}
	if time.Now().Unix()%4 == int64(tp.Partition) {
		return fate{refuse: notLeader, answer: c.upTo(5 * time.Millisecond)} // an election
	}
	then := fate{arrive: c.upTo(10 * time.Millisecond), answer: c.upTo(20 * time.Millisecond)}
	if c.roll(2) == 0 {
		then.arrive = 0
	}
	switch c.roll(20) {
	case 0:
		then.refuse = record.ErrOverloaded
	case 1:
		then.refuse = record.ErrUnreachable
	case 2, 3:
		then.lost = true
	case 4:
		then.never = c.roll(3) == 0
	case 5:
		then.arrive = c.upTo(8 * time.Second)
	case 6:
		if c.refusing {
			then.refuse = record.ErrInvalid
		}
	}
	return then
}

func (c *chaos) told(value string, cancelled bool) func(producer.Result, error) {
	return func(res producer.Result, err error) {
		if err != nil && errors.Is(err, producer.ErrNotWritten) == errors.Is(err, record.ErrOutcomeUnknown) {
			c.t.Errorf("%s is neither or both: %v", value, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if _, again := c.outcomes[value]; again {
			c.t.Errorf("%s has two outcomes", value)
		}
		c.outcomes[value] = chaosOutcome{res: res, err: err, cancelled: cancelled}
	}
}

// run lets senders send n records each and closes the producer.
func (c *chaos) run(cfg producer.Config, senders, n int) {
	p, err := producer.New(c.fake, cfg)
	require.NoError(c.t, err)
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for i := range n {
				value := fmt.Sprintf("%d %d", s, i)
				r := record.Record{Topic: "t", Key: []byte{byte(s)}, Value: []byte(value)}
				switch c.roll(12) {
				case 0:
					ctx, cancel := context.WithTimeout(c.t.Context(), c.upTo(100*time.Millisecond))
					res, err := p.Send(ctx, r)
					c.told(value, true)(res, err)
					cancel()
				case 1:
					time.Sleep(c.upTo(200 * time.Millisecond)) // virtual
					fallthrough
				default:
					p.SendAsync(c.t.Context(), r, c.told(value, false))
				}
			}
		})
	}
	wg.Wait()
	require.NoError(c.t, p.Close(c.t.Context()))
	require.Len(c.t, c.outcomes, senders*n, "every record has an outcome")
	time.Sleep(time.Minute) // virtual: what is still under way arrives
}

// check compares what was told with what is in the logs. Records of unknown
// outcome count for the order of their key if ordered.
func (c *chaos) check(ordered bool) {
	seen := make(map[string]bool)
	last := make(map[string]int)
	for n := range int32(c.fake.partitions) {
		for offset, value := range c.fake.values(n) {
			require.False(c.t, seen[value], "%q is there twice", value)
			seen[value] = true
			o := c.outcomes[value]
			require.NotErrorIs(c.t, o.err, producer.ErrNotWritten, value)
			unknown := errors.Is(o.err, record.ErrOutcomeUnknown)
			if o.err == nil {
				require.Equal(c.t, n, o.res.Partition, value)
				require.EqualValues(c.t, offset, o.res.Offset, value)
			} else {
				require.True(c.t, unknown, "%q: %v", value, o.err)
			}
			if unknown && !ordered {
				continue
			}
			var sender string
			var i int
			_, err := fmt.Sscan(value, &sender, &i)
			require.NoError(c.t, err)
			before, some := last[sender]
			require.False(c.t, some && i < before, "%q comes after %d", value, before)
			last[sender] = i
		}
	}
	for value, o := range c.outcomes {
		if o.err == nil {
			require.True(c.t, seen[value], "%q is lost", value)
		}
	}
}
