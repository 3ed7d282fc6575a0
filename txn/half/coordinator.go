package half

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/quorumlog/quorumlog/internal/fold"
	"github.com/quorumlog/quorumlog/record"
)

// Config says which half messages a coordinator keeps. The first four are required.
type Config struct {
	// Partition is the one of __half_messages that holds them.
	Partition fold.Partition
	// Append appends a batch to a partition, wherever that is led, and waits until a
	// quorum holds it. It tries once.
	Append func(ctx context.Context, tp record.TopicPartition, b record.Batch) error
	// NewProducerID returns an id that nobody has had. Some are never used.
	NewProducerID func(ctx context.Context) (record.ProducerID, error)
	// Changed returns a channel that is closed at the next change of leader.
	Changed func() <-chan struct{}
	// CompactionFloor is as fold.Compaction.Floor. Default 4 MiB.
	CompactionFloor int64
	Logger          *slog.Logger // default silent
}

// Coordinator keeps the half messages of one partition of __half_messages. There is
// one on every node that holds a replica of it; the leader's answers. Its methods may
// be called at once. It owns a fold and one goroutine, and one for each partition that
// something is appended to; Close ends them.
type Coordinator struct {
	cfg    Config
	logger *slog.Logger
	fold   *fold.Fold
	state  *state // under the fold's lock

	life context.Context // ends with Close
	end  context.CancelFunc
	wg   sync.WaitGroup
	work chan struct{} // capacity 1: something may be committed
}

const (
	tryTimeout   = 5 * time.Second // of one append
	firstBackoff = 10 * time.Millisecond
	lastBackoff  = time.Second
)

// Start begins to follow the partition.
func Start(cfg Config) *Coordinator {
	c := &Coordinator{
		cfg: cfg, logger: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)), work: make(chan struct{}, 1),
	}
	c.life, c.end = context.WithCancel(context.Background())
	c.fold = fold.Start(fold.Config{
		Partition: cfg.Partition,
		Compaction: &fold.Compaction{
			New:   func() fold.State { return newState() },
			Show:  func(s fold.State) { c.state = s.(*state) },
			Floor: cfg.CompactionFloor,
		},
		Logger: c.logger,
	})
	c.wg.Go(c.deliver)
	return c
}

// Close ends the coordinator. Idempotent.
func (c *Coordinator) Close() {
	c.end()
	c.fold.Close()
	c.wg.Wait()
}

// Do answers one request. [ErrGone], [record.ErrInvalid]: nothing was done.
// [record.ErrNotLeader]: ask the node that leads. *[record.OutcomeUnknownError]: send
// the request again.
func (c *Coordinator) Do(ctx context.Context, group string, req Request) (answer Response, err error) {
	if err := req.check(group); err != nil {
		return Response{}, err
	}
	if req.Op == OpList {
		err := c.fold.Read(ctx, func() { answer = c.state.decision(group, time.Now(), nil).list() })
		return answer, err
	}
	err = c.propose(ctx, func(d *decision) (err error) {
		d.group = group
		answer, err = d.do(req)
		return err
	})
	if errors.Is(err, ErrGone) {
		// A leader that was replaced may not have heard of it.
		if _, _, barred := c.cfg.Partition.Barrier(ctx); barred != nil {
			return Response{}, barred
		}
	}
	if err != nil {
		return Response{}, err
	}
	c.look()
	return answer, nil
}

// propose makes a decision, with as many unused producer ids as it needs.
func (c *Coordinator) propose(ctx context.Context, make func(d *decision) error) error {
	var fresh []record.ProducerID
	for {
		err := c.fold.Propose(ctx, func(record.LeaderEpoch) ([]record.Record, error) {
			d := c.state.decision("", time.Now(), fresh)
			if err := make(d); err != nil {
				return nil, err
			}
			return d.records, nil
		})
		if !errors.Is(err, errNeedID) {
			return err
		}
		id, err := c.cfg.NewProducerID(ctx)
		if err != nil {
			return err
		}
		fresh = append(fresh, id)
	}
}

// look has the deliverer look for committed messages.
func (c *Coordinator) look() {
	select {
	case c.work <- struct{}{}:
	default:
	}
}
