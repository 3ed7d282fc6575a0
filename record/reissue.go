package record

import "encoding/binary"

// Reissue returns a copy of b under another stamp, nil for none, that has no
// place yet. It reads nothing that Stamp writes, so b may be in a log already.
func (b Batch) Reissue(p *ProducerStamp) Batch {
	c := make(Batch, len(b))
	copy(c[atLength:atLeaderEpoch], b[atLength:])
	copy(c[atMagic:], b[atMagic:])
	c.Stamp(0, NoLeaderEpoch)
	c.putProducer(p)
	return c
}

// putProducer writes the producer's fields and the checksum over everything.
func (b Batch) putProducer(p *ProducerStamp) {
	if p == nil {
		p = &ProducerStamp{ID: NoProducerID, Epoch: -1, Sequence: NoSequence}
	}
	binary.BigEndian.PutUint64(b[atProducerID:], uint64(p.ID))
	binary.BigEndian.PutUint16(b[atProducerEpoch:], uint16(p.Epoch))
	binary.BigEndian.PutUint32(b[atBaseSequence:], uint32(p.Sequence))
	binary.BigEndian.PutUint32(b[atCRC:], b.sum())
}
