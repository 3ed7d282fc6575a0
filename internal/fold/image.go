package fold

import (
	"encoding/json"
	"fmt"

	"github.com/quorumlog/quorumlog/record"
)

// image is a state and how far it has come along the log.
type image struct {
	apply func(record.Record) error
	next  record.Offset // the first that is not folded yet
	// from is where the log may begin: what it says from there on is the whole state.
	// It is where the newest rewriting began that is complete, else where folding did.
	from  record.Offset
	bytes int64 // of the batches from there on
	limit int64 // as many are due to be rewritten; 0 for never
	floor int64 // the lowest limit
	// whole says that the state is all there is: it was folded from the first record
	// of all, or over a complete rewriting.
	whole bool
	grown chan<- struct{} // told when bytes reach the limit, and of a rewriting
}

// take folds what is not folded yet.
func (m *image) take(it *record.Iterator, batches []record.Batch) error {
	for _, b := range batches {
		if b.NextOffset() <= m.next {
			continue
		}
		if err := it.Reset(b); err != nil {
			return err
		}
		m.bytes += int64(len(b))
		var r record.Record
		for it.Next(&r) {
			if r.Offset < m.next { // the first batch may begin below
				continue
			}
			if err := m.takeRecord(r, len(b)); err != nil {
				return fmt.Errorf("record at offset %d: %w", r.Offset, err)
			}
			m.next = r.Offset + 1
		}
		if err := it.Err(); err != nil {
			return err
		}
		m.next = max(m.next, b.NextOffset())
	}
	if m.limit > 0 && m.bytes >= m.limit {
		m.nudge()
	}
	return nil
}

func (m *image) takeRecord(r record.Record, batch int) error {
	if m.floor == 0 || string(r.Key) != markKey {
		return m.apply(r)
	}
	var mark markValue
	if err := json.Unmarshal(r.Value, &mark); err != nil {
		return err
	}
	if mark.V != markVersion {
		return fmt.Errorf("version %d of the mark is not known, this build knows %d", mark.V, markVersion)
	}
	if mark.From < m.from { // begun by a leader of before
		return nil
	}
	m.from, m.bytes, m.whole = mark.From, mark.Bytes+int64(batch), true
	m.limit = max(m.floor, growth*m.bytes)
	m.nudge()
	return nil
}

func (m *image) nudge() {
	select {
	case m.grown <- struct{}{}:
	default:
	}
}

// A mark ends a rewriting. It says where that began and how many bytes of batches
// lie between there and the batch with the mark.
type markValue struct {
	V     int           `json:"v"`
	From  record.Offset `json:"from"`
	Bytes int64         `json:"bytes"`
}

const (
	markKey     = `{"k":"rewritten"}`
	markVersion = 1
)

func mark(from record.Offset, bytes int64) (record.Record, error) {
	value, err := json.Marshal(markValue{V: markVersion, From: from, Bytes: bytes})
	return record.Record{Key: []byte(markKey), Value: value}, err
}
