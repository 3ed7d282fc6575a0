package txn

import (
	"context"
	"errors"

	"github.com/quorumlog/quorumlog/consumer"
	"github.com/quorumlog/quorumlog/record"
)

// Pipe reads batches of a group, has step handle each in a transaction of to, and
// commits what step has sent together with the offset behind the batch. So every
// record is handled once, whatever fails: a step whose transaction was aborted, or
// may have been, is run again with the same batch if it was.
//
// It ends with the error of step, of ctx, of Poll, and when another client has taken
// the transactional id. from must be polled by nobody else meanwhile.
func Pipe(ctx context.Context, from *consumer.Group, to *Client, step func(tx *Tx, b consumer.Batch) error) error {
	for {
		b, err := from.Poll(ctx)
		if err != nil {
			return err
		}
		var own error // of step itself, not one that it passes on
		err = to.Do(ctx, func(tx *Tx) error {
			pend, err := tx.consuming(from, b)
			if err != nil {
				return err
			}
			if err := step(tx, b); err != nil {
				if tx.usable() == nil {
					own = err
				}
				return err
			}
			return pend()
		})
		switch {
		case own != nil:
			return own
		case err == nil:
		case ctx.Err() != nil:
			return ctx.Err()
		case to.Fenced() != nil:
			return to.Fenced()
		case errors.Is(err, record.ErrClosed):
			return err
		default: // aborted, or unknown: that must be settled before the next batch
			to.logger.Warn("a transaction was not committed, its batch comes again if it was aborted", "id", to.id, "err", err)
			if err := to.quiet(ctx); err != nil {
				return err
			}
		}
	}
}
