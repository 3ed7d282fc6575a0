package torture

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/quorumlog/quorumlog/record"
)

// outcome is what became of a value as far as its writer was told.
type outcome int8

const (
	pending outcome = iota
	acked
	unknown
	notWritten
	aborted // with its transaction
)

// history is everything that clients did and saw, and the judge of it. Its
// methods may be called at once.
type history struct {
	story  *story
	broken chan struct{} // closed at the first violation

	mu           sync.Mutex
	counts       Report // only its numbers
	violations   []Violation
	transactions []*transaction
	leaps        []leap
	parts        map[record.TopicPartition]*part
	highs        map[stream]record.Offset // highest high watermark a reader was told
	stables      map[stream]record.Offset // last stable offset
	starts       map[stream]record.Offset // and log start offset
	streams      map[stream]record.Offset // next offset of each plain reader
	groups       map[groupPart]*groupLog
	moved        chan struct{} // closed and replaced when somebody gets on
}

// part is what is known of one partition.
type part struct {
	at       []slot // by offset
	where    map[value]record.Offset
	owners   map[value]*transaction // of those that were sent in one
	outcomes map[int32][]outcome    // by writer, and number of the value
	end      record.Offset          // one behind the highest acknowledged offset
	start    record.Offset          // highest log start offset that anybody was told
}

// slot is one offset of a partition.
type slot struct {
	value
	known bool
	who   string // who was the first to say so
	read  bool   // a reader has seen it
	// At the end: a reader is shown it, if also of what is not committed.
	there, committed bool
}

// stream is one reader of one partition.
type stream struct {
	who string
	tp  record.TopicPartition
}

func newHistory(s *story) *history {
	return &history{
		story: s, broken: make(chan struct{}), moved: make(chan struct{}),
		parts: map[record.TopicPartition]*part{}, highs: map[stream]record.Offset{}, starts: map[stream]record.Offset{}, stables: map[stream]record.Offset{},
		streams: map[stream]record.Offset{}, groups: map[groupPart]*groupLog{},
	}
}

// violate notes a broken promise.
func (h *history) violate(k Kind, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broke(k, format, args...)
}

// broke is violate with h.mu held.
func (h *history) broke(k Kind, format string, args ...any) {
	v := Violation{k, fmt.Sprintf(format, args...)}
	if len(h.violations) == 0 {
		close(h.broken)
	}
	if len(h.violations) < maxReported {
		h.violations = append(h.violations, v)
		first, _, _ := strings.Cut(v.String(), "\n")
		h.story.step("VIOLATION %s", first)
	}
}

func (h *history) part(tp record.TopicPartition) *part {
	p := h.parts[tp]
	if p == nil {
		p = &part{where: map[value]record.Offset{}, owners: map[value]*transaction{}, outcomes: map[int32][]outcome{}}
		h.parts[tp] = p
	}
	return p
}

// send returns the next value of a writer in a partition, which is about to be sent.
func (h *history) send(writer int32, tp record.TopicPartition) value {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.part(tp)
	v := value{writer, int32(len(p.outcomes[writer]))}
	p.outcomes[writer] = append(p.outcomes[writer], pending)
	h.counts.Sent++
	return v
}

// settle notes what the writer was told.
func (h *history) settle(tp record.TopicPartition, v value, o outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	outcomes := h.part(tp).outcomes[v.writer]
	if outcomes[v.n] != pending {
		h.broke(BadError, "%v of %v was answered twice", v, tp)
	}
	outcomes[v.n] = o
	switch o {
	case acked:
		h.counts.Acked++
	case unknown:
		h.counts.Unknown++
	case notWritten:
		h.counts.NotWritten++
	}
}

// acked is settle for a value that is at offset o; NoOffset is one that is
// forgotten.
func (h *history) acked(tp record.TopicPartition, v value, o record.Offset, resent bool) {
	h.settle(tp, v, acked)
	h.mu.Lock()
	defer h.mu.Unlock()
	if resent {
		h.counts.Resent++
	}
	if o != record.NoOffset {
		h.place(fmt.Sprintf("the ack of writer %d", v.writer), tp, o, v)
		h.part(tp).end = max(h.part(tp).end, o+1)
	}
	h.move()
}

// place notes that v is at offset o, and compares that with what is known. h.mu
// is held.
func (h *history) place(who string, tp record.TopicPartition, o record.Offset, v value) *slot {
	p := h.part(tp)
	for int(o) >= len(p.at) {
		p.at = append(p.at, slot{})
	}
	s := &p.at[o]
	if s.known {
		if s.value != v {
			h.broke(TwoValues, "%v at offset %d is %v for %s, but %v for %s", tp, o, v, who, s.value, s.who)
		}
		return s
	}
	if int(v.n) >= len(p.outcomes[v.writer]) {
		h.broke(BadData, "%v at offset %d is %v for %s, which nobody has sent", tp, o, v, who)
		return s
	}
	if first, ok := p.where[v]; ok {
		h.broke(Duplicate, "%v of %v is at offset %d for %s, and at offset %d for %s", v, tp, o, who, first, p.at[first].who)
		return s
	}
	*s = slot{value: v, known: true, who: who}
	p.where[v] = o
	return s
}

// read notes what a plain reader got. A reader that is new begins at offset from.
func (h *history) read(who string, iso record.Isolation, r record.Record) {
	tp := r.TopicPartition()
	v, err := parse(tp, r.Value)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.broke(BadData, "%s read at offset %d: %v", who, r.Offset, err)
		return
	}
	s := stream{who, tp}
	switch want := h.streams[s]; {
	case r.Offset > want:
		h.leapt(Skipped, leap{who, tp, iso, want, r.Offset})
	case r.Offset < want:
		h.broke(Repeated, "%s got offset %d of %v, want %d", who, r.Offset, tp, want)
	}
	h.streams[s] = r.Offset + 1
	h.place(who, tp, r.Offset, v).read = true
	if iso == record.ReadCommitted {
		h.showed(who, tp, r.Offset, v)
	}
	h.counts.Read++
	h.move()
}

// seek makes a plain reader begin at offset o, and position says where it is.
func (h *history) seek(who string, tp record.TopicPartition, o record.Offset) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.streams[stream{who, tp}] = o
}

func (h *history) position(who string, tp record.TopicPartition) record.Offset {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.streams[stream{who, tp}]
}

// fetched checks an answer that a reader got.
func (h *history) fetched(who string, tp record.TopicPartition, iso record.Isolation, f record.Fetched) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !(f.StartOffset <= f.LastStableOffset && f.LastStableOffset <= f.HighWatermark) {
		h.broke(PastHigh, "%s was told of %v: start %d, last stable %d, high watermark %d", who, tp, f.StartOffset, f.LastStableOffset, f.HighWatermark)
	}
	bound := f.HighWatermark
	if iso == record.ReadCommitted {
		bound = f.LastStableOffset
	}
	if n := len(f.Batches); n > 0 && f.Batches[n-1].NextOffset() > bound {
		h.broke(PastHigh, "%s got %v up to offset %d with the high watermark at %d, the last stable offset at %d", who, tp, f.Batches[n-1].NextOffset(), f.HighWatermark, f.LastStableOffset)
	}
	h.started(who, tp, f.StartOffset)
	s := stream{who, tp}
	if f.HighWatermark < h.highs[s] {
		h.broke(HighBack, "%s was told that the high watermark of %v is %d after it was %d", who, tp, f.HighWatermark, h.highs[s])
	}
	h.highs[s] = f.HighWatermark
	if f.LastStableOffset < h.stables[s] {
		h.broke(StableBack, "%s was told that the last stable offset of %v is %d after it was %d", who, tp, f.LastStableOffset, h.stables[s])
	}
	h.stables[s] = f.LastStableOffset
}

// overtaken notes that a reader at offset pos was told that the log starts
// behind it. It goes on at the start.
func (h *history) overtaken(who string, tp record.TopicPartition, pos, start record.Offset) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if pos >= start {
		h.broke(BadError, "%s was told that offset %d of %v is below the log start %d", who, pos, tp, start)
	}
	h.started(who, tp, start)
	h.counts.Overtaken++
}

// start is the highest log start offset of tp that anybody was told.
func (h *history) start(tp record.TopicPartition) record.Offset {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.part(tp).start
}

// known is the offset behind the highest one that anybody knows something of.
func (h *history) known(tp record.TopicPartition) record.Offset {
	h.mu.Lock()
	defer h.mu.Unlock()
	return record.Offset(len(h.part(tp).at))
}

// started notes a log start offset that somebody was told. h.mu is held.
func (h *history) started(who string, tp record.TopicPartition, start record.Offset) {
	s := stream{who, tp}
	switch {
	case start > 0 && topicOf(tp.Topic).retention == 0:
		h.broke(Overtrimmed, "%s was told that %v, which keeps all, starts at %d", who, tp, start)
	case start < h.starts[s]:
		h.broke(StartBack, "%s was told that %v starts at %d after it was %d", who, tp, start, h.starts[s])
	}
	h.starts[s] = start
	h.part(tp).start = max(h.part(tp).start, start)
}

// floor is what the high watermark of tp must be by now; reached compares.
func (h *history) floor(tp record.TopicPartition) record.Offset {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.part(tp).end
}

func (h *history) reached(who string, tp record.TopicPartition, floor, high record.Offset) {
	if high < floor {
		h.violate(StaleEnd, "%s was told that %v ends at %d, but offset %d had been acknowledged before", who, tp, high, floor-1)
	}
}

// move wakes who waits. h.mu is held.
func (h *history) move() {
	close(h.moved)
	h.moved = make(chan struct{})
}

// await returns when is says so, which is asked under h.mu, or when ctx ends.
func (h *history) await(ctx context.Context, is func() bool) error {
	for {
		h.mu.Lock()
		ok, moved := is(), h.moved
		h.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// report returns what was counted and found.
func (h *history) report() *Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.counts
	r.Violations = slices.Clone(h.violations)
	for _, p := range h.parts {
		r.Trimmed += int(p.start)
	}
	return &r
}

// found reports whether anything is wrong by now.
func (h *history) found() bool {
	select {
	case <-h.broken:
		return true
	default:
		return false
	}
}

func keys[K comparable, V any](m map[K]V) func(func(K) bool) {
	return func(yield func(K) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}
