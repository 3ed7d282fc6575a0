package transport

import (
	"bytes"
	"context"
	"sync"
)

// call is one request and the wait for its answer. It ends once: with the
// answer, with its context, or when either node closes.
type call struct {
	from, to *endpoint
	done     func([]byte, error)
	ctx      context.Context // the handler's; ended by finish
	cancel   context.CancelFunc

	mu      sync.Mutex
	over    bool
	unwatch func() bool // stops the watch on the caller's context
}

// reply is what the handler calls.
func (c *call) reply(resp [][]byte, err error) {
	if err != nil {
		c.answer(nil, &RemoteError{Node: c.to.id, Text: err.Error()})
		return
	}
	c.answer(bytes.Join(resp, nil), nil)
}

// answer sends the result back over the link.
func (c *call) answer(resp []byte, err error) {
	c.from.net.carry(way{c.to.id, c.from.id}, func() { c.finish(resp, err) })
}

// await makes sure that the call ends. The request is on its way already, and
// most likely answered: then there is nothing to do.
func (c *call) await(ctx context.Context) {
	if c.isOver() {
		return
	}
	for _, e := range []*endpoint{c.from, c.to} {
		if !e.track(c) {
			c.finish(nil, leftError(e.id))
			return
		}
	}
	unwatch := context.AfterFunc(ctx, func() { c.finish(nil, ctx.Err()) })
	c.mu.Lock()
	c.unwatch = unwatch
	over := c.over
	c.mu.Unlock()
	if over {
		unwatch()
	}
}

func (c *call) isOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// finish ends the call, if nothing has ended it before; a second reply ends here.
func (c *call) finish(resp []byte, err error) {
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		return
	}
	c.over = true
	unwatch := c.unwatch
	c.mu.Unlock()

	if unwatch != nil {
		unwatch()
	}
	c.cancel()
	c.from.untrack(c)
	c.to.untrack(c)
	c.done(resp, err)
}
