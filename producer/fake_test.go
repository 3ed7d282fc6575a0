package producer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/producer"
	"github.com/quorumlog/quorumlog/record"
)

var errLost = errors.New("the answer was lost")

// fate is what happens to one try.
type fate struct {
	refuse error           // it is not written, and answered with this
	arrive time.Duration   // it reaches the log this much later,
	answer time.Duration   // and is answered this much after that
	lost   bool            // the answer is lost: outcome unknown
	hold   <-chan struct{} // it is answered only after this is closed
	never  bool            // it never arrives and has no answer of its own
}

// fake is a cluster that checks what it gets as a partition's leader does.
type fake struct {
	t          testing.TB
	partitions int
	judge      func(tp record.TopicPartition, b record.Batch) fate // nil: all goes well
	identities func() error                                        // nil: all goes well
	reading    func() error                                        // nil: all goes well

	mu     sync.Mutex
	id     record.TopicID // of every topic
	looks  int            // at layouts
	logs   map[record.TopicPartition]*fakeLog
	tries  []try
	nextID record.ProducerID
	names  map[string]producerIdentity
}

type producerIdentity struct {
	id    record.ProducerID
	epoch record.ProducerEpoch
}

// try is what one batch said when it came.
type try struct {
	tp    record.TopicPartition
	id    record.ProducerID
	epoch record.ProducerEpoch
	seq   record.Sequence
	count int32
	acks  record.Acks
}

func newFake(t testing.TB, partitions int) *fake {
	return &fake{
		t: t, partitions: partitions, nextID: 1000,
		logs: make(map[record.TopicPartition]*fakeLog), names: make(map[string]producerIdentity),
	}
}

func (f *fake) Layout(ctx context.Context, topic string) (record.TopicID, int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks++
	if topic == "missing" || f.partitions == 0 {
		return record.TopicID{}, 0, &record.UnknownTopicError{Topic: topic, Partition: -1}
	}
	return f.id, f.partitions, ctx.Err()
}

// grow gives the topics n partitions.
func (f *fake) grow(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.partitions = n
}

// remake deletes the topics and makes them anew with n partitions, or leaves it
// at that when n is 0.
func (f *fake) remake(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.id[0]++
	f.partitions = n
	clear(f.logs)
}

func (f *fake) NewProducer(ctx context.Context, name string) (record.ProducerID, record.ProducerEpoch, error) {
	if f.identities != nil {
		if err := f.identities(); err != nil {
			return 0, 0, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if ident, ok := f.names[name]; ok && name != "" {
		ident.epoch++
		f.names[name] = ident
		return ident.id, ident.epoch, nil
	}
	f.nextID++
	f.names[name] = producerIdentity{id: f.nextID}
	return f.nextID, 0, nil
}

func (f *fake) RenewProducer(_ context.Context, name string, id record.ProducerID, epoch record.ProducerEpoch) (record.ProducerID, record.ProducerEpoch, error) {
	if f.identities != nil {
		if err := f.identities(); err != nil {
			return 0, 0, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.names[name]
	if now != (producerIdentity{id, epoch}) {
		return 0, 0, &record.FencedError{What: fmt.Sprintf("producer %q", name), Have: int64(epoch), Want: int64(now.epoch)}
	}
	now.epoch++
	f.names[name] = now
	return now.id, now.epoch, nil
}

func (f *fake) Append(ctx context.Context, id record.TopicID, tp record.TopicPartition, b record.Batch, acks record.Acks, done func(record.Appended, error)) {
	require.NoError(f.t, b.Check())
	require.Equal(f.t, record.NoLeaderEpoch, b.LeaderEpoch(), "a batch that was stamped before came again")
	require.Zero(f.t, b.BaseOffset())

	f.mu.Lock()
	f.tries = append(f.tries, try{tp: tp, id: b.ProducerID(), epoch: b.ProducerEpoch(), seq: b.BaseSequence(), count: b.Count(), acks: acks})
	f.mu.Unlock()

	if !f.knows(id, tp) {
		done(record.Appended{}, &record.UnknownTopicError{Topic: tp.Topic, Partition: -1})
		return
	}
	var then fate
	if f.judge != nil {
		then = f.judge(tp, b)
	}
	if then.refuse != nil {
		after(then.answer, func() { done(record.Appended{}, then.refuse) })
		return
	}
	var once sync.Once
	answer := func(a record.Appended, err error) { once.Do(func() { done(a, err) }) }
	unknown := func(err error) { answer(record.Appended{}, &record.OutcomeUnknownError{TopicPartition: tp, Err: err}) }
	context.AfterFunc(ctx, func() { unknown(ctx.Err()) })
	if then.never {
		return
	}
	after(then.arrive, func() {
		var (
			a   record.Appended
			err error = &record.UnknownTopicError{Topic: tp.Topic, Partition: -1}
		)
		if f.knows(id, tp) {
			a, err = f.log(tp).arrive(tp, b)
		}
		after(then.answer, func() {
			if then.hold != nil {
				go func() {
					select {
					case <-then.hold:
						answer(a, err)
					case <-ctx.Done():
					}
				}()
				return
			}
			if then.lost {
				unknown(errLost)
				return
			}
			answer(a, err)
		})
	})
}

func (f *fake) Offsets(_ context.Context, tp record.TopicPartition, _ record.Isolation) (start, high record.Offset, err error) {
	if f.reading != nil {
		if err := f.reading(); err != nil {
			return 0, 0, err
		}
	}
	l := f.log(tp)
	l.mu.Lock()
	defer l.mu.Unlock()
	return 0, l.end, nil
}

func (f *fake) Fetch(ctx context.Context, tp record.TopicPartition, from record.Offset, _ int, _ record.Isolation) (record.Fetched, error) {
	l := f.log(tp)
	l.mu.Lock()
	defer l.mu.Unlock()
	if from < 0 || from >= l.end {
		return record.Fetched{}, fmt.Errorf("nothing would ever be at %d: %w", from, record.ErrInvalid)
	}
	for _, b := range l.batches {
		if b.NextOffset() > from {
			return record.Fetched{Batches: []record.Batch{b}}, ctx.Err() // one at a time
		}
	}
	return record.Fetched{}, record.ErrCorrupt
}

func after(d time.Duration, f func()) {
	if d == 0 {
		f()
		return
	}
	time.AfterFunc(d, f)
}

func (f *fake) log(tp record.TopicPartition) *fakeLog {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.logs[tp]
	if l == nil {
		l = &fakeLog{producers: make(map[record.ProducerID]*producerState)}
		f.logs[tp] = l
	}
	return l
}

func (f *fake) knows(id record.TopicID, tp record.TopicPartition) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return id == f.id && int(tp.Partition) < f.partitions
}

// tried returns what came so far.
func (f *fake) tried() []try {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]try(nil), f.tries...)
}

// values returns the values in the log of a partition of topic "t", in order.
func (f *fake) values(partition int32) []string {
	var vs []string
	for _, r := range f.log(record.TopicPartition{Topic: "t", Partition: partition}).records(f.t) {
		vs = append(vs, string(r.Value))
	}
	return vs
}

// fakeLog is one partition: its batches, and the last five of each producer.
type fakeLog struct {
	mu        sync.Mutex
	batches   []record.Batch
	end       record.Offset
	producers map[record.ProducerID]*producerState
}

type producerState struct {
	epoch record.ProducerEpoch
	last  []record.Batch
}

func (l *fakeLog) arrive(tp record.TopicPartition, b record.Batch) (record.Appended, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id := b.ProducerID(); id != record.NoProducerID {
		s := l.producers[id]
		disorder := func(want record.Sequence) error {
			return &record.OutOfOrderError{TopicPartition: tp, Producer: id, Epoch: b.ProducerEpoch(), Got: b.BaseSequence(), Want: want}
		}
		switch {
		case s == nil:
			if b.BaseSequence() != 0 {
				return record.Appended{}, &record.OutOfOrderError{TopicPartition: tp, Producer: id, Epoch: b.ProducerEpoch(), Got: b.BaseSequence(), Unknown: true}
			}
			s = &producerState{epoch: b.ProducerEpoch()}
			l.producers[id] = s
		case b.ProducerEpoch() < s.epoch:
			return record.Appended{}, &record.FencedError{What: fmt.Sprintf("producer %d", id), Have: int64(b.ProducerEpoch()), Want: int64(s.epoch)}
		case b.ProducerEpoch() > s.epoch:
			if b.BaseSequence() != 0 {
				return record.Appended{}, disorder(0)
			}
			*s = producerState{epoch: b.ProducerEpoch()}
		default:
			for _, o := range s.last {
				if o.BaseSequence() == b.BaseSequence() && o.LastSequence() == b.LastSequence() {
					return record.Appended{BaseOffset: o.BaseOffset(), LeaderEpoch: 7, Duplicate: true}, nil
				}
			}
			want := s.last[len(s.last)-1].LastSequence().Add(1)
			if got := b.BaseSequence(); got != want {
				if (int64(got)-int64(want))&(1<<31-1) > 1<<30 {
					return record.Appended{}, record.ErrDuplicate
				}
				return record.Appended{}, disorder(want)
			}
		}
		s.last = append(s.last, b)
		if len(s.last) > 5 {
			s.last = s.last[1:]
		}
	}
	b.Stamp(l.end, 7)
	l.batches = append(l.batches, b)
	a := record.Appended{BaseOffset: l.end, LeaderEpoch: 7}
	l.end += record.Offset(b.Count())
	return a, nil
}

func (l *fakeLog) records(t testing.TB) []record.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	var (
		all []record.Record
		it  record.Iterator
	)
	for _, b := range l.batches {
		require.NoError(t, b.Check())
		require.NoError(t, it.Reset(b))
		for r := (record.Record{}); it.Next(&r); {
			all = append(all, r)
		}
		require.NoError(t, it.Err())
	}
	return all
}

// start returns a producer that is closed when the test ends.
func start(t testing.TB, c producer.Cluster, cfg producer.Config) *producer.Producer {
	t.Helper()
	p, err := producer.New(c, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
	return p
}

// rec returns a record for topic "t".
func rec(value string) record.Record { return record.Record{Topic: "t", Value: []byte(value)} }

// outcome is what a callback was told.
type outcome struct {
	res   producer.Result
	err   error
	calls int
}

// sendAsync sends records and returns where their outcomes will be.
func sendAsync(p *producer.Producer, rs ...record.Record) []*outcome {
	var outs []*outcome
	for _, r := range rs {
		o := new(outcome)
		outs = append(outs, o)
		p.SendAsync(context.Background(), r, func(res producer.Result, err error) {
			o.res, o.err = res, err
			o.calls++
		})
	}
	return outs
}

// forget loses the last n batches and what they did to the producers.
func (l *fakeLog) forget(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := l.batches[:len(l.batches)-n]
	l.end = l.batches[len(kept)].BaseOffset()
	for _, b := range l.batches[len(kept):] {
		s := l.producers[b.ProducerID()]
		s.last = s.last[:len(s.last)-1]
	}
	l.batches = kept
}

// twice answers every try a second time.
type twice struct{ *fake }

func (c twice) Append(ctx context.Context, id record.TopicID, tp record.TopicPartition, b record.Batch, acks record.Acks, done func(record.Appended, error)) {
	c.fake.Append(ctx, id, tp, b, acks, func(a record.Appended, err error) {
		done(a, err)
		done(record.Appended{}, errors.New("a second answer"))
	})
}
