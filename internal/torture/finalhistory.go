package torture

import (
	"fmt"
	"slices"

	"github.com/quorumlog/quorumlog/record"
)

// placed is a value at its offset.
type placed struct {
	at record.Offset
	value
}

// final compares all that was said about a partition with what is in it at the
// end, from its log start offset on, also in transactions that were aborted. who
// has read it.
func (h *history) final(who string, tp record.TopicPartition, start record.Offset, found []placed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.started(who, tp, start)
	p := h.part(tp)
	here := make(map[value]bool, len(found))
	for i := range p.at {
		p.at[i].there = false
	}
	for _, f := range found {
		s := h.place(who, tp, f.at, f.value)
		s.read, s.there, here[f.value] = true, true, true
	}
	for o := int(start); o < len(p.at); o++ {
		if s := p.at[o]; s.known && s.read && !s.there {
			h.broke(Vanished, "%s has read %v at offset %d of %v, and %s does not find it at the end", s.who, s.value, o, tp, who)
		}
	}
	for _, w := range slices.Sorted(keys(p.outcomes)) {
		for n, o := range p.outcomes[w] {
			v := value{w, int32(n)}
			at, seen := p.where[v]
			switch {
			case o == acked && !here[v] && (seen && at >= start || !seen && start == 0):
				h.broke(Lost, "%v of %v was acknowledged%s, and is not there at the end", v, tp, p.place(v))
			case o == notWritten && seen:
				h.broke(Lie, "%v of %v was reported as not written, and is there%s", v, tp, p.place(v))
			case o == pending:
				h.broke(Silent, "%v of %v has got no result", v, tp)
			}
		}
	}
	h.order(tp)
}

// finalCommitted compares what a reader of what is committed is shown at the end
// with what is there. It returns what it was shown.
func (h *history) finalCommitted(who string, tp record.TopicPartition, start record.Offset, found []placed) (shown []sentValue) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.started(who, tp, start)
	p := h.part(tp)
	for i := range p.at {
		p.at[i].committed = false
	}
	for _, f := range found {
		s := h.place(who, tp, f.at, f.value)
		if !s.there {
			h.broke(Vanished, "%s shows %v at offset %d of %v among what is committed, and not among all", who, f.value, f.at, tp)
		}
		s.committed = true
		shown = append(shown, sentValue{tp, f.value})
	}
	for o := int(start); o < len(p.at); o++ {
		if s := p.at[o]; s.there && !s.committed && p.owners[s.value] == nil {
			h.broke(Lost, "%v at offset %d of %v is in no transaction, and %s does not show it as committed", s.value, o, tp, who)
		}
	}
	return shown
}

func (p *part) place(v value) string {
	if o, ok := p.where[v]; ok {
		return fmt.Sprintf(" at offset %d", o)
	}
	return ""
}

// order checks that what a writer has sent, and has got an ack for, is there in
// that order. What has an unknown outcome may come late.
func (h *history) order(tp record.TopicPartition) {
	last := map[int32]int32{}
	p := h.part(tp)
	for o, s := range p.at {
		v := s.value
		if !s.known || p.outcomes[v.writer][v.n] != acked {
			continue
		}
		if n, ok := last[v.writer]; ok && v.n < n {
			h.broke(Disorder, "%v of %v is at offset %d, behind %v", v, tp, o, value{v.writer, n})
		}
		last[v.writer] = v.n
	}
}
