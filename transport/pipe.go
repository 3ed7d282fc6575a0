package transport

import (
	"context"
	"net"
	"sync"
	"time"
)

const (
	// maxQueued bounds the bytes that wait for a connection.
	maxQueued = 256 << 20
	// A write that makes no progress breaks its connection: it gets writeTimeout and
	// a second more for each slowest bytes.
	writeTimeout = 10 * time.Second
	slowest      = 1 << 20
)

// pipe is the sending half of a connection. Frames wait in it, also before the
// connection is there, and go out in the order they were put in, those that wait
// together in one system call.
type pipe struct {
	mu     sync.Mutex
	queue  []parcelOut
	bytes  int
	broken bool
	wake   chan struct{} // capacity 1: there is something in the queue
}

// parcelOut is a frame that waits.
type parcelOut struct {
	frame []byte
	call  *outCall // of a request
}

func newPipe() *pipe { return &pipe{wake: make(chan struct{}, 1)} }

// put queues a frame, and reports whether it did: a pipe that is broken, or full,
// takes none.
func (p *pipe) put(frame []byte, c *outCall) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken || p.bytes > 0 && p.bytes+len(frame) > maxQueued {
		return false
	}
	p.queue = append(p.queue, parcelOut{frame, c})
	p.bytes += len(frame)
	select {
	case p.wake <- struct{}{}:
	default:
	}
	return true
}

// shut empties the pipe for good.
func (p *pipe) shut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken, p.queue, p.bytes = true, nil, 0
}

// take empties the pipe. What it returns counts as handed over.
func (p *pipe) take() (out net.Buffers, bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out, bytes = make(net.Buffers, len(p.queue)), p.bytes
	for i, q := range p.queue {
		out[i] = q.frame
		if q.call != nil {
			q.call.sent.Store(true)
		}
	}
	clear(p.queue)
	p.queue, p.bytes = p.queue[:0], 0
	return out, bytes
}

// run writes what is put in until ctx ends or the connection breaks.
func (p *pipe) run(ctx context.Context, conn net.Conn) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.wake:
		}
		out, bytes := p.take()
		limit := writeTimeout + time.Duration(bytes/slowest)*time.Second
		if err := conn.SetWriteDeadline(time.Now().Add(limit)); err != nil {
			return err
		}
		if _, err := out.WriteTo(conn); err != nil {
			return err
		}
	}
}
