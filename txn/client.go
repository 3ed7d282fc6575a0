package txn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/quorumlog/quorumlog/consumer"
	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/txn/coordinator"
)

// Cluster is what transactions need: a node, or a test's fake.
type Cluster interface {
	producer.Cluster
	consumer.Coordinator
	// Transaction passes a request to the coordinator of a transactional id. It
	// finds the right node and retries until ctx ends.
	Transaction(ctx context.Context, id string, req coordinator.Request) (coordinator.Response, error)
}

// Config says how transactions are run. Config{} works.
type Config struct {
	// Timeout is how long a transaction may be open before its coordinator aborts
	// it: readers wait behind it as long. Whole milliseconds up to 15 min, default
	// 1 min.
	Timeout time.Duration
	// Producer says how records are batched and sent. Name and DisableIdempotence
	// make no sense here.
	Producer producer.Config
	// Logger gets what an operator should know. Default silent.
	Logger *slog.Logger
}

// settleTimeout is how long the end of a transaction is tried after the caller has
// stopped waiting for it.
const settleTimeout = 30 * time.Second

// ErrAborted matches *AbortedError.
var ErrAborted = errors.New("transaction aborted")

// AbortedError says that a transaction was aborted: none of its records and offsets
// count. It can be tried again, unless Err is record.ErrFenced because another
// client has taken the transactional id.
type AbortedError struct {
	ID  string // transactional id
	Err error  // why
}

// Is reports whether target is ErrAborted.
func (e *AbortedError) Is(target error) bool { return target == ErrAborted }

// Unwrap returns the reason.
func (e *AbortedError) Unwrap() error { return e.Err }

func (e *AbortedError) Error() string {
	return fmt.Sprintf("transaction of %q aborted: %v", e.ID, e.Err)
}

// Client runs transactions under one transactional id, one at a time. Its methods
// may be called at once; transactions wait for their turn. It owns the goroutines of
// a producer, one for its requests, and one for each that the caller has stopped
// waiting for.
type Client struct {
	id       string
	cluster  Cluster
	cfg      Config
	logger   *slog.Logger
	holder   string
	producer *producer.Transactional
	members  *members

	life context.Context // ends with Close
	end  context.CancelFunc
	wg   sync.WaitGroup
	jobs chan func() // to the goroutine that has nothing to do, if it has

	turn chan struct{} // capacity 1: held by the transaction that is open

	// who writes the next transaction; nil when the coordinator must be asked.
	// Guarded by turn.
	who *coordinator.Response
	// unresolved may have been committed or not. It must be known before the next
	// begins: what it has consumed may have to come again. Guarded by turn.
	unresolved *Tx

	mu     sync.Mutex
	fenced error // another client has taken the id
	closed bool
}

// New returns a client. It takes the id, and fences who had it, with the first
// transaction.
func New(c Cluster, id string, cfg Config) (*Client, error) {
	switch {
	case id == "":
		return nil, fmt.Errorf("%w: the transactional id is empty", record.ErrInvalid)
	case cfg.Timeout < 0 || cfg.Timeout > 15*time.Minute || cfg.Timeout%time.Millisecond != 0:
		return nil, fmt.Errorf("%w: Timeout is %v, want whole milliseconds up to 15 min", record.ErrInvalid, cfg.Timeout)
	}
	cl := &Client{
		id: id, cluster: c, cfg: cfg, holder: coordinator.NewHolder(), turn: make(chan struct{}, 1), jobs: make(chan func()),
		logger: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
	}
	cl.members = &members{client: cl}
	cl.life, cl.end = context.WithCancel(context.Background())
	p, err := producer.NewTransactional(joined{c, cl.members}, cfg.Producer)
	if err != nil {
		cl.end()
		return nil, err
	}
	cl.producer = p
	cl.wg.Go(cl.work)
	return cl, nil
}

// ID returns the transactional id.
func (c *Client) ID() string { return c.id }

// Do runs fn in a transaction: nil commits, an error or a panic aborts. See the
// package comment for what it answers. Who reads after it has answered nil finds
// what was committed. fn may be run again by the caller after *AbortedError.
func (c *Client) Do(ctx context.Context, fn func(tx *Tx) error) error {
	tx, err := c.Begin(ctx)
	if err != nil {
		return err
	}
	returned := false
	defer func() {
		if !returned {
			_ = tx.abort(ctx, errors.New("the function panicked"))
		}
	}()
	err = fn(tx)
	returned = true
	if err != nil {
		return tx.abort(ctx, err)
	}
	return tx.Commit(ctx)
}

// Begin begins a transaction, when the one before has ended. It must be ended with
// Commit or Abort. ctx bounds the wait, and the transaction's sends.
//
// *record.FencedError: another client has taken the id, for good.
func (c *Client) Begin(ctx context.Context) (*Tx, error) {
	if err := c.acquire(ctx); err != nil {
		return nil, err
	}
	tx, err := c.begin(ctx)
	if err != nil {
		<-c.turn
		return nil, fmt.Errorf("begin a transaction of %q: %w", c.id, err)
	}
	return tx, nil
}

func (c *Client) acquire(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.life.Done():
		return record.ErrClosed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := cmp.Or(c.fenced, ctx.Err(), c.life.Err()); err != nil {
		<-c.turn
		if c.closed {
			err = record.ErrClosed
		}
		return err
	}
	return nil
}

func (c *Client) begin(ctx context.Context) (*Tx, error) {
	if err := c.resolve(ctx); err != nil {
		return nil, err
	}
	if c.who == nil {
		ctx, cancel := c.bound(ctx)
		defer cancel()
		who, err := c.ask(ctx, coordinator.Request{Op: coordinator.OpTake, Timeout: c.cfg.Timeout})
		if err != nil {
			return nil, err
		}
		c.who = &who
	}
	tx := newTx(ctx, c, *c.who)
	c.members.begin(tx)
	if err := c.producer.Begin(c.who.Producer, c.who.Epoch); err != nil {
		return nil, err
	}
	return tx, nil
}

// resolve finds out what became of a transaction whose outcome is unknown. The turn
// is held.
func (c *Client) resolve(ctx context.Context) error {
	tx := c.unresolved
	if tx == nil {
		return nil
	}
	ctx, cancel := c.bound(ctx)
	defer cancel()
	c.unresolved = nil
	if err := tx.end(ctx, true, nil); errors.Is(err, record.ErrOutcomeUnknown) {
		return err
	}
	return nil
}

// quiet waits until no transaction is open, and the outcome of the last is known.
func (c *Client) quiet(ctx context.Context) error {
	if err := c.acquire(ctx); err != nil {
		return err
	}
	defer func() { <-c.turn }()
	return c.resolve(ctx)
}

// ask asks the coordinator in the name of this holder.
func (c *Client) ask(ctx context.Context, req coordinator.Request) (coordinator.Response, error) {
	req.Holder = c.holder
	who, err := c.cluster.Transaction(ctx, c.id, req)
	if errors.Is(err, record.ErrFenced) {
		c.mu.Lock()
		c.fenced = err
		c.mu.Unlock()
	}
	return who, err
}

// spawn runs f in a goroutine that Close waits for; false if it is too late.
func (c *Client) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	select {
	case c.jobs <- f:
	default:
		c.wg.Go(f)
	}
	return true
}

// work does what is to be done meanwhile. A new goroutine for each transaction would
// have to grow its stack each time.
func (c *Client) work() {
	for {
		select {
		case f := <-c.jobs:
			f()
		case <-c.life.Done():
			return
		}
	}
}

// bound returns a context that ends with ctx or with the client.
func (c *Client) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.life, cancel)
	return ctx, func() { stop(); cancel() }
}

// Fenced returns why the client is of no use any more: another one has taken its
// transactional id. nil while none has.
func (c *Client) Fenced() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fenced
}

// Close waits, no longer than ctx, for the transaction that is open, and ends the
// client. It may be called again.
func (c *Client) Close(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
	}
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	err := c.producer.Close(ctx)
	c.end()
	c.wg.Wait()
	return err
}
