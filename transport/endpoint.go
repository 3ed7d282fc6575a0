package transport

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/quorumlog/quorumlog/record"
)

// endpoint is a node's place in a Network.
type endpoint struct {
	id  string
	net *Network

	mu       sync.Mutex
	closed   bool
	handlers map[Service]Handler
	sharers  map[Service]SharedHandler
	calls    map[*call]struct{} // waiting for an answer, as either side
}

func (e *endpoint) ID() string { return e.id }

func (e *endpoint) Handle(svc Service, h Handler) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	if h == nil {
		delete(e.handlers, svc)
		return
	}
	e.handlers[svc] = h
}

// HandleShared implements Sharer.
func (e *endpoint) HandleShared(svc Service, h SharedHandler) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	if h == nil {
		delete(e.sharers, svc)
		return
	}
	e.sharers[svc] = h
}

func (e *endpoint) Send(ctx context.Context, to string, svc Service, req [][]byte, done func([]byte, error)) {
	e.send(ctx, to, svc, req, false, done)
}

// SendShared implements Sharer.
func (e *endpoint) SendShared(ctx context.Context, to string, svc Service, req [][]byte, done func([]byte, error)) {
	e.send(ctx, to, svc, req, true, done)
}

func (e *endpoint) send(ctx context.Context, to string, svc Service, req [][]byte, shared bool, done func([]byte, error)) {
	if e.isClosed() {
		done(nil, fmt.Errorf("%w: node %q has left the network", record.ErrClosed, e.id))
		return
	}
	if err := ctx.Err(); err != nil {
		done(nil, err)
		return
	}
	peer := e.net.node(to)
	if peer == nil {
		done(nil, fmt.Errorf("%w: node %q is not in the network", record.ErrUnreachable, to))
		return
	}
	c := &call{from: e, to: peer, done: done}
	c.ctx, c.cancel = context.WithCancel(ctx)
	if shared {
		e.net.carry(way{e.id, to}, func() { peer.serveShared(c, svc, req) })
	} else {
		msg := bytes.Join(req, nil) // which clears nothing first
		e.net.carry(way{e.id, to}, func() { peer.serve(c, svc, msg) })
	}
	c.await(ctx)
}

// serve gives a request that has arrived to its handler.
func (e *endpoint) serve(c *call, svc Service, msg []byte) {
	closed, h := e.isClosed(), e.handler(svc)
	switch {
	case closed:
		c.finish(nil, fmt.Errorf("%w: node %q has left the network", record.ErrUnreachable, e.id))
	case h == nil:
		c.answer(nil, fmt.Errorf("%w: node %q does not serve %d yet", record.ErrUnreachable, e.id, svc))
	default:
		h(c.ctx, c.from.id, msg, c.reply)
	}
}

// serveShared is serve for a request that is shared.
func (e *endpoint) serveShared(c *call, svc Service, req [][]byte) {
	e.mu.Lock()
	h := e.sharers[svc] // nil once e is closed
	e.mu.Unlock()
	if h == nil {
		e.serve(c, svc, bytes.Join(req, nil))
		return
	}
	h(c.ctx, c.from.id, req, c.reply)
}

// handler returns the handler of a service; nil for none.
func (e *endpoint) handler(svc Service) Handler {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.handlers[svc]
}

func (e *endpoint) isClosed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

// track remembers a call so that Close ends it; false when e is closed.
func (e *endpoint) track(c *call) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	if !c.isOver() { // else finish has been here already
		e.calls[c] = struct{}{}
	}
	return true
}

func (e *endpoint) untrack(c *call) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.calls, c)
}

func (e *endpoint) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	calls := e.calls
	e.calls, e.handlers, e.sharers = nil, nil, nil
	e.mu.Unlock()

	e.net.leave(e)
	for c := range calls {
		c.finish(nil, leftError(e.id))
	}
	return nil
}

// leftError ends a call that was in flight when one of its nodes closed.
func leftError(id string) error {
	return fmt.Errorf("%w: node %q left the network before the answer came", record.ErrOutcomeUnknown, id)
}
