package group

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

// ledger is what an all-knowing observer writes down.
type ledger struct {
	mu     sync.Mutex
	reader map[record.TopicPartition]string
	acked  map[record.TopicPartition]record.Offset
	moves  int
}

// client is a member as a consumer plays it: it reports every 200 ms, stops
// what it should not read at once, and commits one record for each report.
type client struct {
	s          *stage
	l          *ledger
	rng        *rand.Rand
	id         string
	generation record.Generation
	reads      map[record.TopicPartition]record.Offset
}

func newClient(s *stage, l *ledger, rng *rand.Rand) *client {
	return &client{s: s, l: l, rng: rng, id: NewMember(), reads: map[record.TopicPartition]record.Offset{}}
}

// ask asks one node after the other until one answers.
func (c *client) ask(req Request) (Response, error) {
	for {
		answer, err := c.s.coord[c.rng.IntN(2)].Do(c.s.Context(), "g", req)
		if !errors.Is(err, record.ErrNotLeader) && !errors.Is(err, record.ErrOutcomeUnknown) {
			return answer, err
		}
		time.Sleep(10 * time.Millisecond) // virtual
	}
}

func (c *client) live(until time.Time) {
	answer, err := c.ask(Request{Op: OpJoin, Member: c.id, Topics: []string{"t"}, SessionTimeout: 3 * time.Second})
	for {
		require.NoError(c.s, err)
		if answer.Generation >= c.generation { // an old leader's is passed over
			c.generation = answer.Generation
			c.take(answer.Assigned)
		}
		if !time.Now().Before(until) {
			return
		}
		time.Sleep(200 * time.Millisecond) // virtual
		c.commit()
		req := Request{Op: OpHeartbeat, Member: c.id, Generation: c.generation}
		for p := range c.reads {
			req.Owned = append(req.Owned, p)
		}
		answer, err = c.ask(req)
	}
}

// take stops what is not assigned and begins what is new.
func (c *client) take(assigned []record.TopicPartition) {
	for p := range c.reads {
		if !slices.Contains(assigned, p) {
			c.stop(p)
		}
	}
	for _, p := range assigned {
		if _, ok := c.reads[p]; ok {
			continue
		}
		c.l.mu.Lock()
		require.Empty(c.s, c.l.reader[p], "%v has a reader when %s begins", p, c.id)
		c.l.reader[p] = c.id
		acked := c.l.acked[p]
		c.l.moves++
		c.l.mu.Unlock()
		answer, err := c.ask(Request{Op: OpCommitted, Partitions: []record.TopicPartition{p}})
		require.NoError(c.s, err)
		from := max(0, answer.Offsets[0].Offset)
		require.GreaterOrEqual(c.s, from, acked, "%v: a committed offset was lost", p)
		c.reads[p] = from
	}
}

func (c *client) stop(p record.TopicPartition) {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	delete(c.l.reader, p)
	delete(c.reads, p)
}

func (c *client) commit() {
	req := Request{Op: OpCommit, Member: c.id, Generation: c.generation}
	for p, next := range c.reads {
		req.Offsets = append(req.Offsets, Offset{TopicPartition: p, Offset: next + 1})
	}
	_, err := c.ask(req)
	require.NoError(c.s, err)
	for _, o := range req.Offsets {
		c.reads[o.TopicPartition] = o.Offset
		c.l.mu.Lock()
		c.l.acked[o.TopicPartition] = o.Offset
		c.l.mu.Unlock()
	}
}

// end stops reading, and leaves unless it crashes.
func (c *client) end(crash bool) {
	for p := range c.reads {
		c.stop(p)
	}
	if !crash {
		_, err := c.ask(Request{Op: OpLeave, Member: c.id})
		require.NoError(c.s, err)
	}
}

// TestMembersComeAndGoWhileLeadersChange runs four clients with lives of random
// length for two minutes, on two nodes that take turns to lead, also without
// the old leader's knowing, and lose answers.
func TestMembersComeAndGoWhileLeadersChange(t *testing.T) {
	rng := random(t)
	play(t, 7, func(s *stage) {
		l := &ledger{reader: map[record.TopicPartition]string{}, acked: map[record.TopicPartition]record.Offset{}}
		end := time.Now().Add(2 * time.Minute)
		var wg sync.WaitGroup
		for i := range 4 {
			rng := rand.New(rand.NewPCG(rng.Uint64(), uint64(i)))
			wg.Go(func() {
				for time.Now().Before(end) {
					c := newClient(s, l, rng)
					c.live(time.Now().Add(time.Duration(rng.IntN(20_000)) * time.Millisecond))
					c.end(rng.IntN(3) == 0)
				}
			})
		}
		for time.Now().Before(end) {
			time.Sleep(time.Duration(rng.IntN(10_000)) * time.Millisecond) // virtual; sessions must be able to end
			next, written := s.nodes[rng.IntN(2)], rng.IntN(2) == 0
			s.q.Elect(next, rng.IntN(2) == 0)
			s.q.Do(func() {
				next.FailAppend = func(write func()) error {
					next.FailAppend = nil
					if written && s.q.Leader == next {
						write()
					}
					return &record.OutcomeUnknownError{Err: fmt.Errorf("answer lost")}
				}
			})
		}
		wg.Wait()
		s.agree()
		require.Len(s, l.acked, 7)
		require.Greater(s, l.moves, 20)
		for p, acked := range l.acked {
			require.GreaterOrEqual(s, s.committed(p.Partition), acked)
			require.Greater(s, acked, record.Offset(30), "%v was read too little", p)
		}
	})
}
