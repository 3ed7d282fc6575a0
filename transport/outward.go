package transport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

const (
	pingAfter   = time.Second     // of silence while an answer is awaited
	silentAfter = 3 * time.Second // the connection is given up
)

// outward is a connection that this node makes or has made. Its goroutines are of
// the TCP; it is over when run has returned.
type outward struct {
	lane *lane
	pipe *pipe
	life context.Context
	end  context.CancelFunc

	heard  atomic.Int64 // when something came last, ns since 1970; 0 before the greeting
	pinged atomic.Bool  // since then

	mu     sync.Mutex
	calls  map[uint64]*outCall // that wait for an answer
	last   uint64              // number of a call
	broken error               // why there is no answer any more
}

// outCall is a request and the wait for its answer.
type outCall struct {
	done    func([]byte, error)
	unwatch func() bool // stops the watch on the caller's context; guarded by outward.mu
	sent    atomic.Bool // handed to the system, at least in part
}

// send queues a request.
func (o *outward) send(ctx context.Context, req [][]byte, done func([]byte, error)) {
	c := &outCall{done: done}
	o.mu.Lock()
	if err := o.broken; err != nil {
		o.mu.Unlock()
		done(nil, o.lane.unreachable(err))
		return
	}
	o.last++
	id := o.last
	o.calls[id] = c
	o.mu.Unlock()

	unwatch := context.AfterFunc(ctx, func() {
		if o.take(id) != nil {
			o.pipe.put(newFrame(frameCancel, id), nil)
			done(nil, ctx.Err())
		}
	})
	o.mu.Lock()
	c.unwatch = unwatch
	_, waits := o.calls[id]
	o.mu.Unlock()
	if !waits {
		unwatch()
		return
	}
	if !o.pipe.put(newFrame(frameRequest, id, req...), c) && o.take(id) != nil {
		done(nil, o.lane.unreachable(fmt.Errorf("it is gone, or %d MiB wait for it already", maxQueued>>20)))
	}
}

// take removes a call, which then is the caller's to end; nil when it has ended.
func (o *outward) take(id uint64) *outCall {
	o.mu.Lock()
	c := o.calls[id]
	if c == nil {
		o.mu.Unlock()
		return nil
	}
	delete(o.calls, id)
	unwatch := c.unwatch
	o.mu.Unlock()
	if unwatch != nil {
		unwatch()
	}
	return c
}

// run makes the connection and serves it until it breaks.
func (o *outward) run() {
	conn, err := o.connect()
	if err == nil {
		o.lane.greeted()
		err = o.serve(conn)
	}
	if o.lane.t.life.Err() != nil {
		err = errors.New("this node has left the network")
	}
	o.lane.ended(err)
	o.end()
	o.fail(err)
}

// fail ends all calls.
func (o *outward) fail(err error) {
	o.mu.Lock()
	o.broken = err
	ids := slices.Sorted(maps.Keys(o.calls))
	o.mu.Unlock()
	o.pipe.shut()
	for _, id := range ids {
		c := o.take(id)
		switch {
		case c == nil: // its context has ended it
		case c.sent.Load():
			c.done(nil, fmt.Errorf("%w: node %q did not answer: %w", record.ErrOutcomeUnknown, o.lane.key.node, err))
		default:
			c.done(nil, o.lane.unreachable(err))
		}
	}
}

// connect dials, greets and learns where other nodes are.
func (o *outward) connect() (net.Conn, error) {
	t := o.lane.t
	conn, err := t.dial(o.life, o.lane.key.node, o.lane.key.svc)
	if err != nil {
		t.logger.Debug("cannot connect", "node", o.lane.key.node, "error", err)
	}
	return conn, err
}

// serve carries requests out and answers in.
func (o *outward) serve(conn net.Conn) error {
	o.heard.Store(time.Now().UnixNano())
	stop := context.AfterFunc(o.life, func() { _ = conn.Close() }) // serve returns what broke it
	defer stop()
	written := make(chan error, 1)
	o.lane.t.wg.Go(func() {
		err := o.pipe.run(o.life, conn)
		_ = conn.Close() // the reader ends
		written <- err
	})
	err := o.receive(bufio.NewReaderSize(listening{conn, o}, readBuffer))
	o.end()
	_ = conn.Close()
	if werr := <-written; werr != nil && !errors.Is(werr, context.Canceled) && errors.Is(err, net.ErrClosed) {
		err = werr // it came first
	}
	if o.silent() {
		err = errSilent
	}
	return err
}

var errSilent = fmt.Errorf("nothing came from it for %v", silentAfter)

func (o *outward) receive(r *bufio.Reader) error {
	for {
		f, err := readFrame(r, maxFrame)
		if err != nil {
			return err
		}
		if f.kind == framePong {
			continue
		}
		c := o.take(f.call)
		if c == nil {
			continue // its caller has stopped waiting
		}
		node := o.lane.key.node
		switch f.kind {
		case frameAnswer:
			c.done(f.payload, nil)
		case frameFailed:
			c.done(nil, &RemoteError{Node: node, Text: string(f.payload)})
		case frameNobody:
			c.done(nil, fmt.Errorf("%w: %s", record.ErrUnreachable, f.payload))
		default:
			err = fmt.Errorf("%w: a frame of kind %d instead of an answer", record.ErrCorrupt, f.kind)
			c.done(nil, fmt.Errorf("%w: node %q: %w", record.ErrOutcomeUnknown, node, err))
			return err
		}
	}
}

// look pings a connection on which an answer is awaited and nothing has come for
// a while, and gives it up if that does not help.
func (o *outward) look(now time.Time) {
	o.mu.Lock()
	waiting := len(o.calls) > 0
	o.mu.Unlock()
	heard := o.heard.Load()
	if heard == 0 || !waiting {
		return
	}
	quiet := now.Sub(time.Unix(0, heard))
	if quiet > pingAfter && !o.pinged.Swap(true) {
		// The wait for its answer begins now: before, nothing needed to come.
		o.heard.Store(now.Add(-pingAfter).UnixNano())
		o.pipe.put(newFrame(framePing, 0), nil)
		return
	}
	if o.silent() {
		o.end()
	}
}

// silent reports whether a ping has not been answered in time.
func (o *outward) silent() bool {
	return o.pinged.Load() && time.Since(time.Unix(0, o.heard.Load())) > silentAfter
}

// listening is a connection that notes when something comes.
type listening struct {
	net.Conn
	o *outward
}

func (l listening) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if n > 0 {
		l.o.heard.Store(time.Now().UnixNano())
		l.o.pinged.Store(false)
	}
	return n, err
}
