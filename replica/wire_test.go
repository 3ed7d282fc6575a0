package replica

import (
	"bytes"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

var testHeader = raft.RPCHeader{ProtocolVersion: 3, ID: []byte("a"), Addr: []byte("a")}

func TestAppendRequestSurvivesTheWire(t *testing.T) {
	req := &raft.AppendEntriesRequest{
		RPCHeader: testHeader, Term: 7, PrevLogEntry: 41, PrevLogTerm: 6, LeaderCommitIndex: 40,
		Entries: []*raft.Log{
			{Index: 42, Term: 7, Type: raft.LogNoop},
			{Index: 43, Term: 7, Type: raft.LogCommand, Data: []byte("first")},
			{Index: 44, Term: 7, Type: raft.LogCommand, Data: []byte("second"), Extensions: []byte("stay here")},
		},
	}
	b := bytes.Join(encodeAppend(nil, req, 7), nil)
	got, end, err := decodeAppend(b, nil)
	require.NoError(t, err)
	require.Len(t, got.Entries, 3)
	require.Equal(t, uint64(7), end)
	require.Empty(t, got.Entries[0].Data)
	require.Empty(t, got.Entries[2].Extensions)
	require.Equal(t, "second", string(got.Entries[2].Data))
	require.Equal(t, "first", string(got.Entries[1].Data))
	require.Equal(t, uint64(44), got.Entries[2].Index)
	got.Entries, req.Entries = nil, nil
	require.Equal(t, req, got)

	for n := range b {
		_, _, err := decodeAppend(b[:n], nil)
		require.Error(t, err, "cut at %d", n)
	}
}

func TestAppendRequestTakesTheDataThatIsShared(t *testing.T) {
	req := &raft.AppendEntriesRequest{RPCHeader: testHeader, Entries: []*raft.Log{
		{Index: 1, Data: []byte("first")}, {Index: 2, Type: raft.LogNoop}, {Index: 3, Data: []byte("second")},
	}}
	bufs := encodeAppend(nil, req, 3)
	got, _, err := decodeAppend(bufs[0], bufs[1:])
	require.NoError(t, err)
	require.Equal(t, req, got)
	require.Same(t, &req.Entries[0].Data[0], &got.Entries[0].Data[0])
	require.Same(t, &req.Entries[2].Data[0], &got.Entries[2].Data[0])

	for name, data := range map[string][][]byte{
		"too few":   {bufs[1]},
		"too many":  {bufs[1], bufs[2], bufs[2]},
		"too short": {bufs[1], bufs[2][1:]},
		"too long":  {bufs[1], append([]byte{0}, bufs[2]...)},
		"none":      nil,
	} {
		_, _, err := decodeAppend(bufs[0], data)
		require.Error(t, err, name)
	}
	_, _, err = decodeAppend(append(bufs[0], 0), bufs[1:])
	require.Error(t, err, "something behind the table")
}

func TestAppendRequestIsBoundedInBytes(t *testing.T) {
	big := make([]byte, maxAppendBytes/2+1)
	req := &raft.AppendEntriesRequest{Entries: []*raft.Log{{Index: 1, Data: big}, {Index: 2, Data: big}, {Index: 3, Data: big}}}
	encodeAppend(nil, req, 7)
	require.Len(t, req.Entries, 1, "Raft looks at what was really sent")
	req.Entries = []*raft.Log{{Index: 1, Data: make([]byte, 2*maxAppendBytes)}}
	encodeAppend(nil, req, 7)
	require.Len(t, req.Entries, 1, "one entry always goes")
}

func TestOtherRequestsSurviveTheWire(t *testing.T) {
	vote := &raft.RequestVoteRequest{RPCHeader: testHeader, Term: 3, LastLogIndex: 9, LastLogTerm: 2, LeadershipTransfer: true}
	gotVote, err := decodeVote(encodeVote(nil, vote))
	require.NoError(t, err)
	require.Equal(t, vote, gotVote)

	pre := &raft.RequestPreVoteRequest{RPCHeader: testHeader, Term: 3, LastLogIndex: 9, LastLogTerm: 2}
	gotPre, err := decodePreVote(encodePreVote(nil, pre))
	require.NoError(t, err)
	require.Equal(t, pre, gotPre)

	install := &raft.InstallSnapshotRequest{
		RPCHeader: testHeader, SnapshotVersion: 1, Term: 3, LastLogIndex: 9, LastLogTerm: 2,
		ConfigurationIndex: 1, Configuration: []byte("conf"), Size: 5,
	}
	gotInstall, state, err := decodeInstall(append(encodeInstall(nil, install), "state"...))
	require.NoError(t, err)
	require.Equal(t, install, gotInstall)
	require.Equal(t, "state", string(state))
}

func TestAnswersSurviveTheWire(t *testing.T) {
	for _, resp := range []any{
		&raft.AppendEntriesResponse{RPCHeader: testHeader, Term: 4, LastLog: 12, Success: true, NoRetryBackoff: true},
		&raft.RequestVoteResponse{RPCHeader: testHeader, Term: 4, Granted: true},
		&raft.RequestPreVoteResponse{RPCHeader: testHeader, Term: 4},
		&raft.InstallSnapshotResponse{RPCHeader: testHeader, Term: 4, Success: true},
		&raft.TimeoutNowResponse{RPCHeader: testHeader},
	} {
		b, err := encodeAnswer(resp)
		require.NoError(t, err)
		a, err := decodeAnswer(b)
		require.NoError(t, err)
		require.Equal(t, testHeader, a.header)
		switch r := resp.(type) {
		case *raft.AppendEntriesResponse:
			require.Equal(t, answer{testHeader, r.Term, r.LastLog, r.Success, r.NoRetryBackoff}, a)
		case *raft.RequestVoteResponse:
			require.True(t, a.success)
		case *raft.RequestPreVoteResponse:
			require.False(t, a.success)
		}
		_, err = decodeAnswer(b[:len(b)-1])
		require.Error(t, err)
	}
	_, err := encodeAnswer("something else")
	require.Error(t, err)
}

func FuzzWire(f *testing.F) {
	f.Add(bytes.Join(encodeAppend(nil, &raft.AppendEntriesRequest{RPCHeader: testHeader, Entries: []*raft.Log{{Index: 1, Data: []byte("x")}}}, 7), nil))
	f.Add(encodeVote(nil, &raft.RequestVoteRequest{RPCHeader: testHeader}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if req, end, err := decodeAppend(b, nil); err == nil {
			again := bytes.Join(encodeAppend(nil, req, end), nil)
			require.Equal(t, b, again)
		}
		_, _ = decodeVote(b)
		_, _ = decodePreVote(b)
		_, _, _ = decodeInstall(b)
		_, _ = decodeAnswer(b)
		_, _ = decodeState(b)
		_, _, _ = decodeCheckpoint(b)
		_, _ = decodeLook(b)
	})
}
