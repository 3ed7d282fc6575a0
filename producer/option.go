package producer

import (
	"fmt"

	"github.com/quorumlog/quorumlog/record"
)

// SendOption changes how one record is sent.
type SendOption struct{ acks record.Acks }

// WithAcks asks for another level of acknowledgement than Config.Acks: without
// DisableIdempotence it must be quorum or all, as there, else the record is
// refused with record.ErrInvalid.
//
// The order in the log does not depend on it: the record closes the batch before
// it and has to follow it, so it waits for an earlier one that is repeated. Only
// answers may come in another order, the weaker level first. Records of
// different levels never share a batch, so a level that changes with each record
// makes batches of one.
func WithAcks(a record.Acks) SendOption { return SendOption{acks: a} }

// acks returns the level that the options ask for, the last one if several do.
func (p *Producer) acks(opts []SendOption) (record.Acks, error) {
	if len(opts) == 0 {
		return p.cfg.Acks, nil
	}
	a := opts[len(opts)-1].acks
	if err := checkAcks(a, p.cfg.DisableIdempotence); err != nil {
		return a, fmt.Errorf("%w: WithAcks: %w", record.ErrInvalid, err)
	}
	return a, nil
}
