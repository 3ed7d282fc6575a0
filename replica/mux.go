package replica

import (
	"context"
	"fmt"
	"sync"

	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/transport"
)

// groupID names a Raft group on the wire: topic id, partition.
type groupID [groupIDSize]byte

func newGroupID(topic record.TopicID, partition int32) (id groupID) {
	copy(id[:], topic[:])
	id[16], id[17], id[18], id[19] = byte(partition>>24), byte(partition>>16), byte(partition>>8), byte(partition)
	return id
}

// Mux carries the Raft traffic of all groups of one node over one endpoint.
// Its methods may be called at once.
type Mux struct {
	endpoint transport.Endpoint
	service  transport.Service

	rings ringShare // of all replicas of the node
	watch *watch
	news  signal          // something has changed that Watch shows
	life  context.Context // ends with Close
	end   context.CancelFunc

	mu       sync.Mutex
	groups   map[groupID]*groupTransport
	outboxes map[string]*outbox // by node
	shown    map[groupID]exhibit
	opened   signal // a group was added, or the mux closed
	closed   bool
}

// NewMux takes over one service of the endpoint. Close gives it back.
func NewMux(e transport.Endpoint, svc transport.Service) *Mux {
	m := &Mux{endpoint: e, service: svc, groups: map[groupID]*groupTransport{}, outboxes: map[string]*outbox{}, shown: map[groupID]exhibit{}}
	m.life, m.end = context.WithCancel(context.Background())
	m.watch = newWatch(m)
	e.Handle(svc, m.handle)
	if s, ok := e.(transport.Sharer); ok {
		s.HandleShared(svc, m.handleShared)
	}
	return m
}

// Close stops answering. All replicas must be closed before; the endpoint stays open.
func (m *Mux) Close() error {
	m.endpoint.Handle(m.service, nil)
	if s, ok := m.endpoint.(transport.Sharer); ok {
		s.HandleShared(m.service, nil)
	}
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.opened.fire()
	m.end()
	m.watch.wg.Wait()
	return nil
}

// group returns the transport of a group, or nil.
func (m *Mux) group(id groupID) *groupTransport {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.groups[id]
}

func (m *Mux) add(t *groupTransport) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return record.ErrClosed
	case m.groups[t.id] != nil:
		return fmt.Errorf("%w: the partition is open on this node already", record.ErrInvalid)
	}
	m.groups[t.id] = t
	m.opened.fire()
	return nil
}

func (m *Mux) remove(t *groupTransport) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.groups[t.id] == t {
		delete(m.groups, t.id)
	}
}

func (m *Mux) handle(ctx context.Context, from string, req []byte, reply func([][]byte, error)) {
	m.pass(ctx, from, req, nil, reply)
}

// handleShared handles an append whose entries' data is shared with the leader, and
// with other followers.
func (m *Mux) handleShared(ctx context.Context, from string, req [][]byte, reply func([][]byte, error)) {
	m.pass(ctx, from, req[0], req[1:], reply)
}

// pass passes a request to its group. It never blocks: what has to wait does so in a
// goroutine of its own, which ends with ctx or with the group.
func (m *Mux) pass(ctx context.Context, from string, req []byte, data [][]byte, reply func([][]byte, error)) {
	if len(req) <= groupIDSize {
		reply(nil, errShort)
		return
	}
	id, kind, body := groupID(req[:groupIDSize]), rpcKind(req[groupIDSize]), req[groupIDSize+1:]
	switch kind {
	case rpcBeats:
		go m.serveBeats(from, body, reply)
		return
	case rpcWatch, rpcRoll:
		m.watch.serve(from, kind, body, reply)
		return
	case rpcLook:
		go func() {
			b, err := m.serveLook(id, body)
			reply([][]byte{b}, err)
		}()
		return
	case rpcSleep:
		go m.serveSleep(id, from, body, reply) // it waits for Raft's end
		return
	}
	t := m.group(id)
	if t == nil && m.watch.asleep(id, from) {
		go func() {
			if t := m.rouse(id); t != nil {
				t.serve(ctx, kind, body, data, reply)
			} else {
				reply(nil, record.ErrUnreachable)
			}
		}()
		return
	}
	if t == nil && kind == rpcVote {
		// A new partition's first leader asks for votes at once, perhaps before
		// this node has opened it. Answering late beats a second election.
		go func() {
			if t := m.await(ctx, id); t != nil {
				t.serve(ctx, kind, body, data, reply)
			} else {
				reply(nil, record.ErrUnreachable)
			}
		}()
		return
	}
	if t == nil {
		reply(nil, record.ErrUnreachable)
		return
	}
	t.serve(ctx, kind, body, data, reply)
}

// await returns the group as soon as it is open, nil when ctx or the mux ends before.
func (m *Mux) await(ctx context.Context, id groupID) *groupTransport {
	for {
		opened := m.opened.wait()
		m.mu.Lock()
		t, closed := m.groups[id], m.closed
		m.mu.Unlock()
		if t != nil || closed {
			return t
		}
		select {
		case <-opened:
		case <-ctx.Done():
			return nil
		}
	}
}
