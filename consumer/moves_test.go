package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/record"
)

// built is the coordinator that ships, over an offsets partition in memory.
type built struct{ *group.Coordinator }

func newBuilt(t *testing.T, src memory) built { return newBuiltLogging(t, src, nil) }

func newBuiltLogging(t *testing.T, src memory, logger *slog.Logger) built {
	c := group.Start(group.Config{
		Logger:     logger,
		Partition:  offsets{newMemory("__consumer_offsets", 1)["__consumer_offsets"][0]},
		Partitions: func(topic string) int { return len(src[topic]) },
	})
	t.Cleanup(c.Close)
	return built{c}
}

func (b built) Group(ctx context.Context, name string, req group.Request) (group.Response, error) {
	return b.Do(ctx, name, req)
}

// offsets is a partition as its only replica sees it: it leads, and a write is
// committed at once.
type offsets struct{ *partition }

func (o offsets) Append(_ context.Context, b record.Batch, epoch record.LeaderEpoch) (record.Appended, error) {
	return record.Appended{BaseOffset: o.append(b), LeaderEpoch: epoch}, nil
}

func (o offsets) Barrier(context.Context) (record.LeaderEpoch, record.Offset, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return 1, o.next, nil
}

func (o offsets) Leading() (record.LeaderEpoch, error) { return 1, nil }

func (o offsets) Trim(_ context.Context, offset record.Offset) error {
	o.trim(offset)
	return nil
}

// crew is members of one group that run, and what their handlers have seen.
type crew struct {
	*testing.T
	src   memory
	coord Coordinator

	members []*Group
	crash   []context.CancelFunc // of the members
	runs    sync.WaitGroup

	mu   sync.Mutex
	seen map[string]int
}

// hire starts a member.
func (c *crew) hire(name string) {
	c.Helper()
	link := &link{Coordinator: c.coord}
	g, err := Join(c.Context(), c.src, link, "billing", []string{"orders"}, Config{ClientID: name, MaxPollBytes: 200})
	require.NoError(c, err)
	ctx, stop := context.WithCancel(c.Context())
	c.members = append(c.members, g)
	c.crash = append(c.crash, func() { link.cut(); stop() })
	c.runs.Go(func() {
		err := g.Run(ctx, c.handle)
		if !errors.Is(err, record.ErrClosed) && ctx.Err() == nil {
			c.Errorf("%s: %v", name, err)
		}
	})
}

func (c *crew) handle(_ context.Context, r record.Record) error {
	time.Sleep(10 * time.Millisecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[string(r.Value)]++
	return nil
}

// dismiss closes member i.
func (c *crew) dismiss(i int) {
	c.Helper()
	require.NoError(c, c.members[i].Close(context.Background()))
	c.members = append(c.members[:i:i], c.members[i+1:]...)
	c.crash = append(c.crash[:i:i], c.crash[i+1:]...)
}

// kill lets member i vanish: it says nothing any more, to anybody.
func (c *crew) kill(i int) {
	c.crash[i]()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = c.members[i].Close(ctx)
	c.members = append(c.members[:i:i], c.members[i+1:]...)
	c.crash = append(c.crash[:i:i], c.crash[i+1:]...)
}

// link is a member's way to its coordinator.
type link struct {
	Coordinator
	mu   sync.Mutex
	dead bool
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
}

func (l *link) Group(ctx context.Context, name string, req group.Request) (group.Response, error) {
	l.mu.Lock()
	dead := l.dead
	l.mu.Unlock()
	if dead {
		return group.Response{}, record.ErrUnreachable
	}
	return l.Coordinator.Group(ctx, name, req)
}

// seed is the one of a random test; QUORUMLOG_SEED repeats a run.
func seed(t *testing.T) *rand.Rand {
	n := rand.Uint64()
	if s := os.Getenv("QUORUMLOG_SEED"); s != "" {
		var err error
		n, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("QUORUMLOG_SEED=%d", n)
	return rand.New(rand.NewPCG(n, n))
}

// Members come and go while records are produced. When all of them go
// gracefully, every record is handled exactly once; when some crash, at least
// once, and again only what a crashed member had not committed.
func TestMovesLoseNothingAndRepeatOnlyAfterCrashes(t *testing.T) {
	const partitions, rounds, perRound = 6, 60, 3
	coordinators := map[string]func(*testing.T, memory) Coordinator{
		"rules": func(_ *testing.T, m memory) Coordinator { return newCoordinator(m) },
		"built": func(t *testing.T, m memory) Coordinator { return newBuilt(t, m) },
	}
	for name, make := range coordinators {
		for _, crashes := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, crashes %v", name, crashes), func(t *testing.T) {
				random := seed(t)
				synctest.Test(t, func(t *testing.T) {
					m := newMemory("orders", partitions)
					c := &crew{T: t, src: m, coord: make(t, m), seen: map[string]int{}}
					c.hire("m0")
					killed := 0
					for round := range rounds {
						m.fill(t, "orders", perRound, 2)
						time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
						switch n := len(c.members); {
						case n == 0 || n < 5 && random.IntN(4) == 0:
							c.hire(fmt.Sprint("m", round))
						case n > 1 && random.IntN(4) == 0:
							c.dismiss(random.IntN(n))
						case crashes && random.IntN(10) == 0:
							c.kill(random.IntN(n))
							killed++
						}
					}
					if len(c.members) == 0 {
						c.hire("last")
					}
					time.Sleep(time.Minute)
					for len(c.members) > 0 {
						c.dismiss(0)
					}
					c.runs.Wait()
					require.Len(t, c.seen, partitions*rounds*perRound)
					again := 0
					for _, n := range c.seen {
						again += n - 1
					}
					// A poll of 200 bytes brings at most two records.
					require.LessOrEqual(t, again, 2*killed)
				})
			})
		}
	}
}
