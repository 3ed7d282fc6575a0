package torture

import (
	"github.com/quorumlog/quorumlog/record"
)

// groupPart is one group in one partition.
type groupPart struct {
	group string
	tp    record.TopicPartition
}

// groupLog is what is known of it.
type groupLog struct {
	asked  record.Offset // highest that a member has tried to commit
	stored record.Offset // highest that was acknowledged, or told
	polled []bool        // by offset: it was handed out
}

func (h *history) group(k groupPart) *groupLog {
	g := h.groups[k]
	if g == nil {
		g = &groupLog{}
		h.groups[k] = g
	}
	return g
}

// claim is one partition as one member holds it: where the next record must be.
// One before is kept, since the last batch of a claim that was lost may be
// looked at after the next claim has begun.
type claim struct {
	next, before record.Offset // NoOffset: not held
}

// continued returns the position that a batch at offset o goes on from: the one
// that lies closest before it, since offsets may be left out.
func (c *claim) continued(o record.Offset) *record.Offset {
	if c.before != record.NoOffset && c.before <= o && (c.next > o || c.next < c.before) && c.next != record.NoOffset {
		return &c.before
	}
	return &c.next
}

// polled notes what a group was handed out.
func (h *history) polled(k groupPart, who string, c *claim, records []record.Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(records) == 0 {
		h.broke(BadData, "%s was handed out a batch of %v without records", who, k.tp)
		return
	}
	next := c.continued(records[0].Offset)
	for i := range records {
		r := &records[i]
		v, err := parse(k.tp, r.Value)
		if err != nil {
			h.broke(BadData, "%s was handed out at offset %d: %v", who, r.Offset, err)
			continue
		}
		trimmed := r.Offset <= h.part(k.tp).start // it begins at the log start then
		switch {
		case *next == record.NoOffset:
		case r.Offset < *next:
			h.broke(GroupSkip, "%s of group %s was handed out offset %d of %v, want %d", who, k.group, r.Offset, k.tp, *next)
		case r.Offset > *next && !trimmed:
			h.leapt(GroupSkip, leap{who + " of group " + k.group, k.tp, record.ReadCommitted, *next, r.Offset})
		}
		h.showed(who, k.tp, r.Offset, v)
		if *next != record.NoOffset {
			*next = r.Offset + 1
		}
		h.place(who, k.tp, r.Offset, v).read = true
		g := h.group(k)
		for int(r.Offset) >= len(g.polled) {
			g.polled = append(g.polled, false)
		}
		g.polled[r.Offset] = true
		h.counts.Polled++
	}
}

// commits notes that a member is about to commit; committed, that it was
// acknowledged.
func (h *history) commits(k groupPart, next record.Offset) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.group(k)
	g.asked = max(g.asked, next)
}

func (h *history) committed(k groupPart, next record.Offset) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.group(k)
	g.stored = max(g.stored, next)
	h.counts.Commits++
	h.move()
}

// stored returns what a question that is about to be asked must be answered
// with at least; answered compares.
func (h *history) stored(k groupPart) record.Offset {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.group(k).stored
}

func (h *history) answered(k groupPart, floor, o record.Offset) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o = max(o, 0) // none committed
	if o < floor {
		h.broke(CommitBack, "group %s is at offset %d of %v, but %d was acknowledged, or told, before it was asked for", k.group, o, k.tp, floor)
	}
	if o > h.group(k).asked {
		h.broke(GroupSkip, "group %s is at offset %d of %v, but nobody has committed more than %d", k.group, o, k.tp, h.group(k).asked)
	}
	// A commit whose ack was lost is one all the same, once somebody has seen it.
	h.group(k).stored = max(h.group(k).stored, o)
	h.move()
}

// finalGroup checks that all below what is committed was handed out.
func (h *history) finalGroup(k groupPart) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.group(k)
	for o := h.part(k.tp).start; o < g.stored; o++ {
		if (int(o) >= len(g.polled) || !g.polled[o]) && h.part(k.tp).shows(o, record.ReadCommitted) {
			h.broke(GroupSkip, "group %s has committed %d of %v, but nobody was handed out offset %d", k.group, g.stored, k.tp, o)
			return
		}
	}
}
