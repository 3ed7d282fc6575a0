package txn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/txn/half"
)

// The words of half messages.
type (
	// ID names a half message.
	ID = half.ID
	// Decision is what becomes of a half message; the zero value is Unknown.
	Decision = half.Decision
	// Half is a half message as a check sees it.
	Half = half.Half
	// Schedule says when half messages are checked, and what becomes of those that
	// nobody decides about. The zero value is the default: after 6 s, then every 30 s,
	// 15 times, then rolled back.
	Schedule = half.Schedule
)

// Decisions.
const (
	Unknown  = half.Unknown
	Commit   = half.Commit
	Rollback = half.Rollback
)

// Policies of a Schedule.
const (
	RollbackUndecided = half.RollbackUndecided
	CommitUndecided   = half.CommitUndecided
	ParkUndecided     = half.ParkUndecided
)

// Check finds out what became of the local transaction of a half message. It may be
// called while that is still running, in this process or another: "nothing found" does
// not mean that it will not commit. See [SQL] for a way to be certain.
type Check func(ctx context.Context, h Half) Decision

// HalfCluster is what half messages need: a node, or a test's fake.
type HalfCluster interface {
	// Half passes a request to the coordinator of a producer group. It finds the right
	// node and retries until ctx ends.
	Half(ctx context.Context, group string, req half.Request) (half.Response, error)
	// Layout returns how many partitions a topic has.
	Layout(ctx context.Context, topic string) (record.TopicID, int, error)
}

// HalfConfig says how half messages are handled. The zero value works.
type HalfConfig struct {
	Schedule Schedule
	// CheckTimeout bounds the context of one check. Default 10 s.
	CheckTimeout time.Duration
	Logger       *slog.Logger // default silent
}

// maxPoll is how long a producer waits before it asks for checks again: messages of
// others may have become due.
const maxPoll = 5 * time.Second

// HalfProducer sends records whose fate a local transaction decides, and answers
// checks of its group, its own and others'. Its methods may be called at once. It
// owns one goroutine, which Close ends.
type HalfProducer struct {
	cluster HalfCluster
	group   string
	check   Check
	cfg     HalfConfig
	logger  *slog.Logger

	life context.Context // ends with Close
	end  context.CancelFunc
	wg   sync.WaitGroup
}

// NewHalfProducer returns an instance of a producer group, which answers checks from
// now on.
func NewHalfProducer(c HalfCluster, group string, check Check, cfg HalfConfig) (*HalfProducer, error) {
	switch {
	case group == "":
		return nil, fmt.Errorf("%w: the producer group has no name", record.ErrInvalid)
	case check == nil:
		return nil, fmt.Errorf("%w: there is no check; without one undecided messages cannot end", record.ErrInvalid)
	case cfg.CheckTimeout < 0:
		return nil, fmt.Errorf("%w: CheckTimeout is %v", record.ErrInvalid, cfg.CheckTimeout)
	}
	cfg.CheckTimeout = cmp.Or(cfg.CheckTimeout, 10*time.Second)
	p := &HalfProducer{
		cluster: c, group: group, check: check, cfg: cfg, logger: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
	}
	p.life, p.end = context.WithCancel(context.Background())
	p.wg.Go(p.answerChecks)
	return p, nil
}

// Close ends the instance. A check that is running is told by its context. Idempotent.
func (p *HalfProducer) Close() error {
	p.end()
	p.wg.Wait()
	return nil
}

// Send stores r as a half message and then runs local, the local transaction. What
// that answers ends the message: Commit appends r to its topic, Rollback forgets it.
// With Unknown, or when the decision gets lost, the group is asked later, as it is when
// this process dies.
//
// It returns what counts: the decision that was stored, which is not local's when a
// check has decided before, or Unknown. An error before local ran means that r was not
// sent, and local did not run; ErrOutcomeUnknown among them, that a half message may be
// there without local: the check will be asked about it. If local panics, the message
// is undecided, and the panic goes on.
//
// r goes to the partition of its key, or to any. It may have up to 1 MiB.
func (p *HalfProducer) Send(ctx context.Context, r record.Record, local func(ctx context.Context, id ID) Decision) (Decision, error) {
	if p.life.Err() != nil {
		return Unknown, record.ErrClosed
	}
	_, n, err := p.cluster.Layout(ctx, r.Topic)
	if err != nil {
		return Unknown, err
	}
	if r.Partition = rand.Int32N(int32(max(n, 1))); r.Key != nil {
		r.Partition = int32(producer.KeyPartition(r.Key, n))
	}
	if r.Time.IsZero() {
		r.Time = time.Now() // so that a second try stores the same
	}
	id := half.NewID()
	stored, err := p.cluster.Half(ctx, p.group, half.Request{Op: half.OpStore, ID: id, Record: &r, Schedule: p.cfg.Schedule})
	if err != nil {
		if ctx.Err() != nil && !errors.Is(err, record.ErrOutcomeUnknown) {
			err = &record.OutcomeUnknownError{Err: err}
		}
		return Unknown, fmt.Errorf("store a half message of %q: %w", p.group, err)
	}
	if stored.Decision != Unknown { // its answer took so long that a check was faster
		return stored.Decision, nil
	}
	return p.decide(ctx, id, local(ctx, id))
}

// Decide ends a half message by hand, as one that is parked, and returns what counts.
func (p *HalfProducer) Decide(ctx context.Context, id ID, d Decision) (Decision, error) {
	return p.decide(ctx, id, d)
}

// Undecided returns the group's messages that are half or parked.
func (p *HalfProducer) Undecided(ctx context.Context) ([]Half, error) {
	a, err := p.cluster.Half(ctx, p.group, half.Request{Op: half.OpList})
	return a.Halves, err
}

func (p *HalfProducer) decide(ctx context.Context, id ID, d Decision) (Decision, error) {
	if d == Unknown {
		return Unknown, nil
	}
	a, err := p.cluster.Half(ctx, p.group, half.Request{Op: half.OpDecide, ID: id, Decision: d})
	if err != nil {
		return Unknown, fmt.Errorf("half message %s of %q is not decided yet: %w", id, p.group, err)
	}
	return a.Decision, nil
}

// answerChecks asks for what is due and checks it. It is the instance's own goroutine.
func (p *HalfProducer) answerChecks() {
	for p.life.Err() == nil {
		pause := maxPoll
		a, err := p.poll()
		switch {
		case err != nil && p.life.Err() == nil:
			p.logger.Warn("half messages cannot be asked for, trying again", "group", p.group, "err", err)
		case err == nil && a.Next > 0:
			pause = min(a.Next, maxPoll)
		}
		for _, h := range a.Halves {
			p.answer(h)
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-p.life.Done():
			t.Stop()
		}
	}
}

func (p *HalfProducer) poll() (half.Response, error) {
	ctx, cancel := context.WithTimeout(p.life, p.cfg.CheckTimeout)
	defer cancel()
	return p.cluster.Half(ctx, p.group, half.Request{Op: half.OpPoll})
}

// answer checks one message. A failure is no decision: it is asked about again.
func (p *HalfProducer) answer(h Half) {
	ctx, cancel := context.WithTimeout(p.life, p.cfg.CheckTimeout)
	defer cancel()
	d := p.checked(ctx, h)
	p.logger.Info("half message checked", "group", p.group, "id", h.ID, "tries", h.Tries, "decision", d)
	if _, err := p.decide(ctx, h.ID, d); err != nil && p.life.Err() == nil {
		p.logger.Warn("decision of a check is lost, it is asked again", "group", p.group, "id", h.ID, "err", err)
	}
}

// checked is the check, whose panic is no decision.
func (p *HalfProducer) checked(ctx context.Context, h Half) (d Decision) {
	defer func() {
		if v := recover(); v != nil {
			p.logger.Error("the check of a half message panicked", "group", p.group, "id", h.ID, "panic", v)
			d = Unknown
		}
	}()
	return p.check(ctx, h)
}
