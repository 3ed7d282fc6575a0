package torture

import (
	"slices"

	"github.com/quorumlog/quorumlog/record"
)

// txState is what is known of how a transaction ends.
type txState int8

const (
	txOpen txState = iota
	txEnding
	txCommitted
	txAborted // or about to be: nobody has asked for a commit, and nobody will
	txUnknown
)

// transaction is what is known of one.
type transaction struct {
	name   string
	state  txState
	values []sentValue
	seen   string // who has read one of its values with read committed
}

// sentValue is a value and the partition it was sent to.
type sentValue struct {
	tp record.TopicPartition
	value
}

// begins notes a transaction that is open from now on.
func (h *history) begins(name string) *transaction {
	t := &transaction{name: name}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.transactions = append(h.transactions, t)
	h.counts.Transactions++
	return t
}

// sendIn is send within a transaction.
func (h *history) sendIn(t *transaction, writer int32, tp record.TopicPartition) value {
	v := h.send(writer, tp)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.part(tp).owners[v] = t
	t.values = append(t.values, sentValue{tp, v})
	return v
}

// ends notes that a commit is about to be asked for.
func (h *history) ends(t *transaction) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.state = txEnding
}

// ended notes how a transaction has ended, as far as its owner was told.
func (h *history) ended(t *transaction, s txState) {
	for _, v := range t.values {
		h.settle(v.tp, v.value, map[txState]outcome{txCommitted: acked, txAborted: aborted, txUnknown: unknown}[s])
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t.state = s
	switch {
	case s == txCommitted:
		h.counts.Committed++
	case s == txAborted && t.seen != "":
		h.broke(AbortedRead, "%s has read of transaction %s, which was aborted", t.seen, t.name)
	}
}

// showed notes that a reader of what is committed was shown v. h.mu is held.
func (h *history) showed(who string, tp record.TopicPartition, o record.Offset, v value) {
	t := h.part(tp).owners[v]
	if t == nil {
		return
	}
	switch t.state {
	case txOpen:
		h.broke(OpenRead, "%s was shown %v at offset %d of %v, but transaction %s is open", who, v, o, tp, t.name)
	case txAborted:
		h.broke(AbortedRead, "%s was shown %v at offset %d of %v, but transaction %s was aborted", who, v, o, tp, t.name)
	}
	t.seen = who
}

// finalTransactions checks that each transaction is there as a whole or not at all.
// visible says what a reader of what is committed was shown at the end.
func (h *history) finalTransactions(who string, visible map[sentValue]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.transactions {
		missing := slices.IndexFunc(t.values, func(v sentValue) bool { return !visible[v] })
		first := slices.IndexFunc(t.values, func(v sentValue) bool { return visible[v] })
		switch {
		case t.state == txOpen || t.state == txEnding:
			h.broke(Silent, "transaction %s has got no result", t.name)
		case first >= 0 && t.state == txAborted:
			h.broke(AbortedRead, "%s shows %v of %v at the end, but transaction %s was aborted", who, t.values[first].value, t.values[first].tp, t.name)
		case first >= 0 && missing >= 0:
			h.broke(Torn, "%s shows %v of %v at the end, but not %v of %v of the same transaction %s", who,
				t.values[first].value, t.values[first].tp, t.values[missing].value, t.values[missing].tp, t.name)
		case missing >= 0 && t.state == txCommitted:
			h.broke(Lost, "transaction %s was committed, and %s shows nothing of it at the end", t.name, who)
		case missing >= 0 && t.seen != "":
			h.broke(Vanished, "%s has read of transaction %s, and %s shows nothing of it at the end", t.seen, t.name, who)
		}
	}
}

// leap is a reader that went from one offset to another without a record between:
// there must be none that it should have been shown.
type leap struct {
	who      string
	tp       record.TopicPartition
	iso      record.Isolation
	from, to record.Offset
}

// leapt notes a leap. Where nothing is left out of what is shown, it is one record
// too far. h.mu is held.
func (h *history) leapt(k Kind, l leap) {
	if topicOf(l.tp.Topic).transactions {
		h.leaps = append(h.leaps, l)
		return
	}
	h.broke(k, "%s got offset %d of %v, want %d", l.who, l.to, l.tp, l.from)
}

// finalLeaps looks at all leaps, when it is known what is where.
func (h *history) finalLeaps() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.leaps {
		for o := l.from; o < l.to; o++ {
			if h.part(l.tp).shows(o, l.iso) {
				h.broke(Skipped, "%s went from offset %d to %d of %v, but there is %v at %d", l.who, l.from, l.to, l.tp, h.part(l.tp).at[o].value, o)
				break
			}
		}
	}
}

// shows reports whether a reader is shown a record at offset o, by what was there
// at the end.
func (p *part) shows(o record.Offset, iso record.Isolation) bool {
	if int(o) >= len(p.at) {
		return false
	}
	if iso == record.ReadUncommitted {
		return p.at[o].there
	}
	return p.at[o].committed
}

// lastShown returns the offset behind the last record that a reader is shown.
func (h *history) lastShown(tp record.TopicPartition, iso record.Isolation) record.Offset {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.part(tp)
	for o := record.Offset(len(p.at)); o > 0; o-- {
		if p.shows(o-1, iso) {
			return o
		}
	}
	return 0
}
