package log

import (
	"errors"

	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

// errGone: a segment was removed between loading a view and reading from it.
var errGone = errors.New("segment is gone")

// Read returns whole batches, in order, from the one that holds from on, that
// end at or below bound: of about maxBytes, but at least one if there is one. It
// stops at the end of a segment, so fewer than there are is no sign of the end.
// They are checked, and are the caller's: one fresh buffer. None when there is
// nothing from from on yet; *record.OffsetRangeError (without the topic's name) below
// Start or above End, *CorruptError if the batch at from is damaged.
func (l *Log) Read(from, bound record.Offset, maxBytes int) (batches []record.Batch, err error) {
	err = l.look(func(v *view) error {
		batches = nil
		b := v.bounds()
		if from < b.Start || from > b.End {
			return &record.OffsetRangeError{
				TopicPartition: record.TopicPartition{Partition: l.cfg.Partition},
				Offset:         from, Start: b.Start, End: b.End,
			}
		}
		if from >= min(bound, b.End) {
			return nil
		}
		p := v.offset(from)
		if !p.seg.Acquire() {
			return errGone
		}
		batches, err = l.readPart(p, v.cuts, from, bound, maxBytes)
		return errors.Join(err, p.seg.Release())
	})
	return batches, err
}

func (l *Log) readPart(p part, cuts uint64, from, bound record.Offset, maxBytes int) ([]record.Batch, error) {
	at, ok := l.places.offset(p.seg, cuts, from)
	if !ok {
		var err error
		if at, err = p.seg.FindOffset(p.ext, from); err != nil {
			return nil, err
		}
	}
	batches, next, err := p.seg.Read(p.ext, at, from, bound, maxBytes)
	if err == nil {
		l.places.put(p.seg, cuts, next)
	}
	return batches, err
}

// ReadEntry returns entry n. Its Data is the caller's. *EntryRangeError outside
// [First, Next), *CorruptError if it is damaged.
func (l *Log) ReadEntry(n record.EntryNumber) (segment.Entry, error) { return l.readEntry(n, true) }

// ReadEntryHeader is ReadEntry without Data; it is not checked either. Entry.Next
// must not be called on it.
func (l *Log) ReadEntryHeader(n record.EntryNumber) (segment.Entry, error) {
	return l.readEntry(n, false)
}

func (l *Log) readEntry(n record.EntryNumber, withData bool) (e segment.Entry, err error) {
	err = l.look(func(v *view) error {
		e = segment.Entry{}
		if b := v.bounds(); n < b.First || n >= b.Next {
			return &EntryRangeError{Number: n, First: b.First, Next: b.Next}
		}
		p := v.entry(n)
		if !p.seg.Acquire() {
			return errGone
		}
		e, err = l.readEntryPart(p, v.cuts, n, withData)
		return errors.Join(err, p.seg.Release())
	})
	return e, err
}

func (l *Log) readEntryPart(p part, cuts uint64, n record.EntryNumber, withData bool) (e segment.Entry, err error) {
	at, ok := l.places.entry(p.seg, cuts, n)
	if !ok {
		if at, err = p.seg.FindEntry(p.ext, n); err != nil {
			return segment.Entry{}, err
		}
	}
	read := p.seg.ReadEntryHeader
	if withData {
		read = p.seg.ReadEntry
	}
	e, next, err := read(p.ext, at)
	if err == nil {
		l.places.put(p.seg, cuts, next)
	}
	return e, err
}

// look runs read on the newest view, and again when the log was cut meanwhile:
// then the bytes that were read may be of no view at all.
func (l *Log) look(read func(*view) error) error {
	for {
		if l.closed.Load() {
			return record.ErrClosed
		}
		v := l.view.Load()
		err := read(v)
		if err != errGone && l.view.Load().cuts == v.cuts {
			return err
		}
	}
}
