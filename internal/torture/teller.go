package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/txn"
)

// teller writes unique values in transactions over several partitions, with one
// client after the other: it commits, aborts, dawdles, and leaves a transaction open.
type teller struct {
	id      int32
	name    string // transactional id; two tellers may have the same and fence each other
	rng     *rand.Rand
	client  *client
	history *history
	cfg     Config
}

func newTeller(id int32, name string, f *fleet, rng *rand.Rand) *teller {
	return &teller{id: id, name: name, rng: rng, client: f.client(int(id)), history: f.history, cfg: f.cfg}
}

// run is a teller until ctx ends. Then every transaction has its result.
func (t *teller) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := t.incarnation(ctx); err != nil {
			t.history.violate(BadError, "teller %d: %v", t.id, err)
			return
		}
		t.client.moveHome(t.rng)
		pause(ctx, time.Duration(t.rng.IntN(500))*time.Millisecond)
	}
}

// incarnation is the life of one client.
func (t *teller) incarnation(ctx context.Context) error {
	timeout := []time.Duration{time.Second, 3 * time.Second, 10 * time.Second}[t.rng.IntN(3)]
	// Short ones are given up in an outage, long ones must live through it.
	delivery := []time.Duration{time.Second, 5 * time.Second, 30 * time.Second}[t.rng.IntN(3)]
	c, err := t.open(timeout, delivery)
	if err != nil {
		return err
	}
	crash := false
	for range 1 + t.rng.IntN(40) {
		if ctx.Err() != nil || crash {
			break
		}
		if crash, err = t.transaction(ctx, c, timeout); err != nil {
			break // another client is better, or the same one later
		}
		pause(ctx, time.Duration(t.rng.Int64N(int64(2*t.cfg.temper().haste))))
	}
	patience := t.cfg.Bound + 30*time.Second // a transaction may be settled for that long
	if crash {
		patience = 0 // nothing reaches the coordinator any more
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := c.Close(closing); err != nil && !crash {
		if closing.Err() != nil {
			t.history.violate(NoProgress, "close of teller %d has not ended after %v", t.id, patience)
		}
		return fmt.Errorf("close: %w", err)
	}
	return nil
}

func (t *teller) open(timeout, delivery time.Duration) (*txn.Client, error) {
	return txn.New(t.cfg.WrapTxn(t.client), t.name, txn.Config{Timeout: timeout, Producer: producer.Config{
		Codec:           record.Codec(t.rng.IntN(5)),
		Partitioner:     producer.Manual,
		BatchBytes:      []int{1 << 10, 1 << 20}[t.rng.IntN(2)],
		DeliveryTimeout: delivery,
	}})
}

// transaction runs one. It reports whether the client is to be dropped as it is,
// and why nothing more can be done with it.
func (t *teller) transaction(ctx context.Context, c *txn.Client, timeout time.Duration) (crash bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(1+t.rng.IntN(15_000))*time.Millisecond)
	defer cancel()
	tx, err := c.Begin(ctx)
	if err != nil {
		t.judge("begin", err)
		return false, err
	}
	h := t.history
	what := h.begins(fmt.Sprintf("%s of teller %d", t.name, t.id))
	for range 1 + t.rng.IntN(8) {
		tp := t.partition()
		v := h.sendIn(what, t.id, tp)
		if err = tx.Send(record.Record{Topic: tp.Topic, Partition: tp.Partition, Value: v.text(tp)}); err != nil {
			t.judge("send", err)
			break
		}
		if t.rng.IntN(8) == 0 {
			pause(ctx, time.Duration(t.rng.IntN(100))*time.Millisecond)
		}
	}
	switch n := t.rng.IntN(20); {
	case n == 0: // the coordinator has to end it
		h.ended(what, txAborted)
		return true, nil
	case n == 1:
		pause(ctx, timeout)
	}
	if err != nil || t.rng.IntN(5) == 0 {
		h.ended(what, txAborted)
		if err := tx.Abort(ctx); err != nil {
			t.judge("abort", err)
		}
		return false, nil
	}
	h.ends(what)
	err = tx.Commit(ctx)
	switch {
	case err == nil:
		h.ended(what, txCommitted)
	case errors.Is(err, txn.ErrAborted):
		h.ended(what, txAborted)
	default:
		h.ended(what, txUnknown)
		if !errors.Is(err, record.ErrOutcomeUnknown) {
			h.violate(BadError, "commit of %s: %v", what.name, err)
		}
	}
	if err != nil {
		t.judge("commit", err)
	}
	return false, nil
}

// partition draws one that takes transactions.
func (t *teller) partition() record.TopicPartition {
	tps := partitions()
	for {
		if tp := tps[t.rng.IntN(len(tps))]; topicOf(tp.Topic).transactions {
			return tp
		}
	}
}

// probe runs one transaction, which must work.
func (t *teller) probe(ctx context.Context) error {
	c, err := t.open(time.Minute, t.cfg.Bound)
	if err != nil {
		return err
	}
	what := t.history.begins(fmt.Sprintf("%s of probing teller %d", t.name, t.id))
	t.history.ends(what)
	err = c.Do(ctx, func(tx *txn.Tx) error {
		for _, tp := range partitions() {
			if topicOf(tp.Topic).transactions {
				v := t.history.sendIn(what, t.id, tp)
				if err := tx.Send(record.Record{Topic: tp.Topic, Partition: tp.Partition, Value: v.text(tp)}); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.history.ended(what, txUnknown)
	} else {
		t.history.ended(what, txCommitted)
	}
	return errors.Join(err, c.Close(ctx))
}

// judge complains about an error that no fault explains.
func (t *teller) judge(what string, err error) {
	for _, never := range []error{record.ErrTooLarge, record.ErrCorrupt, record.ErrOutOfOrder, record.ErrNotInTransaction} {
		if errors.Is(err, never) {
			t.history.violate(BadError, "%s of teller %d: %v", what, t.id, err)
		}
	}
}
