package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

// memory is a Source: topics of partitions kept as slices of batches.
type memory map[string][]*partition

// partition is one log in memory. It wakes those who wait for more.
type partition struct {
	tp record.TopicPartition

	mu          sync.Mutex
	batches     []record.Batch
	start, next record.Offset
	changed     chan struct{} // closed and replaced at each change
	fail        []error       // answers of the next fetches
	fetches     int
}

func newMemory(topic string, partitions int) memory {
	m := memory{}
	for p := range partitions {
		m[topic] = append(m[topic], &partition{
			tp:      record.TopicPartition{Topic: topic, Partition: int32(p)},
			changed: make(chan struct{}),
		})
	}
	return m
}

func (m memory) find(tp record.TopicPartition) (*partition, error) {
	if m[tp.Topic] == nil || int(tp.Partition) >= len(m[tp.Topic]) {
		return nil, &record.UnknownTopicError{Topic: tp.Topic, Partition: tp.Partition}
	}
	return m[tp.Topic][tp.Partition], nil
}

func (m memory) Partitions(_ context.Context, topic string) (int, error) {
	if m[topic] == nil {
		return 0, &record.UnknownTopicError{Topic: topic, Partition: -1}
	}
	return len(m[topic]), nil
}

func (m memory) Offsets(_ context.Context, tp record.TopicPartition, _ record.Isolation) (start, high record.Offset, err error) {
	p, err := m.find(tp)
	if err != nil {
		return 0, 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.start, p.next, nil
}

func (m memory) OffsetForTime(_ context.Context, tp record.TopicPartition, t time.Time) (record.Offset, bool, error) {
	p, err := m.find(tp)
	if err != nil {
		return record.NoOffset, false, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var it record.Iterator
	for _, b := range p.batches {
		if err := it.Reset(b); err != nil {
			return record.NoOffset, false, err
		}
		for r := (record.Record{}); it.Next(&r); {
			if r.Offset >= p.start && !r.Time.Before(t) {
				return r.Offset, true, nil
			}
		}
	}
	return record.NoOffset, false, nil
}

func (m memory) Fetch(ctx context.Context, tp record.TopicPartition, from record.Offset, maxBytes int, _ record.Isolation) (record.Fetched, error) {
	p, err := m.find(tp)
	if err != nil {
		return record.Fetched{}, err
	}
	return p.Fetch(ctx, from, maxBytes)
}

func (p *partition) Fetch(ctx context.Context, from record.Offset, maxBytes int) (record.Fetched, error) {
	for {
		f, changed, err := p.read(from, maxBytes)
		if err != nil || len(f.Batches) > 0 {
			return f, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return record.Fetched{}, ctx.Err()
		}
	}
}

func (p *partition) read(from record.Offset, maxBytes int) (record.Fetched, <-chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fetches++
	f := record.Fetched{StartOffset: p.start, LastStableOffset: p.next, HighWatermark: p.next}
	if len(p.fail) > 0 {
		err := p.fail[0]
		p.fail = p.fail[1:]
		return f, p.changed, err
	}
	if from < p.start || from > p.next {
		return f, p.changed, &record.OffsetRangeError{TopicPartition: p.tp, Offset: from, Start: p.start, End: p.next}
	}
	size := 0
	first, _ := slices.BinarySearchFunc(p.batches, from, func(b record.Batch, o record.Offset) int {
		return cmp.Compare(b.LastOffset(), o)
	})
	for _, b := range p.batches[first:] {
		if size > 0 && size+len(b) > maxBytes {
			break
		}
		f.Batches = append(f.Batches, b)
		size += len(b)
	}
	return f, p.changed, nil
}

// append stamps a batch and adds it.
func (p *partition) append(b record.Batch) record.Offset {
	p.mu.Lock()
	defer p.mu.Unlock()
	base := p.next
	b.Stamp(base, 1)
	p.batches = append(p.batches, b)
	p.next = b.NextOffset()
	p.change()
	return base
}

func (p *partition) change() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// failNext makes the next fetches, beginning with a waiting one, return errs.
func (p *partition) failNext(errs ...error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail = append(p.fail, errs...)
	p.change()
}

// trim makes offset the first that is readable.
func (p *partition) trim(offset record.Offset) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.start = offset
	for len(p.batches) > 0 && p.batches[0].NextOffset() <= offset {
		p.batches = p.batches[1:]
	}
	p.change()
}

// batch encodes one record per value; the value is the key as well.
func batch(t testing.TB, opt record.BatchOptions, values ...string) record.Batch {
	var b record.Builder
	for _, v := range values {
		require.NoError(t, b.Append(&record.Record{Key: []byte(v), Value: []byte(v), Time: time.UnixMilli(1)}))
	}
	out, err := b.Build(opt)
	require.NoError(t, err)
	return out
}

// fill appends records "partition:offset" in batches of size.
func (m memory) fill(t testing.TB, topic string, perPartition, size int) {
	for _, p := range m[topic] {
		p.fill(t, perPartition, size)
	}
}

func (p *partition) fill(t testing.TB, n, size int) {
	for n > 0 {
		var values []string
		for i := range min(n, size) {
			values = append(values, fmt.Sprintf("%d:%d", p.tp.Partition, int(p.next)+i))
		}
		p.append(batch(t, record.BatchOptions{}, values...))
		n -= len(values)
	}
}

// collect reads until n records have come, or to the end of the sequence.
func collect(seq func(yield func(record.Record, error) bool), n int) (got []string, err error) {
	for r, err := range seq {
		if err != nil {
			return got, err
		}
		got = append(got, string(r.Value))
		if len(got) == n {
			return got, nil
		}
	}
	return got, errEndOfSequence
}

var errEndOfSequence = errors.New("end of sequence")
