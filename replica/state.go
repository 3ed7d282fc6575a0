package replica

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/quorumlog/quorumlog/record"
)

// The state of a partition at one entry, as a checkpoint holds it. Integers are
// big-endian.
//
//	version u32 = 1 | high watermark i64 | producers u32
//	producer: id i64 | batches u8
//	batch:    epoch i16 | first sequence i32 | last sequence i32 | base offset i64 | timestamp i64
const stateVersion = 1

// encodeState leaves out what is not committed.
func encodeState(high record.Offset, p producers) []byte {
	b := binary.BigEndian.AppendUint32(nil, stateVersion)
	b = binary.BigEndian.AppendUint64(b, uint64(high))
	count := len(b)
	b = binary.BigEndian.AppendUint32(b, 0)
	var n uint32
	for _, id := range slices.Sorted(maps.Keys(p)) {
		refs := p[id]
		for len(refs) > 0 && refs[len(refs)-1].base >= high {
			refs = refs[:len(refs)-1]
		}
		if len(refs) == 0 {
			continue
		}
		n++
		b = binary.BigEndian.AppendUint64(b, uint64(id))
		b = append(b, byte(len(refs)))
		for _, ref := range refs {
			b = binary.BigEndian.AppendUint16(b, uint16(ref.epoch))
			b = binary.BigEndian.AppendUint32(b, uint32(ref.first))
			b = binary.BigEndian.AppendUint32(b, uint32(ref.last))
			b = binary.BigEndian.AppendUint64(b, uint64(ref.base))
			b = binary.BigEndian.AppendUint64(b, uint64(ref.timestamp))
		}
	}
	binary.BigEndian.PutUint32(b[count:], n)
	return b
}

func decodeState(b []byte) (high record.Offset, p producers, err error) {
	d := decoder{b: b}
	if v := d.u32(); d.err == nil && v != stateVersion {
		return 0, nil, fmt.Errorf("state has version %d, this build knows %d", v, stateVersion)
	}
	high = record.Offset(d.u64())
	p = producers{}
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
		p[id] = refs
	}
	return high, p, d.end()
}
