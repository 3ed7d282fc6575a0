package producer

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"
)

// dropIdentity makes pt, which has nothing in flight, go on under a new identity.
// With a name that is the next epoch, which fences what is in flight under this
// one, so it waits until no partition has anything in flight. In a transaction it
// is the end of it.
func (p *Producer) dropIdentity(pt *partition) {
	switch {
	case p.transactional:
		p.fail(fmt.Errorf("%w, so the transaction cannot be completed", errGap))
	case p.cfg.Name != "":
		p.renewing = true
		p.schedule(time.Now()) // batches in doubt are not waited for
	default:
		if p.ident == pt.ident {
			p.ident = nil
		}
		pt.ident = nil
	}
}

// landed does what waits until nothing is in flight: it drops the identity that
// dropIdentity could not drop at once, and ends waits.
func (p *Producer) landed() {
	if p.inFlight > 0 {
		return
	}
	for _, f := range p.quiets {
		f.done()
	}
	p.quiets = nil
	if !p.renewing {
		return
	}
	p.renewing, p.ident = false, nil
	for _, pt := range p.parts {
		pt.ident = nil
	}
	p.markAll()
}

// askIdentity asks the cluster for an identity, on a goroutine of its own,
// which waits a little after a failure. The sender asks again while there is
// something to send.
func (p *Producer) askIdentity() {
	if p.asking {
		return
	}
	p.asking, p.asked = true, make(chan struct{})
	held := p.held
	p.wg.Go(func() {
		ctx, cancel := context.WithTimeout(p.ctx, tryTimeout)
		defer cancel()
		ident, err := p.newIdentity(ctx, held)
		if err != nil && p.ctx.Err() == nil {
			p.cfg.Logger.Warn("no producer identity; trying again", slog.String("producer", p.cfg.Name), slog.Any("error", err))
			select {
			case <-time.After(lastBackoff):
			case <-p.ctx.Done():
			}
		}

		p.mu.Lock()
		defer p.mu.Unlock()
		p.asking, p.identErr = false, err
		close(p.asked)
		switch c := classify(err); {
		case err == nil:
			p.ident, p.held = ident, ident
		case c == fenced || c == refused:
			p.fail(err)
		}
		p.markAll()
	})
}

// awaitIdentity returns an identity as soon as there is one.
func (p *Producer) awaitIdentity(ctx context.Context) (*identity, error) {
	for p.ident == nil {
		if err := p.refusal(); err != nil {
			return nil, err
		}
		p.askIdentity()
		asked := p.asked
		p.mu.Unlock()
		select {
		case <-asked:
		case <-ctx.Done():
		}
		p.mu.Lock()
		if ctx.Err() != nil {
			return nil, cmp.Or(p.identErr, ctx.Err())
		}
	}
	return p.ident, nil
}

// newIdentity asks for an identity. A named producer that had one asks for the
// next only if that one still counts: it must not fence a newer holder of its
// name just because it has lost its place in a sequence.
func (p *Producer) newIdentity(ctx context.Context, held *identity) (ident *identity, err error) {
	ident = new(identity)
	if p.cfg.Name == "" || held == nil {
		ident.id, ident.epoch, err = p.cluster.NewProducer(ctx, p.cfg.Name)
	} else {
		ident.id, ident.epoch, err = p.cluster.RenewProducer(ctx, p.cfg.Name, held.id, held.epoch)
	}
	return ident, err
}
