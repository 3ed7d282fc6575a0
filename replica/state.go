package replica

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/quorumlog/quorumlog/record"
)

// state is what a partition's committed entries amount to, beside the records
// themselves. It is what a checkpoint holds and what a follower is sent that is
// behind the log start. Its bytes, with big-endian integers:
//
//	version u32 = 2 | flags u8 (1: anchor) | entry u64 | term u64 | high watermark i64 |
//	folded i64 | log start i64 | producers u32
//	producer: id i64 | batches u8
//	batch:    epoch i16 | first sequence i32 | last sequence i32 | base offset i64 | timestamp i64
//	transactional u32
//	transactional: producer id i64 | epoch i32 | coordinator epoch i32 | first offset of the
//	          open transaction i64, -1 for none | offset of the last marker i64, -1 | timestamp i64
//	aborted u32
//	aborted:  producer id i64 | transactions u32
//	transaction: first offset i64 | offset of the marker i64
//
// A checkpoint is the state at one entry, and folded == high. An anchor is made
// for a follower that needs entries the leader has trimmed. It tells where the
// leader's log begins (entry, term and high are those before its first entry),
// with producers as of a later checkpoint: up to folded their batches need not
// be remembered again. Until the follower has got that far it cannot lead, since
// all that is committed, so nobody asks it about producers before.
type state struct {
	anchor       bool
	entry        uint64 // the last entry that counts
	term         uint64 // of that entry
	high, folded record.Offset
	start        record.Offset // log start offset
	producers    producers
	transactions transactions
	aborted      map[record.ProducerID][]span
}

const (
	stateVersion = 2
	flagAnchor   = 1
)

// encode leaves out batches that are not committed.
func (s *state) encode() []byte {
	b := binary.BigEndian.AppendUint32(nil, stateVersion)
	b = putFlags(b, s.anchor, flagAnchor)
	b = putU64(b, s.entry, s.term, uint64(s.high), uint64(s.folded), uint64(s.start))
	count := len(b)
	b = binary.BigEndian.AppendUint32(b, 0)
	var n uint32
	for _, id := range slices.Sorted(maps.Keys(s.producers)) {
		refs := s.producers[id]
		for len(refs) > 0 && refs[len(refs)-1].base >= s.folded {
			refs = refs[:len(refs)-1]
		}
		if len(refs) == 0 {
			continue
		}
		refs = refs[max(0, len(refs)-window):]
		n++
		b = binary.BigEndian.AppendUint64(b, uint64(id))
		b = append(b, byte(len(refs)))
		for _, ref := range refs {
			b = binary.BigEndian.AppendUint16(b, uint16(ref.epoch))
			b = binary.BigEndian.AppendUint32(b, uint32(ref.first))
			b = binary.BigEndian.AppendUint32(b, uint32(ref.last))
			b = putU64(b, uint64(ref.base), uint64(ref.timestamp))
		}
	}
	binary.BigEndian.PutUint32(b[count:], n)
	b = s.transactions.encode(b)
	return encodeSpans(b, s.aborted)
}

func decodeState(b []byte) (state, error) {
	d := decoder{b: b}
	if v := d.u32(); d.err == nil && v != stateVersion {
		return state{}, fmt.Errorf("state has version %d, this build knows %d", v, stateVersion)
	}
	s := state{anchor: d.u8()&flagAnchor != 0, entry: d.u64(), term: d.u64()}
	s.high, s.folded, s.start = record.Offset(d.u64()), record.Offset(d.u64()), record.Offset(d.u64())
	s.producers = producers{}
	for n := d.u32(); n > 0 && d.err == nil; n-- {
		id := record.ProducerID(d.u64())
		refs := make([]batchRef, 0, window)
		for k := d.u8(); k > 0 && d.err == nil; k-- {
			refs = append(refs, batchRef{
				epoch: record.ProducerEpoch(d.u16()),
				first: record.Sequence(d.u32()), last: record.Sequence(d.u32()),
				base: record.Offset(d.u64()), timestamp: int64(d.u64()),
			})
		}
		s.producers[id] = refs
	}
	s.transactions = decodeTransactions(&d)
	s.aborted = decodeSpans(&d)
	return s, d.end()
}
