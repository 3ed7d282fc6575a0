package replica

import (
	"context"
	"io"
	"time"

	"github.com/hashicorp/raft"

	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/transport"
)

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
