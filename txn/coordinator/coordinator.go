package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/quorumlog/quorumlog/internal/fold"
	"github.com/quorumlog/quorumlog/record"
)

// Participants are the partitions and groups of the cluster. Each call finds the
// right node and tries again until ctx ends. It must be safe to repeat.
type Participants interface {
	// Open lets the transaction write to tp from now on. *record.FencedError if
	// it has ended there already.
	Open(ctx context.Context, tp record.TopicPartition, producer record.ProducerID, epoch record.ProducerEpoch) error
	// Mark ends it there. *record.FencedError: a newer coordinator has been there. record.ErrUnknownTopic: there is no such partition (any more).
	Mark(ctx context.Context, tp record.TopicPartition, m record.Marker) error
	// Settle ends it in a group: its pending offsets count, or are forgotten.
	Settle(ctx context.Context, group string, m record.Marker) error
}

// Config says which transactions a coordinator keeps. Partition, Participants,
// NewProducerID and Changed are required.
type Config struct {
	// Partition is the one of __transaction_state that holds the transactions.
	Partition    fold.Partition
	Participants Participants
	// NewProducerID returns an id that nobody has had. Some are never used.
	NewProducerID func(ctx context.Context) (record.ProducerID, error)
	// Changed returns a channel that is closed at the next change of leader.
	Changed func() <-chan struct{}
	// Forgetful says that Partition may lose what it has acknowledged when power is
	// cut, so that epochs may go back: then every take gets a new producer id, which
	// no partition can have heard of.
	Forgetful bool
	// Unused is how long an id is kept that nobody uses. Default 7 days.
	Unused time.Duration
	// CompactionFloor is as fold.Compaction.Floor. Default 4 MiB.
	CompactionFloor int64
	Logger          *slog.Logger // default silent
}

// Coordinator keeps the transactions of one partition of __transaction_state.
// There is one on every node that holds a replica of it; the leader's answers.
// Its methods may be called at once. It owns a fold, one goroutine, and one for
// each verdict that is on its way; Close ends them.
type Coordinator struct {
	cfg    Config
	logger *slog.Logger
	fold   *fold.Fold
	state  *State // under the fold's lock

	life context.Context // ends with Close
	end  context.CancelFunc
	wg   sync.WaitGroup

	mu        sync.Mutex // guards what follows
	closed    bool
	finishing map[string]*finisher // by id
	complete  map[string]*verdict  // by id: that everybody has, until it is written down; see deliver
	armed     time.Time            // when to look for deadlines, zero for never
	rearm     chan struct{}        // capacity 1: armed is earlier now
}

// retryAfter is when to try again what a leader could not do.
const retryAfter = time.Second

// Start begins to follow the partition.
func Start(cfg Config) *Coordinator {
	cfg.Unused = cmp.Or(cfg.Unused, 7*24*time.Hour)
	c := &Coordinator{
		cfg:       cfg,
		logger:    cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		finishing: map[string]*finisher{},
		complete:  map[string]*verdict{},
		rearm:     make(chan struct{}, 1),
	}
	c.life, c.end = context.WithCancel(context.Background())
	c.fold = fold.Start(fold.Config{
		Partition: cfg.Partition,
		Compaction: &fold.Compaction{
			New: func() fold.State {
				s := NewState()
				s.forgetful = cfg.Forgetful
				return s
			},
			Show:  func(s fold.State) { c.state = s.(*State) },
			Floor: cfg.CompactionFloor,
		},
		Logger: c.logger,
	})
	c.wg.Go(c.watch)
	return c
}

// Close ends the coordinator. Requests in progress return [record.ErrClosed],
// or *[record.OutcomeUnknownError]. Idempotent.
func (c *Coordinator) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.end()
	c.fold.Close()
	c.wg.Wait()
}

// Do answers one request.
//
// *[record.FencedError]: another holder has taken the id. *[EndedError]: the
// transaction is over. [record.ErrInvalid]: the request makes no sense. In these
// cases nothing was done. [record.ErrNotLeader]: ask the node that leads. The end of
// ctx, and *[record.OutcomeUnknownError]: send the request again.
func (c *Coordinator) Do(ctx context.Context, id string, req Request) (Response, error) {
	if err := req.check(id); err != nil {
		return Response{}, err
	}
	for {
		answer, v, err := c.propose(ctx, id, req)
		switch {
		case err == nil && v == nil:
			if req.Op == OpAdd {
				err = c.open(ctx, req, answer)
			}
			return answer, err
		case err != nil && !errors.Is(err, errFinishing):
			return Response{}, err
		case v != nil && v.t.lasts() && c.deliver(ctx, id, v) == nil:
		default:
			if err := c.finished(ctx, id); err != nil {
				return Response{}, err
			}
		}
		if v != nil && v.t.lasts() && req.Op != OpTake {
			return answer, nil
		}
	}
}

// propose decides on a request. v is the verdict that was written, which has yet to
// reach the participants; nil if none was.
func (c *Coordinator) propose(ctx context.Context, id string, req Request) (answer Response, v *verdict, err error) {
	fresh := record.NoProducerID
	for {
		var epoch record.LeaderEpoch // in which it was decided
		wrote := false
		err = c.fold.ProposeFor(ctx, id, func(e record.LeaderEpoch) ([]record.Record, error) {
			now := time.Now()
			next, a, err := c.state.decide(id, req, fresh, c.delivered(id, e), now)
			epoch, answer, v, wrote = e, a, nil, next != nil
			if err != nil || next == nil {
				return nil, err
			}
			if next.Status.prepared() {
				v = &verdict{next, e}
			}
			if next.Status == Ongoing {
				c.arm(next.deadline())
			}
			return []record.Record{encode(now, id, next)}, nil
		})
		switch {
		case errors.Is(err, errNeedID):
			if fresh, err = c.cfg.NewProducerID(ctx); err != nil {
				return Response{}, nil, err
			}
			continue
		case errors.Is(err, record.ErrFenced), errors.Is(err, ErrEnded), err == nil && !wrote && req.Op == OpTake:
			// A leader that was replaced and does not know it may have answered by
			// what is long out of date. The caller would take that for the outcome, or
			// for the identity of a transaction that has yet to begin. It counts if
			// the epoch still lasts; one that came since knows better.
			now, _, barred := c.cfg.Partition.Barrier(ctx)
			if barred != nil {
				return Response{}, nil, barred
			}
			if now != epoch {
				continue
			}
		}
		return answer, v, err
	}
}

// open lets the transaction write to the partitions of an add.
func (c *Coordinator) open(ctx context.Context, req Request, who Response) error {
	err := each(len(req.Partitions), func(i int) error {
		return c.cfg.Participants.Open(ctx, req.Partitions[i], who.Producer, who.Epoch)
	})
	if errors.Is(err, record.ErrFenced) {
		// It has ended there already, so the state that let it through is not the
		// newest any more. Who asks again is told how it ended; its holder is not fenced.
		return fmt.Errorf("the transaction has ended in a partition: %w: %v", record.ErrNotLeader, err)
	}
	return err
}

// View shows what this node knows of the transactions; on a follower that may
// be old. fn must not keep s.
func (c *Coordinator) View(fn func(s *State)) {
	c.fold.View(func() { fn(c.state) })
}

// Read is View with everything that was committed before; leader only.
func (c *Coordinator) Read(ctx context.Context, fn func(s *State)) error {
	return c.fold.Read(ctx, func() { fn(c.state) })
}

// watch takes up what a leader must do without being asked: it finishes what was
// prepared before, and ends what is over. It is the coordinator's own goroutine.
func (c *Coordinator) watch() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	changed := c.cfg.Changed()
	for {
		select {
		case <-timer.C:
		case <-changed:
			changed = c.cfg.Changed() // before looking who leads
		case <-c.rearm:
			timer.Reset(time.Until(c.deadline()))
			continue
		case <-c.life.Done():
			return
		}
		timer.Stop()
		if next := c.look(); !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

// look ends what is over, has what is prepared finished, writes down what everybody
// has heard of, and returns when to look again.
func (c *Coordinator) look() time.Time {
	if _, err := c.cfg.Partition.Leading(); err != nil {
		return time.Time{} // who leads next looks for itself
	}
	var prepared []string
	err := c.fold.Propose(c.life, func(epoch record.LeaderEpoch) (records []record.Record, err error) {
		prepared = prepared[:0]
		now := time.Now()
		over, next := c.state.due(c.cfg.Unused, now)
		c.mu.Lock()
		c.armed = next
		maps.DeleteFunc(c.complete, func(id string, v *verdict) bool {
			t := c.state.transactions[id]
			return t == nil || !t.heard(v.identity())
		})
		c.mu.Unlock()
		for _, id := range slices.Sorted(maps.Keys(over)) {
			records = append(records, encode(now, id, over[id]))
			if over[id] != nil {
				c.logger.Info("transaction timed out and is aborted", "id", id)
				prepared = append(prepared, id)
			}
		}
		for id, t := range c.state.transactions {
			switch {
			case !t.Status.prepared():
			case !t.heard(c.delivered(id, epoch)):
				prepared = append(prepared, id)
			case t.lasts():
				records = append(records, encode(now, id, t.completed(now)))
			}
		}
		return records, nil
	})
	switch {
	case errors.Is(err, record.ErrClosed):
		return time.Time{}
	case err != nil: // no word of another leader: one that hands over may stay, and nobody else looks then
		c.logger.Warn("transactions could not be looked through, trying again", "in", retryAfter, "err", err)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.armed = time.Now().Add(retryAfter)
		return c.armed
	}
	for _, id := range prepared {
		c.finish(id)
	}
	return c.deadline()
}

func (c *Coordinator) deadline() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.armed
}

// arm makes sure that deadlines are looked for at t or before.
func (c *Coordinator) arm(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.armed.IsZero() && !t.Before(c.armed) {
		return
	}
	c.armed = t
	select {
	case c.rearm <- struct{}{}:
	default:
	}
}
