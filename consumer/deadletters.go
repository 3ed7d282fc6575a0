package consumer

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// DeadLetters is what a group has given up on: the records of its topic
// [DeadLetterTopic], which has one partition, without those that were sent back
// or dropped. A log takes nothing out, so these are marked by records behind
// them, with a header that names the offset; retention may remove both.
//
// Its methods may be called at once. Where there are transactions one redrive or drop
// goes on at a time in the whole cluster: a later one takes over, and the earlier one
// ends with record.ErrFenced. With a [Mover] that is no [AtomicMover], a letter that
// two of them redrive at the same time is sent back twice.
type DeadLetters struct {
	src   Source
	mover Mover
	group string
}

// Letter is a record that was given up.
type Letter struct {
	// Record is as it was at its origin, with the headers of [Failure].
	record.Record
	Failure Failure
	// At is its offset in the dead-letter topic.
	At record.Offset
}

// NewDeadLetters returns the dead letters of a group.
func NewDeadLetters(src Source, mover Mover, group string) *DeadLetters {
	return &DeadLetters{src: src, mover: mover, group: group}
}

// List returns the dead letters as they are when the loop begins, oldest first.
// It ends after the first error, as [Read] does.
func (d *DeadLetters) List(ctx context.Context) iter.Seq2[Letter, error] {
	return func(yield func(Letter, error) bool) {
		settled, err := d.settled(ctx)
		if err != nil {
			yield(Letter{}, err)
			return
		}
		for r, err := range Read(ctx, d.src, DeadLetterTopic(d.group), UntilEnd()) {
			if err != nil {
				yield(Letter{}, err)
				return
			}
			if _, mark := settles(r); mark || settled[r.Offset] {
				continue
			}
			f, ok := FailureOf(r)
			if !ok { // written by somebody else
				f = Failure{Group: d.group, Origin: r.TopicPartition(), Offset: r.Offset, Time: r.Time}
			}
			if !yield(Letter{Record: f.at(r), Failure: f, At: r.Offset}, nil) {
				return
			}
		}
	}
}

// Redrive sends the dead letters that pick names, nil for all, back to their
// group alone, which handles them as if they had not been tried yet. It returns
// how many were.
//
// That a letter is sent back and that it is not a dead letter any more are one
// transaction, so each is sent back once, whatever dies when; after an error, call it
// again. With a [Mover] that is no [AtomicMover], a crash in between may send one back
// twice, and loses none.
func (d *DeadLetters) Redrive(ctx context.Context, pick func(Letter) bool) (int, error) {
	if err := d.mover.EnsureTopic(ctx, redriveTopic(d.group), 1); err != nil {
		return 0, err
	}
	return d.settle(ctx, pick, func(l Letter) []record.Record {
		f := l.Failure
		f.Cause, f.Attempts = CauseRedrive, 0
		return []record.Record{f.put(l.Record, redriveTopic(d.group), time.Now())}
	})
}

// Drop marks the dead letters that pick names, nil for all, as dealt with, and
// returns how many were.
func (d *DeadLetters) Drop(ctx context.Context, pick func(Letter) bool) (int, error) {
	return d.settle(ctx, pick, func(Letter) []record.Record { return nil })
}

// settleAtOnce is how many letters are settled together, and settleBytes how many
// bytes of them.
const (
	settleAtOnce = 100
	settleBytes  = 1 << 20
)

// settle appends for each dead letter that pick names what is to become of it, and
// the mark that it is dealt with: in that order, if not together.
func (d *DeadLetters) settle(ctx context.Context, pick func(Letter) bool, become func(Letter) []record.Record) (n int, err error) {
	send, end, err := d.alone(ctx)
	if err != nil {
		return 0, fmt.Errorf("dead letters of group %q: %w", d.group, err)
	}
	defer end()
	var records []record.Record
	letters, bytes := 0, 0
	flush := func() error {
		if letters == 0 {
			return nil
		}
		if err := send(ctx, records...); err != nil {
			return fmt.Errorf("dead letters of group %q: %w", d.group, err)
		}
		n += letters
		records, letters, bytes = nil, 0, 0
		return nil
	}
	for l, err := range d.List(ctx) {
		if err != nil {
			return n, err
		}
		if pick != nil && !pick(l) {
			continue
		}
		records = append(append(records, become(l)...), record.Record{
			Topic:   DeadLetterTopic(d.group),
			Headers: []record.Header{{Key: headerSettles, Value: []byte(strconv.FormatInt(int64(l.At), 10))}},
		})
		letters++
		bytes += size(&l.Record)
		if letters == settleAtOnce || bytes >= settleBytes {
			if err := flush(); err != nil {
				return n, err
			}
		}
	}
	return n, flush()
}

// alone is that of an [AtomicMover], or the next best.
func (d *DeadLetters) alone(ctx context.Context) (send func(context.Context, ...record.Record) error, end func(), err error) {
	if m, ok := d.mover.(AtomicMover); ok {
		return m.Alone(ctx, d.group)
	}
	return func(ctx context.Context, records ...record.Record) error {
		for _, r := range records {
			if _, _, err := d.mover.Send(ctx, r); err != nil {
				return err
			}
		}
		return nil
	}, func() {}, nil
}

// settled returns the offsets of the letters that are dealt with.
func (d *DeadLetters) settled(ctx context.Context) (map[record.Offset]bool, error) {
	if err := d.mover.EnsureTopic(ctx, DeadLetterTopic(d.group), 1); err != nil {
		return nil, err
	}
	settled := map[record.Offset]bool{}
	for r, err := range Read(ctx, d.src, DeadLetterTopic(d.group), UntilEnd()) {
		if err != nil {
			return nil, err
		}
		if at, ok := settles(r); ok {
			settled[at] = true
		}
	}
	return settled, nil
}

// settles returns the offset that a mark is about.
func settles(r record.Record) (record.Offset, bool) {
	for _, h := range r.Headers {
		if h.Key == headerSettles {
			at, err := strconv.ParseInt(string(h.Value), 10, 64)
			return record.Offset(at), err == nil
		}
	}
	return 0, false
}
