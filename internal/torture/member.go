package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/quorumlog/quorumlog/consumer"
	"github.com/quorumlog/quorumlog/record"
)

// member is a member of a group again and again: it joins, handles, commits
// most of it, and leaves or crashes.
type member struct {
	who, group string
	rng        *rand.Rand
	client     *client
	history    *history
	cfg        Config

	mu     sync.Mutex
	told   map[record.TopicPartition]record.Offset // the last committed offsets it was told
	claims map[record.TopicPartition]*claim
}

func newMember(group string, i int, f *fleet, rng *rand.Rand) *member {
	return &member{who: fmt.Sprintf("member %d", i), group: group, rng: rng, client: f.client(i), history: f.history, cfg: f.cfg}
}

// run is a member until ctx ends. The last membership ends in peace.
func (m *member) run(ctx context.Context) {
	for ctx.Err() == nil {
		m.membership(ctx)
		m.client.moveHome(m.rng)
		if !pause(ctx, time.Duration(m.rng.IntN(200))*time.Millisecond) {
			return
		}
	}
}

func (m *member) membership(ctx context.Context) {
	m.told, m.claims = map[record.TopicPartition]record.Offset{}, map[record.TopicPartition]*claim{}
	src := watched{m.cfg.WrapSource(m.client), m.group + "'s " + m.who, m.history}
	coord := watchedGroup{m.client, m.history, m.learn}
	slow := time.Duration(m.cfg.Slow)
	var names []string
	for _, t := range topics {
		names = append(names, t.name)
	}
	joining, cancel := context.WithTimeout(ctx, m.cfg.Bound)
	g, err := consumer.Join(joining, src, coord, m.group, names, consumer.Config{
		SessionTimeout: time.Second * slow, HeartbeatInterval: 50 * time.Millisecond * slow,
		MaxPollBytes: 1 << (8 + m.rng.IntN(10)), OnAssigned: m.assigned, OnRevoked: m.revoked,
	})
	cancel()
	if err != nil {
		m.judge("join", err)
		return
	}
	life, end := context.WithTimeout(ctx, time.Duration(m.rng.IntN(12_000))*time.Millisecond)
	m.poll(life, g)
	end()

	patience, crash := m.cfg.Bound, ctx.Err() == nil && m.rng.IntN(3) == 0
	if crash {
		patience = 0 // nothing reaches the coordinator any more
	}
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := g.Close(leaving); err != nil && !crash {
		m.judge("leave", err)
	}
}

// poll handles and commits until ctx ends or there is an error.
func (m *member) poll(ctx context.Context, g *consumer.Group) {
	var open []consumer.Batch // that are not committed yet
	for ctx.Err() == nil {
		waiting, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		b, err := g.Poll(waiting)
		cancel()
		switch {
		case err == nil:
			m.handed(&b)
			open = append(open, b)
			if m.rng.IntN(5) == 0 {
				continue // committed with the next one, or somebody gets it again
			}
		case !errors.Is(err, context.DeadlineExceeded):
			m.judge("poll", err)
			return
		}
		for _, b := range open {
			m.commit(ctx, g, b)
		}
		open = nil
	}
}

func (m *member) commit(ctx context.Context, g *consumer.Group, b consumer.Batch) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := g.Commit(ctx, b); err != nil && !errors.Is(err, record.ErrFenced) {
		m.judge("commit", err)
	}
}

func (m *member) handed(b *consumer.Batch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.claims[b.TopicPartition()]
	if c == nil {
		c = &claim{next: record.NoOffset, before: record.NoOffset}
	}
	m.history.polled(groupPart{m.group, b.TopicPartition()}, m.who, c, b.Records)
}

// learn notes a committed offset that the coordinator told.
func (m *member) learn(tp record.TopicPartition, o record.Offset) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told[tp] = o
}

func (m *member) assigned(_ context.Context, tps []record.TopicPartition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, tp := range tps {
		if m.claims[tp] == nil {
			m.claims[tp] = &claim{next: record.NoOffset, before: record.NoOffset}
		}
		if o, ok := m.told[tp]; ok {
			m.claims[tp].next = o
		}
	}
}

func (m *member) revoked(_ context.Context, tps []record.TopicPartition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, tp := range tps {
		if c := m.claims[tp]; c != nil {
			c.before, c.next = c.next, record.NoOffset
		}
	}
}

// judge complains about an error that no fault explains.
func (m *member) judge(what string, err error) {
	for _, fine := range []error{
		context.DeadlineExceeded, context.Canceled, record.ErrUnreachable, record.ErrOutcomeUnknown,
		record.ErrNotLeader, record.ErrOverloaded,
	} {
		if errors.Is(err, fine) {
			return
		}
	}
	if !injected(err) {
		m.history.violate(BadError, "%s of group %s, %s: %v", m.who, m.group, what, err)
	}
}
