// Package transport carries requests between nodes: [Network] within a process,
// where it can cut, delay and drop, and [TCP] between machines. Every
// implementation copies what it carries, but for what a [Sharer] is given to share.
//
// A request goes to the handler of its service at another node, and ends
// exactly once: with the handler's answer, with its context, or when either
// node closes. Between two nodes the requests of a service keep their order; those
// of different services, and answers, need not.
// Lost messages are never sent again here: whoever sends bounds its wait with
// a context and knows whether a second try is safe.
//
// Handlers and done functions may run on the sender's own goroutine, below
// Send, or below reply: hold no lock there that they take, and do not build a
// loop out of a done that sends the next request itself.
package transport

import "context"

// Service says which handler of a node a request is for.
type Service uint8

// Handler answers requests of one service. It must not block: it may answer
// later, from any goroutine, by calling reply exactly once. It owns req. What
// it gives to reply may be reused when reply returns. ctx ends when the caller
// has stopped waiting or when either node has closed.
type Handler func(ctx context.Context, from string, req []byte, reply func(resp [][]byte, err error))

// Endpoint is one node's place in a network. Its methods may be called at once.
type Endpoint interface {
	// ID returns the node's name.
	ID() string
	// Send carries a request to node to, which may be this node itself.
	// Requests of a service sent one after the other to one node reach its handler
	// in that order, or not at all. The buffers are copied before Send returns; Send
	// does not wait for the answer. done is called exactly once, possibly
	// before Send returns, and must not block. Its error is
	//   - record.ErrUnreachable: the request was certainly not handed over,
	//   - record.ErrOutcomeUnknown: handed over perhaps, no answer will come,
	//   - the ctx's error: the caller stopped waiting; handed over perhaps,
	//   - record.ErrClosed: this endpoint is closed; not handed over,
	//   - *record.TooLargeError: more than fits in a message; not handed over,
	//   - *RemoteError: the handler's own error, as text.
	// done owns resp.
	Send(ctx context.Context, to string, svc Service, req [][]byte, done func(resp []byte, err error))
	// Handle sets the handler of a service; nil removes it. A request for a
	// service without a handler fails with record.ErrUnreachable.
	Handle(svc Service, h Handler)
	// Close detaches the node: what is in flight ends with an error. Idempotent.
	Close() error
}

// Sharer is an Endpoint that reaches nodes in its own memory, so that large requests
// need not be copied for each of them.
type Sharer interface {
	Endpoint
	// SendShared is Send for a request that nobody changes any more, neither the sender
	// nor the handler: its parts are handed over as they are, or as a copy.
	SendShared(ctx context.Context, to string, svc Service, req [][]byte, done func(resp []byte, err error))
	// HandleShared sets who answers a service's shared requests; nil removes it. Without
	// one they go to the service's Handler, as a copy.
	HandleShared(svc Service, h SharedHandler)
}

// SharedHandler is a Handler that does not own req, but only reads it, for as long as
// it likes.
type SharedHandler func(ctx context.Context, from string, req [][]byte, reply func(resp [][]byte, err error))

// RemoteError is an error that the other node's handler returned.
type RemoteError struct {
	Node string
	Text string
}

func (e *RemoteError) Error() string { return "node " + e.Node + ": " + e.Text }

// Call sends a request and waits for the answer.
func Call(ctx context.Context, e Endpoint, to string, svc Service, req ...[]byte) ([]byte, error) {
	return wait(func(done func([]byte, error)) { e.Send(ctx, to, svc, req, done) })
}

// CallShared is Call for a request that nobody changes any more; see Sharer. Other
// endpoints copy it.
func CallShared(ctx context.Context, e Endpoint, to string, svc Service, req ...[]byte) ([]byte, error) {
	s, ok := e.(Sharer)
	if !ok {
		return Call(ctx, e, to, svc, req...)
	}
	return wait(func(done func([]byte, error)) { s.SendShared(ctx, to, svc, req, done) })
}

func wait(send func(done func([]byte, error))) ([]byte, error) {
	type answer struct {
		resp []byte
		err  error
	}
	ch := make(chan answer, 1)
	send(func(resp []byte, err error) { ch <- answer{resp, err} })
	a := <-ch // Send ends the wait when ctx ends
	return a.resp, a.err
}
