package replica

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
	"github.com/quorumlog/quorumlog/transport"
)

// A look at another replica's log needs no leader and no Raft: it is answered as
// long as the log is open. It asks how far the log goes, which log start offset was
// decided as far as that replica knows, and for entries [from, to):
//
//	request: from u64 | to u64
//	answer:  first u64 | next u64 | last term u64 | log start i64 | count u32 |
//	         count × (number u64 | term u64 | offset i64 | kind u8 | length u32) | the entries' data
//
// Of the entries those are returned that can be read, in order from the first
// one asked for, up to about maxAppendBytes.
type look struct {
	first, next, lastTerm uint64
	start                 record.Offset
	entries               []segment.Entry
}

const lookEntrySize = 8 + 8 + 8 + 1 + 4

// exhibit is what other nodes may look at.
type exhibit struct {
	log   *log.Log
	start *atomic.Int64 // Replica.start
}

// show lets other nodes look at a replica's log; hide ends that.
func (m *Mux) show(r *Replica) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shown[r.id] = exhibit{r.store.log, &r.start}
}

func (m *Mux) hide(r *Replica) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shown[r.id].log == r.store.log {
		delete(m.shown, r.id)
	}
}

// serveLook answers a look.
func (m *Mux) serveLook(id groupID, body []byte) ([]byte, error) {
	d := decoder{b: body}
	from, to := d.u64(), d.u64()
	if err := d.end(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	x := m.shown[id]
	m.mu.Unlock()
	l := x.log
	if l == nil {
		return nil, record.ErrUnreachable
	}
	var table, data []byte
	var count uint32
	b := l.Bounds()
	for n := from; n < to && len(data) < maxAppendBytes; n++ {
		e, err := l.ReadEntry(record.EntryNumber(n))
		if err != nil {
			break
		}
		table = putU64(table, n, e.Term, uint64(e.Offset))
		table = append(table, byte(e.Kind))
		table = putU32(table, uint32(len(e.Data)))
		data = append(data, e.Data...)
		count++
	}
	answer := putU64(nil, uint64(b.First), uint64(b.Next), b.LastTerm, uint64(x.start.Load()))
	return append(append(putU32(answer, count), table...), data...), nil
}

// look asks a node.
func (m *Mux) look(ctx context.Context, id groupID, node string, from, to uint64) (look, error) {
	req := append(append([]byte(nil), id[:]...), byte(rpcLook))
	b, err := transport.Call(ctx, m.endpoint, node, m.service, putU64(req, from, to))
	if err != nil {
		return look{}, err
	}
	return decodeLook(b)
}

func decodeLook(b []byte) (look, error) {
	d := decoder{b: b}
	k := look{first: d.u64(), next: d.u64(), lastTerm: d.u64(), start: record.Offset(d.u64())}
	n := int(d.u32())
	if d.err != nil || n > len(d.b)/lookEntrySize {
		return look{}, errShort
	}
	k.entries = make([]segment.Entry, n)
	table := decoder{b: d.take(n * lookEntrySize)}
	for i := range k.entries {
		k.entries[i] = segment.Entry{
			Number: record.EntryNumber(table.u64()), Term: table.u64(), Offset: record.Offset(table.u64()), Kind: segment.Kind(table.u8()),
		}
		k.entries[i].Data = d.take(int(binary.BigEndian.Uint32(table.take(4))))
		if d.err != nil {
			return look{}, fmt.Errorf("entry %d of %d: %w", i, n, d.err)
		}
	}
	return k, d.end()
}
