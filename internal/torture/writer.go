package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/record"
)

// writer sends unique values to all partitions, with one producer after the
// other: some are closed in peace, some give up what is under way.
type writer struct {
	id      int32
	rng     *rand.Rand
	client  *client
	history *history
	cfg     Config
	slots   chan struct{} // bounds the records without a result
}

func newWriter(id int32, f *fleet, rng *rand.Rand) *writer {
	return &writer{id: id, rng: rng, client: f.client(int(id)), history: f.history, cfg: f.cfg, slots: make(chan struct{}, 150)}
}

// run writes until ctx ends, and returns when every record has its result.
func (w *writer) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := w.incarnation(ctx); err != nil {
			w.history.violate(BadError, "writer %d: %v", w.id, err)
			return
		}
		w.client.moveHome(w.rng)
	}
	for range cap(w.slots) { // callbacks may run a little after an abandoning Close
		w.slots <- struct{}{}
	}
}

// incarnation is the life of one producer.
func (w *writer) incarnation(ctx context.Context) error {
	cfg := producer.Config{
		Codec:       record.Codec(w.rng.IntN(5)),
		Partitioner: producer.Manual,
		BatchBytes:  []int{1 << 10, 4 << 10, 1 << 20}[w.rng.IntN(3)],
		Linger:      time.Duration(w.rng.IntN(3)) * 2 * time.Millisecond,
		// Short ones are given up in an outage, long ones must live through it.
		DeliveryTimeout: []time.Duration{time.Second, 5 * time.Second, 30 * time.Second}[w.rng.IntN(3)],
		Acks:            []record.Acks{record.AckQuorum, record.AckQuorum, record.AckAll}[w.rng.IntN(3)],
	}
	if w.id == 0 {
		cfg.Name = "the-first-writer"
	}
	p, err := producer.New(w.cfg.WrapCluster(w.client), cfg)
	if err != nil {
		return err
	}
	tps := partitions()
	w.rng.Shuffle(len(tps), func(i, j int) { tps[i], tps[j] = tps[j], tps[i] })
	tps = tps[:1+w.rng.IntN(len(tps))] // the others may get quiet
	for range 50 + w.rng.IntN(400) {
		if !pause(ctx, w.pace()) {
			break
		}
		tp := tps[w.rng.IntN(len(tps))]
		if w.rng.IntN(20) == 0 {
			w.sendAndWait(ctx, p, tp)
		} else {
			w.send(ctx, p, tp)
		}
		if w.rng.IntN(100) == 0 {
			w.client.moveHome(w.rng)
		}
	}
	patience := cfg.DeliveryTimeout + w.cfg.Bound
	if w.rng.IntN(3) == 0 {
		patience = 10 * time.Millisecond // give up what is under way
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := p.Close(closing); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("close: %w", err)
	} else if err != nil && patience > time.Second {
		w.history.violate(NoProgress, "close of producer %d with a delivery timeout of %v has not ended after %v", w.id, cfg.DeliveryTimeout, patience)
	}
	return nil
}

// pace is the time to the next record: mostly short, so that batches form, but
// slow enough for a run of minutes.
func (w *writer) pace() time.Duration {
	if w.rng.IntN(10) > 0 {
		return 0
	}
	return time.Duration(w.rng.Int64N(int64(w.cfg.temper().haste)))
}

func (w *writer) send(ctx context.Context, p *producer.Producer, tp record.TopicPartition) {
	w.slots <- struct{}{}
	v := w.history.send(w.id, tp)
	p.SendAsync(ctx, w.record(tp, v), func(res producer.Result, err error) {
		w.result(tp, v, res, err)
		<-w.slots
	})
}

// sendAndWait waits for the result, sometimes not long enough.
func (w *writer) sendAndWait(ctx context.Context, p *producer.Producer, tp record.TopicPartition) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(1+w.rng.IntN(200))*time.Millisecond)
	defer cancel()
	v := w.history.send(w.id, tp)
	res, err := p.Send(ctx, w.record(tp, v))
	w.result(tp, v, res, err)
}

func (w *writer) record(tp record.TopicPartition, v value) record.Record {
	return record.Record{Topic: tp.Topic, Partition: tp.Partition, Value: v.text(tp)}
}

// result tells the history what became of v, and complains about errors that
// no fault explains.
func (w *writer) result(tp record.TopicPartition, v value, res producer.Result, err error) {
	switch {
	case err == nil:
		if (record.TopicPartition{Topic: res.Topic, Partition: res.Partition}) != tp {
			w.history.violate(BadError, "%v was sent to %v and acknowledged for %s/%d", v, tp, res.Topic, res.Partition)
		}
		w.history.acked(tp, v, res.Offset, res.Duplicate)
	case errors.Is(err, record.ErrOutcomeUnknown):
		w.history.settle(tp, v, unknown)
	default:
		w.history.settle(tp, v, notWritten)
	}
	for _, never := range []error{record.ErrTooLarge, record.ErrInvalid, record.ErrCorrupt, record.ErrFenced, record.ErrOverloaded} {
		if errors.Is(err, never) {
			w.history.violate(BadError, "%v to %v: %v", v, tp, err)
		}
	}
}

// probe writes one record to each partition, which must work.
func (w *writer) probe(ctx context.Context) error {
	p, err := producer.New(w.cfg.WrapCluster(w.client), producer.Config{Partitioner: producer.Manual, DeliveryTimeout: w.cfg.Bound})
	if err != nil {
		return err
	}
	defer p.Close(ctx)
	for _, tp := range partitions() {
		v := w.history.send(w.id, tp)
		res, err := p.Send(ctx, w.record(tp, v))
		w.result(tp, v, res, err)
		if err != nil {
			return fmt.Errorf("write %v to %v: %w", v, tp, err)
		}
	}
	return nil
}

// pause waits for d; false when ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
