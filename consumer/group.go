package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// Group is one member of a consumer group. The package comment says which
// goroutines it owns. Its methods are safe for concurrent use, except that
// Poll and Run belong to one goroutine at a time.
type Group struct {
	src    Source
	coord  Coordinator
	name   string
	topics []string
	cfg    Config
	logger *slog.Logger
	stages *stages // where records are moved to; nil without a RetryPolicy
	keys   *keys   // which keys are there; nil unless KeyOrder

	life    context.Context // of the goroutines; ends while Close is under way
	end     context.CancelFunc
	wg      sync.WaitGroup
	closing chan struct{}   // closed when Close begins
	stay    context.Context // ends when the member has left: no more commits
	gone    context.CancelFunc
	once    sync.Once
	closed  error // result of the first Close

	wake  chan struct{} // capacity 1: Poll should look again
	nudge chan struct{} // capacity 1: the session should send a heartbeat now
	tidy  chan struct{} // capacity 1: the keeper should look at the claims

	saving chan struct{}        // capacity 1: held while a Run commits or a Seek moves
	spare  chan []record.Record // memory of batches that Run is through with

	mu         sync.Mutex
	member     string
	generation record.Generation
	claims     map[record.TopicPartition]*claim
	ring       []*claim  // the values of claims, sorted by partition
	turn       int       // where Poll looks first
	polls      uint64    // calls of Poll
	polling    bool      // one is under way
	active     time.Time // when the last one or a Run ended, or records came
	paused     map[record.TopicPartition]bool
	lost       []*claim // for the keeper to finish
	out        *claim   // of the batch Poll handed out last, while it may be committed
	outNext    record.Offset
	err        error   // ends the membership; what Poll returns
	runner     *runner // of the Run in progress
}

// Join becomes a member of the group name, which reads topics. It returns when
// the coordinator has accepted the member; partitions follow soon after. ctx
// bounds the joining; the membership lasts until Close.
func Join(ctx context.Context, src Source, coord Coordinator, name string, topics []string, cfg Config) (*Group, error) {
	if err := validateJoin(name, topics, cfg); err != nil {
		return nil, err
	}
	g := &Group{
		src: src, coord: coord, name: name,
		topics:  slices.Compact(slices.Sorted(slices.Values(topics))),
		cfg:     cfg.withDefaults(),
		closing: make(chan struct{}),
		wake:    make(chan struct{}, 1),
		nudge:   make(chan struct{}, 1),
		tidy:    make(chan struct{}, 1),
		saving:  make(chan struct{}, 1),
		spare:   make(chan []record.Record, 2), // each keeps the fetch alive that it last held
		active:  time.Now(),
		claims:  make(map[record.TopicPartition]*claim),
		paused:  make(map[record.TopicPartition]bool),
	}
	g.logger = g.cfg.Logger.With("group", name)
	if err := g.prepare(ctx); err != nil {
		return nil, fmt.Errorf("join group %q: %w", name, err)
	}
	if err := g.join(ctx); err != nil {
		return nil, fmt.Errorf("join group %q: %w", name, err)
	}
	g.stay, g.gone = context.WithCancel(context.WithoutCancel(ctx))
	g.life, g.end = context.WithCancel(g.stay)
	g.wg.Go(g.session)
	g.wg.Go(g.keep)
	return g, nil
}

// prepare looks at the topics, and makes those that records are moved to.
func (g *Group) prepare(ctx context.Context) error {
	most := 1
	for _, topic := range g.topics { // an unknown one is told now, not by silence
		n, err := g.src.Partitions(ctx, topic)
		if err != nil {
			return err
		}
		most = max(most, n)
	}
	if !g.cfg.Retry.active() {
		return nil
	}
	s, topics, err := openStages(ctx, g.cfg.Mover, g.name, g.cfg.Retry, most)
	if err != nil {
		return fmt.Errorf("topics for records that are tried again: %w", err)
	}
	g.stages = s
	g.topics = slices.Compact(slices.Sorted(slices.Values(append(topics, g.topics...))))
	if g.cfg.Retry.KeyOrder {
		g.keys = newKeys(g)
	}
	return nil
}

func validateJoin(name string, topics []string, cfg Config) error {
	var errs []error
	if name == "" {
		errs = append(errs, errors.New("the group has no name"))
	}
	if len(topics) == 0 {
		errs = append(errs, errors.New("no topics are named"))
	}
	if slices.Contains(topics, "") {
		errs = append(errs, errors.New("a topic has no name"))
	}
	if len(errs) > 0 {
		return fmt.Errorf("join group %q: %w: %w", name, record.ErrInvalid, errors.Join(errs...))
	}
	return cfg.Validate()
}

func (g *Group) closedError() error { return fmt.Errorf("group %q: %w", g.name, record.ErrClosed) }

// Name returns the name of the group.
func (g *Group) Name() string { return g.name }

// Member returns the id the coordinator knows this member by. It changes when
// the member was fenced and joined again.
func (g *Group) Member() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.member
}

// Generation returns the generation of the group's assignment, as of the last
// heartbeat.
func (g *Group) Generation() record.Generation {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.generation
}

// Owned returns the partitions that Poll hands out now, sorted.
func (g *Group) Owned() []record.TopicPartition {
	g.mu.Lock()
	defer g.mu.Unlock()
	var tps []record.TopicPartition
	for _, c := range g.ring {
		if c.ready && c.wanted.Load() {
			tps = append(tps, c.tp)
		}
	}
	return tps
}

// Close leaves the group, unless this is a static member, so that others take the partitions over at once
// instead of after the session timeout. Poll and Run return
// [record.ErrClosed]; Close first waits for Run, so that what its handler has
// finished is committed, and must therefore not be called by the handler. A
// batch from Poll that is not committed goes to the next owner.
//
// ctx bounds the waiting and the leaving; the member's goroutines have ended
// in any case when Close returns. A second Close waits for the first and
// returns the same.
func (g *Group) Close(ctx context.Context) error {
	g.once.Do(func() { g.closed = g.close(ctx) })
	return g.closed
}

func (g *Group) close(ctx context.Context) error {
	close(g.closing)
	g.mu.Lock()
	running := g.runner
	g.mu.Unlock()
	var waited error
	if running != nil {
		select {
		case <-running.ended:
		case <-ctx.Done():
			waited = ctx.Err()
		}
	}
	g.end()
	g.wg.Wait() // session, keeper and feeds; a claim is touched by nobody else now
	g.finish(ctx, g.lost)
	g.finish(ctx, g.ring) // still owned: OnRevoked may commit
	var err error
	if g.cfg.InstanceID == "" {
		err = g.leave(ctx)
	}
	g.gone()
	if err := errors.Join(waited, err); err != nil {
		return fmt.Errorf("leave group %q: %w", g.name, err)
	}
	return nil
}
