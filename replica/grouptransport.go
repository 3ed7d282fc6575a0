package replica

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

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

// Consumer implements raft.Transport.
func (t *groupTransport) Consumer() <-chan raft.RPC { return t.rpcs }

// LocalAddr implements raft.Transport.
func (t *groupTransport) LocalAddr() raft.ServerAddress { return raft.ServerAddress(t.node) }

// AppendEntriesPipeline implements raft.Transport. Raft's pipelining stalls on
// bursts: a backlog would drain at one request per CommitTimeout.
func (t *groupTransport) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
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
