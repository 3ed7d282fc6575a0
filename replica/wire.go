package replica

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// The bytes of Raft's requests and answers between nodes. Integers are
// big-endian; a string is a u16 length and its bytes.
//
//	request:  group 20 bytes | kind u8 | header | body
//	header:   protocol version u8 | id string | address string
//	append:   term u64 | previous entry u64 | its term u64 | leader's commit u64 | leader's last entry u64 |
//	          count u32 | count × (number u64 | term u64 | type u8 | length u32) |
//	          the entries' data, one behind the other
//	vote:     term u64 | last entry u64 | its term u64 | transfer u8
//	pre-vote: term u64 | last entry u64 | its term u64
//	install:  version u8 | term u64 | last entry u64 | its term u64 |
//	          configuration index u64 | length u32 | configuration | the snapshot
//	sleep:    op u8 | epoch u64 | last entry u64 | its term u64; answered with yes u8
//	answer:   header | term u64 | last entry u64 | flags u8
//
// Appends without entries travel otherwise, see beat.go.
//
// Entries of one request are one allocation on the receiving side; between nodes of
// one process their data is not copied at all, but shared.
const groupIDSize = 20

type rpcKind uint8

const (
	rpcAppend rpcKind = 1 + iota
	rpcVote
	rpcPreVote
	rpcTimeoutNow
	rpcInstall
	rpcBeats // of all groups of a pair of nodes; see beat.go
	rpcSleep // see sleep.go
	rpcWatch // see watch.go
	rpcRoll
	rpcProbe // is there such a replica? See vigil.go
	rpcLook  // see look.go
)

// Flags of an answer.
const (
	flagSuccess        = 1 << 0 // success, granted
	flagNoRetryBackoff = 1 << 1
)

// maxAppendBytes bounds the entries of one request. At least one always goes.
const maxAppendBytes = 8 << 20

func putString[S ~string | ~[]byte](b []byte, s S) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
	return append(b, s...)
}

func putU64(b []byte, vs ...uint64) []byte {
	for _, v := range vs {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return b
}

func putU32(b []byte, vs ...uint32) []byte {
	for _, v := range vs {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return b
}

func putFlags(b []byte, set bool, flag byte) []byte {
	if !set {
		flag = 0
	}
	return append(b, flag)
}

func putHeader(b []byte, h raft.RPCHeader) []byte {
	b = append(b, byte(h.ProtocolVersion))
	b = putString(b, h.ID)
	return putString(b, h.Addr)
}

// encodeAppend shortens req.Entries to what fits; Raft looks at the shortened
// slice afterwards and sends the rest next.
func encodeAppend(b []byte, req *raft.AppendEntriesRequest, end uint64) [][]byte {
	n, total := 0, 0
	for _, e := range req.Entries {
		if n > 0 && total+len(e.Data) > maxAppendBytes {
			break
		}
		n, total = n+1, total+len(e.Data)
	}
	req.Entries = req.Entries[:n]
	b = putHeader(b, req.RPCHeader)
	b = putU64(b, req.Term, req.PrevLogEntry, req.PrevLogTerm, req.LeaderCommitIndex, end)
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	bufs := make([][]byte, 1, 1+n)
	for _, e := range req.Entries {
		b = putU64(b, e.Index, e.Term)
		b = append(b, byte(e.Type))
		b = binary.BigEndian.AppendUint32(b, uint32(len(e.Data)))
		if len(e.Data) > 0 {
			bufs = append(bufs, e.Data)
		}
	}
	bufs[0] = b
	return bufs
}

const appendEntrySize = 8 + 8 + 1 + 4

// headSize is room for what of a request or answer has a fixed size, and for names of
// usual length.
const headSize = 128

// decodeAppend returns the leader's last entry beside the request. The entries' data
// is in data, if that is shared, else at the end of b.
func decodeAppend(b []byte, data [][]byte) (req *raft.AppendEntriesRequest, end uint64, err error) {
	d, shared := decoder{b: b}, len(data) > 0
	req = &raft.AppendEntriesRequest{RPCHeader: d.header()}
	req.Term, req.PrevLogEntry, req.PrevLogTerm, req.LeaderCommitIndex = d.u64(), d.u64(), d.u64(), d.u64()
	end = d.u64()
	n := int(d.u32())
	table := d.take(n * appendEntrySize)
	if d.err != nil {
		return nil, 0, d.err
	}
	logs := make([]raft.Log, n)
	req.Entries = make([]*raft.Log, n)
	for i := range logs {
		t := decoder{b: table[i*appendEntrySize:]}
		logs[i].Index, logs[i].Term, logs[i].Type = t.u64(), t.u64(), raft.LogType(t.u8())
		req.Entries[i] = &logs[i]
		size := int(t.u32())
		switch {
		case size == 0:
		case !shared:
			logs[i].Data = d.take(size)
		case len(data) == 0 || len(data[0]) != size:
			return nil, 0, errShort
		default:
			logs[i].Data, data = data[0], data[1:]
		}
	}
	if len(data) > 0 {
		return nil, 0, fmt.Errorf("message has %d parts too many", len(data))
	}
	return req, end, d.end()
}

func encodeVote(b []byte, req *raft.RequestVoteRequest) []byte {
	b = putHeader(b, req.RPCHeader)
	b = putU64(b, req.Term, req.LastLogIndex, req.LastLogTerm)
	return putFlags(b, req.LeadershipTransfer, 1)
}

func decodeVote(b []byte) (*raft.RequestVoteRequest, error) {
	d := decoder{b: b}
	req := &raft.RequestVoteRequest{RPCHeader: d.header()}
	req.Term, req.LastLogIndex, req.LastLogTerm, req.LeadershipTransfer = d.u64(), d.u64(), d.u64(), d.u8() != 0
	return req, d.end()
}

func encodePreVote(b []byte, req *raft.RequestPreVoteRequest) []byte {
	b = putHeader(b, req.RPCHeader)
	return putU64(b, req.Term, req.LastLogIndex, req.LastLogTerm)
}

func decodePreVote(b []byte) (*raft.RequestPreVoteRequest, error) {
	d := decoder{b: b}
	req := &raft.RequestPreVoteRequest{RPCHeader: d.header()}
	req.Term, req.LastLogIndex, req.LastLogTerm = d.u64(), d.u64(), d.u64()
	return req, d.end()
}

func encodeInstall(b []byte, req *raft.InstallSnapshotRequest) []byte {
	b = putHeader(b, req.RPCHeader)
	b = append(b, byte(req.SnapshotVersion))
	b = putU64(b, req.Term, req.LastLogIndex, req.LastLogTerm, req.ConfigurationIndex)
	b = binary.BigEndian.AppendUint32(b, uint32(len(req.Configuration)))
	return append(b, req.Configuration...)
}

// decodeInstall returns the snapshot beside the request.
func decodeInstall(b []byte) (*raft.InstallSnapshotRequest, []byte, error) {
	d := decoder{b: b}
	req := &raft.InstallSnapshotRequest{RPCHeader: d.header()}
	req.SnapshotVersion, req.Term = raft.SnapshotVersion(d.u8()), d.u64()
	req.LastLogIndex, req.LastLogTerm, req.ConfigurationIndex = d.u64(), d.u64(), d.u64()
	req.Configuration = d.take(int(d.u32()))
	req.Size = int64(len(d.b))
	return req, d.b, d.err
}

// answer is the union of Raft's answers.
type answer struct {
	header         raft.RPCHeader
	term, last     uint64
	success        bool // or granted
	noRetryBackoff bool
}

func encodeAnswer(resp any) ([]byte, error) {
	var a answer
	switch r := resp.(type) {
	case *raft.AppendEntriesResponse:
		a = answer{r.RPCHeader, r.Term, r.LastLog, r.Success, r.NoRetryBackoff}
	case *raft.RequestVoteResponse:
		a = answer{header: r.RPCHeader, term: r.Term, success: r.Granted}
	case *raft.RequestPreVoteResponse:
		a = answer{header: r.RPCHeader, term: r.Term, success: r.Granted}
	case *raft.InstallSnapshotResponse:
		a = answer{header: r.RPCHeader, term: r.Term, success: r.Success}
	case *raft.TimeoutNowResponse:
		a = answer{header: r.RPCHeader}
	default:
		return nil, fmt.Errorf("raft answered with a %T", resp)
	}
	b := putHeader(make([]byte, 0, headSize), a.header)
	b = putU64(b, a.term, a.last)
	var flags byte
	if a.success {
		flags |= flagSuccess
	}
	if a.noRetryBackoff {
		flags |= flagNoRetryBackoff
	}
	return append(b, flags), nil
}

func decodeAnswer(b []byte) (answer, error) {
	d := decoder{b: b}
	a := answer{header: d.header(), term: d.u64(), last: d.u64()}
	flags := d.u8()
	a.success, a.noRetryBackoff = flags&flagSuccess != 0, flags&flagNoRetryBackoff != 0
	return a, d.end()
}

// decoder takes fields off the front of b. After the first error it returns zeros.
type decoder struct {
	b   []byte
	err error
}

var errShort = errors.New("message ends too early")

// take returns the next n bytes without copying them.
func (d *decoder) take(n int) []byte {
	if d.err != nil || n < 0 || n > len(d.b) {
		d.err = errShort
		return nil
	}
	t := d.b[:n:n]
	d.b = d.b[n:]
	return t
}

func (d *decoder) u8() byte {
	if t := d.take(1); t != nil {
		return t[0]
	}
	return 0
}

func (d *decoder) u16() uint16 {
	if t := d.take(2); t != nil {
		return binary.BigEndian.Uint16(t)
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if t := d.take(4); t != nil {
		return binary.BigEndian.Uint32(t)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if t := d.take(8); t != nil {
		return binary.BigEndian.Uint64(t)
	}
	return 0
}

func (d *decoder) bytes() []byte {
	return d.take(int(d.u16()))
}

func (d *decoder) group() (id groupID) {
	copy(id[:], d.take(groupIDSize))
	return id
}

func (d *decoder) header() raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersion(d.u8()), ID: d.bytes(), Addr: d.bytes()}
}

// end returns the first error, or one when bytes are left over.
func (d *decoder) end() error {
	if d.err == nil && len(d.b) > 0 {
		return fmt.Errorf("message has %d bytes too many", len(d.b))
	}
	return d.err
}
