package replica

import (
	"bytes"
	"context"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/quorumlog/quorumlog/record"
)

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
