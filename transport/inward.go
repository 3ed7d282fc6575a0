package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

const readBuffer = 64 << 10

// keepAlive finds out that a node is gone to which nothing is to be said.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}

// accept takes connections of other nodes until the listener closes.
func (t *TCP) accept() {
	for {
		conn, err := t.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no file handle left, perhaps: others will close theirs
			t.logger.Warn("cannot accept a connection", "error", err)
			select {
			case <-t.life.Done():
			case <-time.After(minPause):
			}
			continue
		}
		t.mu.Lock()
		if t.closed {
			t.mu.Unlock()
			_ = conn.Close()
			return
		}
		t.open[conn] = struct{}{}
		t.wg.Go(func() { t.serve(conn) })
		t.mu.Unlock()
	}
}

// serve answers the requests of one connection until it ends.
func (t *TCP) serve(raw net.Conn) {
	defer func() {
		_ = raw.Close()
		t.mu.Lock()
		delete(t.open, raw)
		t.mu.Unlock()
	}()
	if tcp, ok := raw.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(keepAlive) // a connection without is one all the same
	}
	conn := raw
	if t.cfg.TLS != nil {
		conn = tls.Server(raw, t.cfg.TLS)
	}
	_ = conn.SetDeadline(time.Now().Add(connectTimeout)) // fails if it is closed, as all after it
	var fresh []string
	svc, theirs, err := welcome(conn, t.cfg.ID, func(theirs hello) hello {
		fresh = t.book.learn(theirs, conn.RemoteAddr())
		return t.book.greeting(theirs.from)
	})
	if err != nil {
		t.logger.Warn("refused a connection", "from", raw.RemoteAddr(), "error", err)
		return
	}
	_ = conn.SetDeadline(time.Time{})
	t.introduce(fresh)
	in := &inward{t: t, from: theirs.from, svc: svc, pipe: newPipe(), calls: map[uint64]context.CancelFunc{}}
	in.life, in.end = context.WithCancel(t.life)
	context.AfterFunc(in.life, func() { _ = raw.Close() }) // what is under way ends
	var writer sync.WaitGroup
	writer.Go(func() {
		_ = in.pipe.run(in.life, conn) // the reader finds the connection broken
		in.end()
	})
	err = in.receive(bufio.NewReaderSize(conn, readBuffer))
	t.logger.Debug("connection ended", "node", theirs.from, "service", svc, "error", err)
	in.end()
	writer.Wait()
	in.pipe.shut()
}

// inward is a connection that another node has made.
type inward struct {
	t    *TCP
	from string
	svc  Service
	pipe *pipe
	life context.Context // of the requests
	end  context.CancelFunc

	mu    sync.Mutex
	calls map[uint64]context.CancelFunc // not answered yet
}

func (in *inward) receive(r *bufio.Reader) error {
	for {
		f, err := readFrame(r, maxFrame)
		if err != nil {
			return err
		}
		switch f.kind {
		case frameRequest:
			in.request(f)
		case frameCancel:
			in.forget(f.call)
		case framePing:
			in.put(newFrame(framePong, f.call))
		default:
			return fmt.Errorf("%w: a frame of kind %d instead of a request", record.ErrCorrupt, f.kind)
		}
	}
}

// request gives a request to its handler.
func (in *inward) request(f frame) {
	h := in.t.local.handler(in.svc)
	if h == nil {
		in.put(newFrame(frameNobody, f.call, fmt.Appendf(nil, "node %q does not serve %d yet", in.t.cfg.ID, in.svc)))
		return
	}
	ctx, cancel := context.WithCancel(in.life)
	in.mu.Lock()
	in.calls[f.call] = cancel
	in.mu.Unlock()
	h(ctx, in.from, f.payload, func(resp [][]byte, err error) {
		if !in.forget(f.call) {
			return // cancelled, or answered before
		}
		if err == nil {
			err = fits(resp)
		}
		if err != nil {
			in.put(newFrame(frameFailed, f.call, []byte(err.Error())))
			return
		}
		in.put(newFrame(frameAnswer, f.call, resp...))
	})
}

// forget ends a request's context, and reports whether it was still open.
func (in *inward) forget(call uint64) bool {
	in.mu.Lock()
	cancel, ok := in.calls[call]
	delete(in.calls, call)
	in.mu.Unlock()
	if ok {
		cancel()
	}
	return ok
}

// put sends a frame. A side that does not take its answers loses the connection,
// so that it learns that they will not come.
func (in *inward) put(frame []byte) {
	if !in.pipe.put(frame, nil) {
		in.end()
	}
}
