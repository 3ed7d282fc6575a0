package transport

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// Between two tries to connect.
const (
	minPause = 20 * time.Millisecond
	maxPause = time.Second
)

// laneKey says where requests of a lane go.
type laneKey struct {
	node string
	svc  Service
}

// lane is the way of one service's requests to one node. It has one connection at
// a time, and none while the node cannot be reached or nobody asks for it.
type lane struct {
	t   *TCP
	key laneKey

	mu     sync.Mutex
	out    *outward // the connection, or the try to make one; nil for none
	pause  time.Duration
	retry  time.Time // no try before
	reason error     // why the last one failed
	closed bool
}

func newLane(t *TCP, key laneKey) *lane { return &lane{t: t, key: key} }

// send puts a request on the way.
func (l *lane) send(ctx context.Context, req [][]byte, done func([]byte, error)) {
	if err := fits(req); err != nil {
		done(nil, err)
		return
	}
	o, err := l.connection()
	if err != nil {
		done(nil, err)
		return
	}
	o.send(ctx, req, done)
}

// connection returns the connection, which is begun if there is none.
func (l *lane) connection() (*outward, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, l.t.closedError()
	case l.out != nil:
		return l.out, nil
	case time.Now().Before(l.retry):
		return nil, l.unreachable(l.reason)
	}
	o := &outward{lane: l, pipe: newPipe(), calls: map[uint64]*outCall{}}
	o.life, o.end = context.WithCancel(l.t.life)
	l.out = o
	l.t.wg.Go(o.run) // Close has not seen all lanes yet: it waits for l.mu
	return o, nil
}

func (l *lane) unreachable(err error) error {
	return fmt.Errorf("%w: node %q: %w", record.ErrUnreachable, l.key.node, err)
}

// greeted notes that there is a connection.
func (l *lane) greeted() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pause = 0
}

// ended notes that the connection, or the try, is over.
func (l *lane) ended(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out, l.reason = nil, err
	l.pause = min(max(2*l.pause, minPause), maxPause)
	l.retry = time.Now().Add(l.pause)
}

// look gives up the connection if it is silent though it should not be.
func (l *lane) look(now time.Time) {
	l.mu.Lock()
	o := l.out
	l.mu.Unlock()
	if o != nil {
		o.look(now)
	}
}

// close ends the connection for good.
func (l *lane) close() {
	l.mu.Lock()
	l.closed = true
	o := l.out
	l.mu.Unlock()
	if o != nil {
		o.end()
	}
}
