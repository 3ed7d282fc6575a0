package producer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// Result says where a record went.
type Result struct {
	Topic     string
	Partition int32
	Offset    record.Offset // NoOffset with AckNone, or when a duplicate's offset is forgotten
	Duplicate bool          // an earlier try, or with Dedupe an earlier record, had been written already
	Synced    bool          // as record.Appended: no power cut takes it any more
}

// Producer sends records to a cluster. See the package comment.
type Producer struct {
	cluster Cluster
	reader  Reader // the same; nil without Dedupe
	cfg     Config
	waiters sync.Pool     // of *waiter
	wake    chan struct{} // there is work for the sender; holds one
	timer   *time.Timer   // the next time there is, without any other event

	ctx    context.Context // ends with the producer
	cancel context.CancelFunc
	wg     sync.WaitGroup // the sender, what asks for identities, what tells the time
	called sync.WaitGroup // the one that runs callbacks

	mu      sync.Mutex
	closed  bool
	fatal   error         // fenced: nothing can be sent any more
	refuse  chan struct{} // closed with closed or fatal
	topics  map[string]*topic
	parts   []*partition // of all topics
	queue   []*partition // that may have something to send
	working []*partition // the sender's: the queue it works off
	timerAt time.Time    // when timer fires; zero when it is not set
	buffer  buffer
	scratch record.Record // the record being added; spares an allocation per record
	clock   clock
	spare   spares

	ident     *identity     // nil until there is one
	held      *identity     // the last there was
	asking    bool          // for ident
	asked     chan struct{} // closed when the asking is over
	identErr  error         // why there is none yet
	renewing  bool          // waits until nothing is in flight anywhere
	inFlight  int           // batches in flight in all partitions
	crowd     []*partition  // whose open batches wait for room; see crowded
	callbacks callbacks
	quiets    []*flush // waits until nothing is in flight

	transactional bool
	open          bool // transactional: records are taken

	tries       context.Context // of the tries begun lately; the sender's
	endTries    context.CancelFunc
	triesRotate time.Time
}

// New returns a producer that works on c. It talks to the cluster with the
// first send only; that is also when a named producer fences an older one.
func New(c Cluster, cfg Config) (*Producer, error) { return start(c, cfg, false) }

func start(c Cluster, cfg Config, transactional bool) (*Producer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	p := &Producer{
		cluster: c,
		cfg:     cfg,
		wake:    make(chan struct{}, 1),
		timer:   time.NewTimer(time.Hour),
		refuse:  make(chan struct{}),
		topics:  make(map[string]*topic),
		buffer:  buffer{limit: cfg.BufferBytes},
	}
	p.timer.Stop()
	p.waiters.New = func() any { return &waiter{ready: make(chan struct{}, 1)} }
	p.callbacks.some.L = &p.mu
	p.ctx, p.cancel = context.WithCancel(context.Background())
	if cfg.DisableIdempotence {
		p.ident = new(identity) // it is never looked at
	}
	p.transactional = transactional
	if cfg.Dedupe.on() {
		var ok bool
		if p.reader, ok = c.(Reader); !ok {
			return nil, fmt.Errorf("%w: Dedupe needs a cluster that can be read from", record.ErrInvalid)
		}
	}
	p.wg.Go(p.send)
	p.called.Go(p.runCallbacks)
	return p, nil
}

// Send sends r and waits for its result. When ctx ends first, the error says
// whether r may still be written: *record.OutcomeUnknownError, or
// *NotWrittenError when it was still waiting here and has been taken back.
// Both wrap ctx.Err().
func (p *Producer) Send(ctx context.Context, r record.Record, opts ...SendOption) (Result, error) {
	w := p.waiters.Get().(*waiter)
	defer p.waiters.Put(w)
	if err := p.add(ctx, &r, slot{wait: w}, true, opts); err != nil {
		return Result{}, err
	}
	select {
	case <-w.ready:
		return w.take()
	case <-ctx.Done():
		return p.takeBack(w, ctx.Err())
	}
}

// SendAsync sends r and returns once it is in the buffer. It waits for space,
// and with a topic's first record for the number of its partitions, no longer
// than ctx; ctx means nothing to r after that.
//
// done, which may be nil, is called exactly once: before SendAsync returns when
// r is refused at once, otherwise on the producer's own goroutine, one callback
// after the other. A slow callback delays other callbacks, not sending.
func (p *Producer) SendAsync(ctx context.Context, r record.Record, done func(Result, error), opts ...SendOption) {
	if err := p.add(ctx, &r, slot{done: done}, true, opts); err != nil && done != nil {
		done(Result{}, err)
	}
}

// TrySendAsync is SendAsync that refuses r with *BufferFullError where SendAsync
// would wait for space in the buffer.
func (p *Producer) TrySendAsync(ctx context.Context, r record.Record, done func(Result, error), opts ...SendOption) {
	if err := p.add(ctx, &r, slot{done: done}, false, opts); err != nil && done != nil {
		done(Result{}, err)
	}
}

// Close refuses new records, flushes, and ends the producer's goroutines. When
// ctx ends first it gives up what is left, whose results say whether it was
// written, and returns ctx.Err(); callbacks may then still run for a while. It
// may be called again, but not from a callback.
func (p *Producer) Close(ctx context.Context) error {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		if p.fatal == nil {
			close(p.refuse)
		}
	}
	p.mu.Unlock()

	err := p.Flush(ctx)
	p.mu.Lock()
	if err != nil {
		p.abandon(fmt.Errorf("%w before the record was acknowledged: %w", record.ErrClosed, err))
	}
	p.callbacks.stop = true
	p.callbacks.some.Signal()
	p.mu.Unlock()

	p.cancel()
	p.wg.Wait()
	p.timer.Stop()
	if err == nil {
		p.called.Wait()
	}
	return err
}

// refusal returns why no record is taken any more, or nil. Called with the lock.
func (p *Producer) refusal() error {
	if p.closed {
		return fmt.Errorf("producer: %w", record.ErrClosed)
	}
	if p.fatal == nil && p.transactional && !p.open {
		return errNoTransaction
	}
	return p.fatal
}
