package producer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// errNoTransaction is why a record is refused between transactions.
var errNoTransaction = fmt.Errorf("%w: no transaction is open", record.ErrInvalid)

// errDiscarded is why a record is given up that nobody gave a reason for.
var errDiscarded = errors.New("the transaction was discarded")

// Transactional is a producer for the records of transactions, one after the
// other. Who owns it runs the transactions: it gives each an identity with Begin,
// makes partitions part of it (a Cluster of its own may do so in Append: with each
// transaction the first batch of a partition is sent alone), and ends it.
//
//	Begin(id, epoch) ──▶ Send, SendAsync ──▶ End ──▶ all results are there: commit
//	                                    └──▶ Discard ──▶ nothing is in flight: abort
//
// Sequences begin at 0 with each Begin. A producer never takes another identity
// on its own: a gap in the sequences, or an epoch that is fenced, fails all
// records up to the next Begin. A record that failed may leave a gap, so the
// transaction should be aborted then.
type Transactional struct{ *Producer }

// NewTransactional returns a producer that refuses records, with
// record.ErrInvalid, until Begin. It never calls Cluster.NewProducer. A Name, or
// no idempotence, makes no sense.
func NewTransactional(c Cluster, cfg Config) (*Transactional, error) {
	var errs []error
	if cfg.Name != "" {
		errs = append(errs, fmt.Errorf("%w: Name %q: the identity is given by Begin", record.ErrInvalid, cfg.Name))
	}
	if cfg.DisableIdempotence {
		errs = append(errs, fmt.Errorf("%w: DisableIdempotence: a transaction needs every record once", record.ErrInvalid))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	p, err := start(c, cfg, true)
	if err != nil {
		return nil, err
	}
	return &Transactional{p}, nil
}

// Begin takes records under an identity that was never used before. It returns
// record.ErrInvalid when records of the transaction before are left, which End
// and Discard wait for.
func (t *Transactional) Begin(id record.ProducerID, epoch record.ProducerEpoch) error {
	p := t.Producer
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return p.refusal()
	}
	for _, pt := range p.parts {
		if !pt.idle() {
			return fmt.Errorf("%w: %v has records of the transaction before", record.ErrInvalid, pt.tp)
		}
		pt.ident = nil
		pt.failures, pt.retryAt, pt.lastError = 0, time.Time{}, nil
	}
	if p.fatal != nil {
		p.fatal, p.refuse = nil, make(chan struct{})
	}
	p.ident, p.open = &identity{id: id, epoch: epoch}, true
	return nil
}

// End refuses new records and flushes.
func (t *Transactional) End(ctx context.Context) error {
	t.mu.Lock()
	t.open = false
	t.mu.Unlock()
	return t.Flush(ctx)
}

// Discard refuses new records, gives up what is not in flight, because of cause if
// there is one, and waits for the answers to what is.
func (t *Transactional) Discard(ctx context.Context, cause error) error {
	p := t.Producer
	p.mu.Lock()
	p.open = false
	p.fail(cmp.Or(cause, errDiscarded))
	quiet := &flush{left: 1, over: make(chan struct{})}
	p.quiets = append(p.quiets, quiet)
	p.landed()
	p.mu.Unlock()
	if err := p.Flush(ctx); err != nil {
		return err
	}
	return quiet.wait(ctx)
}
