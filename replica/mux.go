package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

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

// groupTransport is one group's raft.Transport. Nodes are addressed by their
// ids, so a node may come back elsewhere.
type groupTransport struct {
	mux     *Mux
	id      groupID
	node    string
	addr    []byte          // node, as Raft's requests have it; nobody changes it
	timeout time.Duration   // of one request
	ctx     context.Context // ends with Close, and with it every request under way
	cancel  context.CancelFunc
	rpcs    chan raft.RPC
	// beatEvery is how far beat messages that carry this group's are apart.
	beatEvery time.Duration
	// urgent counts those who wait for a heartbeat's answer: while there are any,
	// heartbeats go at once.
	urgent atomic.Int32
	// follows tells whether Raft follows in a term, so that a heartbeat of it
	// writes nothing.
	follows func(term uint64) bool
	// answered is told how far a follower has everything, in which term.
	answered func(term uint64, node string, match uint64)
	// followed is told that a follower has accepted a request of that term that was
	// sent not before then.
	followed func(term uint64, node string, then time.Time)
	// end returns the last entry of this replica's log.
	end func() uint64
	// durable waits until this replica has all entries up to one on disk, if its
	// flush policy says so; false if ctx ends before. See overlap.go.
	durable func(ctx context.Context, entry uint64) bool
	// caughtUp is told that this follower has all that its leader had.
	caughtUp func()
	// mayCount tells whether this replica's vote counts for a candidate with that last
	// entry; it may wait for others. certain says that it does in any case.
	mayCount func(ctx context.Context, candidate string, term, last uint64) bool
	certain  func() bool

	mu        sync.Mutex
	heartbeat func(raft.RPC)
	appending int           // requests to append that are under way
	hushed    chan struct{} // closed by speak; nil unless hushed
	drained   chan struct{} // closed when nothing is under way; nil unless somebody waits
}

func newGroupTransport(m *Mux, id groupID, node string, timeout, beatEvery time.Duration) *groupTransport {
	ctx, cancel := context.WithCancel(context.Background())
	return &groupTransport{
		mux: m, id: id, node: node, addr: []byte(node), timeout: timeout, beatEvery: beatEvery,
		ctx: ctx, cancel: cancel, rpcs: make(chan raft.RPC, 64),
	}
}

// Close implements raft.WithClose: nothing comes in or goes out any more. It may be called twice.
func (t *groupTransport) Close() error {
	t.mux.remove(t)
	t.cancel()
	return nil
}

// serve hands one request to Raft and its answer to reply. data is that of an append's
// entries, if it is shared.
func (t *groupTransport) serve(ctx context.Context, kind rpcKind, body []byte, data [][]byte, reply func([][]byte, error)) {
	var rpc raft.RPC
	var err error
	beat, follows := false, false
	var end, match uint64 // of an append: the leader's last entry, and what this one has if it succeeds
	mayCount := func() bool { return true }
	switch kind {
	case rpcProbe:
		reply(nil, nil)
		return
	case rpcAppend:
		var req *raft.AppendEntriesRequest
		if req, end, err = decodeAppend(body, data); err == nil {
			beat, follows = isHeartbeat(req), t.follows(req.Term)
			match = req.PrevLogEntry + uint64(len(req.Entries))
			rpc.Command = req
		}
	case rpcVote:
		var req *raft.RequestVoteRequest
		if req, err = decodeVote(body); err == nil {
			mayCount = func() bool { return t.mayCount(ctx, string(req.ID), req.LastLogTerm, req.LastLogIndex) }
			rpc.Command = req
		}
	case rpcPreVote:
		var req *raft.RequestPreVoteRequest
		if req, err = decodePreVote(body); err == nil {
			mayCount = func() bool { return t.mayCount(ctx, string(req.ID), req.LastLogTerm, req.LastLogIndex) }
			rpc.Command = req
		}
	case rpcTimeoutNow:
		d := decoder{b: body}
		rpc.Command, err = &raft.TimeoutNowRequest{RPCHeader: d.header()}, d.end()
	case rpcInstall:
		var snapshot []byte
		rpc.Command, snapshot, err = decodeInstall(body)
		rpc.Reader = bytes.NewReader(snapshot)
	default:
		err = fmt.Errorf("unknown request kind %d", kind)
	}
	if err != nil {
		reply(nil, err)
		return
	}
	resp := make(chan raft.RPCResponse, 1)
	rpc.RespChan = resp
	if beat {
		t.mu.Lock()
		heartbeat := t.heartbeat
		t.mu.Unlock()
		if heartbeat != nil {
			// Beside Raft's main loop, so that a slow disk costs no leadership; and
			// in a goroutine if it will write the vote file.
			serve := func() {
				defer func() {
					select {
					case r := <-resp:
						answerRPC(r, reply)
					default: // shut down, or the vote file failed
						reply(nil, record.ErrUnreachable)
					}
				}()
				heartbeat(rpc)
			}
			if follows {
				serve()
			} else {
				go serve()
			}
			return
		}
	}
	queued, ask := false, (kind == rpcVote || kind == rpcPreVote) && !t.certain()
	if !ask {
		select {
		case t.rpcs <- rpc: // here, not in the goroutine: order counts
			queued = true
		default:
		}
	}
	go func() {
		if ask && !mayCount() {
			answerRPC(t.refusal(kind), reply)
			return
		}
		if !queued {
			select {
			case t.rpcs <- rpc:
			case <-t.ctx.Done():
				reply(nil, record.ErrUnreachable)
				return
			case <-ctx.Done():
				reply(nil, ctx.Err())
				return
			}
		}
		select {
		case r := <-resp:
			if a, ok := r.Response.(*raft.AppendEntriesResponse); ok && r.Error == nil && a.Success && match > 0 {
				if !t.durable(t.ctx, match) {
					reply(nil, record.ErrUnreachable)
					return
				}
				if match >= end {
					t.caughtUp()
				}
			}
			answerRPC(r, reply)
		case <-t.ctx.Done():
			reply(nil, record.ErrUnreachable)
		}
	}()
}

func answerRPC(r raft.RPCResponse, reply func([][]byte, error)) {
	if r.Error != nil {
		reply(nil, r.Error)
		return
	}
	b, err := encodeAnswer(r.Response)
	reply([][]byte{b}, err)
}

// frame begins a request.
func (t *groupTransport) frame(kind rpcKind, size int) []byte {
	b := make([]byte, 0, groupIDSize+1+headSize+size)
	b = append(b, t.id[:]...)
	return append(b, byte(kind))
}

func (t *groupTransport) call(to raft.ServerAddress, timeout time.Duration, bufs ...[]byte) (answer, error) {
	return t.ask(transport.Call, to, timeout, bufs)
}

func (t *groupTransport) ask(call caller, to raft.ServerAddress, timeout time.Duration, bufs [][]byte) (answer, error) {
	ctx, cancel := context.WithTimeout(t.ctx, timeout)
	defer cancel()
	resp, err := call(ctx, t.mux.endpoint, string(to), t.mux.service, bufs...)
	if err != nil {
		return answer{}, err
	}
	return decodeAnswer(resp)
}

// caller is transport.Call or transport.CallShared.
type caller func(ctx context.Context, e transport.Endpoint, to string, svc transport.Service, req ...[]byte) ([]byte, error)

// beat is call for an append without entries.
func (t *groupTransport) beat(to raft.ServerAddress, req *raft.AppendEntriesRequest) (answer, error) {
	ctx, cancel := context.WithTimeout(t.ctx, t.timeout)
	defer cancel()
	every := t.beatEvery
	if t.urgent.Load() > 0 {
		every = 0
	}
	resp, err := t.mux.outbox(string(to)).ask(ctx, t.id, encodeAppend(make([]byte, 0, headSize), req, t.end())[0], every)
	if err != nil {
		return answer{}, err
	}
	return decodeAnswer(resp)
}

// Consumer implements raft.Transport.
func (t *groupTransport) Consumer() <-chan raft.RPC { return t.rpcs }

// LocalAddr implements raft.Transport.
func (t *groupTransport) LocalAddr() raft.ServerAddress { return raft.ServerAddress(t.node) }

// AppendEntriesPipeline implements raft.Transport. Raft's pipelining stalls on
// bursts: a backlog would drain at one request per CommitTimeout.
func (t *groupTransport) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// AppendEntries implements raft.Transport.
func (t *groupTransport) AppendEntries(_ raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if !t.enter() {
		return record.ErrClosed
	}
	defer t.leave()
	var a answer
	var err error
	began := time.Now()
	if len(req.Entries) == 0 {
		a, err = t.beat(to, req)
	} else {
		// Shared: nobody changes what is stored.
		a, err = t.ask(transport.CallShared, to, t.timeout, encodeAppend(t.frame(rpcAppend, len(req.Entries)*appendEntrySize), req, t.end()))
	}
	if err != nil {
		return err
	}
	*resp = raft.AppendEntriesResponse{RPCHeader: a.header, Term: a.term, LastLog: a.last, Success: a.success, NoRetryBackoff: a.noRetryBackoff}
	if a.success {
		t.followed(req.Term, string(to), began)
	}
	if match := req.PrevLogEntry + uint64(len(req.Entries)); a.success && match > 0 { // 0: a heartbeat, which says nothing of the log
		if !t.durable(t.ctx, match) {
			return record.ErrClosed
		}
		t.answered(req.Term, string(to), match)
	}
	return nil
}

// RequestVote implements raft.Transport.
func (t *groupTransport) RequestVote(_ raft.ServerID, to raft.ServerAddress, req *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if !t.mayCount(t.ctx, t.node, req.LastLogTerm, req.LastLogIndex) {
		return t.errWithheld()
	}
	a, err := t.call(to, t.timeout, encodeVote(t.frame(rpcVote, 0), req))
	if err != nil {
		return err
	}
	*resp = raft.RequestVoteResponse{RPCHeader: a.header, Term: a.term, Granted: a.success}
	return nil
}

// RequestPreVote implements raft.WithPreVote.
func (t *groupTransport) RequestPreVote(_ raft.ServerID, to raft.ServerAddress, req *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if !t.mayCount(t.ctx, t.node, req.LastLogTerm, req.LastLogIndex) {
		return t.errWithheld()
	}
	a, err := t.call(to, t.timeout, encodePreVote(t.frame(rpcPreVote, 0), req))
	if err != nil {
		return err
	}
	*resp = raft.RequestPreVoteResponse{RPCHeader: a.header, Term: a.term, Granted: a.success}
	return nil
}

// TimeoutNow implements raft.Transport.
func (t *groupTransport) TimeoutNow(_ raft.ServerID, to raft.ServerAddress, req *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	a, err := t.call(to, t.timeout, putHeader(t.frame(rpcTimeoutNow, 0), req.RPCHeader))
	if err != nil {
		return err
	}
	*resp = raft.TimeoutNowResponse{RPCHeader: a.header}
	return nil
}

// InstallSnapshot implements raft.Transport. A snapshot holds state only, so it
// travels as one message.
func (t *groupTransport) InstallSnapshot(_ raft.ServerID, to raft.ServerAddress, req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	snapshot, err := io.ReadAll(io.LimitReader(data, req.Size))
	if err != nil {
		return err
	}
	a, err := t.call(to, 4*t.timeout, encodeInstall(t.frame(rpcInstall, len(req.Configuration)), req), snapshot)
	if err != nil {
		return err
	}
	*resp = raft.InstallSnapshotResponse{RPCHeader: a.header, Term: a.term, Success: a.success}
	return nil
}

// EncodePeer implements raft.Transport.
func (t *groupTransport) EncodePeer(_ raft.ServerID, addr raft.ServerAddress) []byte {
	if string(addr) == t.node { // its own, with each request
		return t.addr
	}
	return []byte(addr)
}

// DecodePeer implements raft.Transport.
func (t *groupTransport) DecodePeer(b []byte) raft.ServerAddress { return raft.ServerAddress(b) }

// SetHeartbeatHandler implements raft.Transport.
func (t *groupTransport) SetHeartbeatHandler(cb func(raft.RPC)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.heartbeat = cb
}

// enter begins a request to append, when the group is not hushed; false when it closes.
func (t *groupTransport) enter() bool {
	for {
		t.mu.Lock()
		hushed := t.hushed
		if hushed == nil {
			t.appending++
			t.mu.Unlock()
			return true
		}
		t.mu.Unlock()
		select {
		case <-hushed:
		case <-t.ctx.Done():
			return false
		}
	}
}

func (t *groupTransport) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.appending--; t.appending == 0 && t.drained != nil {
		close(t.drained)
		t.drained = nil
	}
}

// hush holds back all requests to append until speak, and waits until none is
// under way. False when ctx ends before.
func (t *groupTransport) hush(ctx context.Context) bool {
	t.mu.Lock()
	if t.hushed == nil {
		t.hushed = make(chan struct{})
	}
	if t.appending == 0 {
		t.mu.Unlock()
		return true
	}
	drained := make(chan struct{})
	t.drained = drained
	t.mu.Unlock()
	select {
	case <-drained:
		return true
	case <-ctx.Done():
		return false
	}
}

func (t *groupTransport) speak() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hushed != nil {
		close(t.hushed)
		t.hushed = nil
	}
}

// campaign makes Raft on this node stand for election at once.
func (t *groupTransport) campaign() error {
	rpc := raft.RPC{
		Command:  &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(t.node), Addr: []byte(t.node)}},
		RespChan: make(chan raft.RPCResponse, 1),
	}
	select {
	case t.rpcs <- rpc:
		return nil
	default:
		return errors.New("too many requests wait")
	}
}
