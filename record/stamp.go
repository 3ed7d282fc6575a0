package record

import (
	"encoding/binary"
	"fmt"
)

// ProducerStamp says who wrote a batch and which of its records these are, so
// that a leader can tell a repeat from a new batch.
type ProducerStamp struct {
	ID       ProducerID
	Epoch    ProducerEpoch
	Sequence Sequence // of the first record; NoSequence only in control batches
}

func (p *ProducerStamp) validate(control bool) error {
	if p == nil {
		return nil
	}
	marker := control && p.Sequence == NoSequence
	if p.ID < 0 || p.Epoch < 0 || p.Sequence < 0 && !marker {
		return fmt.Errorf("%w: producer stamp %+v", ErrInvalid, *p)
	}
	return nil
}

// Reissue returns a copy of b under another stamp, nil for none, that has no
// place yet: how a producer sends the same records under a new identity. It
// reads nothing that Stamp writes, so b may be in a log already.
func (b Batch) Reissue(p *ProducerStamp) Batch {
	c := make(Batch, len(b))
	copy(c[atLength:atLeaderEpoch], b[atLength:])
	copy(c[atMagic:], b[atMagic:])
	c.seal(p)
	return c
}

// seal fills in what is left of the header when all else is done: no place
// yet, the producer, and the checksum.
func (b Batch) seal(p *ProducerStamp) {
	if p == nil {
		p = &ProducerStamp{ID: NoProducerID, Epoch: -1, Sequence: NoSequence}
	}
	b.Stamp(0, NoLeaderEpoch)
	binary.BigEndian.PutUint64(b[atProducerID:], uint64(p.ID))
	binary.BigEndian.PutUint16(b[atProducerEpoch:], uint16(p.Epoch))
	binary.BigEndian.PutUint32(b[atBaseSequence:], uint32(p.Sequence))
	binary.BigEndian.PutUint32(b[atCRC:], b.sum())
}
