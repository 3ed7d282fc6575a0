package log

import (
	"context"
	"fmt"
	"slices"

	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

// Fill writes entries where the log has a hole, durably: what was damaged is
// there again. They are, from its first one on, the entries of a hole that
// Recovery or Verify has told of, as another replica has them; all of them
// at once, or as many as is convenient. Entries that cannot be those that were
// there are refused with record.ErrInvalid, for example because they are larger
// than the hole. After another error there is still a hole, and Fill may
// be called again, unless it is a *SyncError.
func (l *Log) Fill(entries []segment.Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	if len(entries) == 0 {
		return nil
	}
	if err := l.sync(); err != nil { // what lies before them must be on disk
		return err
	}
	first, next := entries[0].Number, entries[len(entries)-1].Number+1
	if b := l.tail.bounds(); first < b.First || next > b.Next {
		return &EntryRangeError{Number: first, First: b.First, Next: b.Next}
	}
	i := l.tail.searchEntry(first)
	p := l.tail.at(i)
	if err := l.fill(i, p, entries); err != nil {
		return fmt.Errorf("fill %s from entry %d: %w", p.seg.File(), first, err)
	}
	return nil
}

func (l *Log) fill(i int, p part, entries []segment.Entry) error {
	before, err := p.seg.Before(p.ext, entries[0].Number)
	if err != nil {
		return err
	}
	x, err := continues(before, entries)
	if err != nil {
		return err
	}
	hole, err := p.seg.Over(context.Background(), before, p.ext)
	if err != nil {
		return err
	}
	ends := i < len(l.tail.sealed) && hole.NextEntry == p.ext.NextEntry // the file may have been longer or shorter
	switch {
	case x.NextEntry > hole.NextEntry, x.NextOffset > hole.NextOffset, x.Size > hole.Size && !ends,
		x.NextEntry == hole.NextEntry && (x.NextOffset != hole.NextOffset || x.Size != hole.Size && !ends),
		x.NextEntry == p.ext.NextEntry && x.LastTerm != p.ext.LastTerm:
		return fmt.Errorf("%w: entries up to %d, offset %d and term %d, %d bytes, are not those of the hole up to %d, offset %d, %d bytes",
			record.ErrInvalid, x.NextEntry, x.NextOffset, x.LastTerm, x.Size-before.Size, hole.NextEntry, hole.NextOffset, hole.Size-before.Size)
	}
	if err := p.seg.Fill(&l.writer, before, entries); err != nil {
		return err
	}
	if x.Size > p.ext.Size { // of a sealed one
		p.ext.Size = x.Size
		l.tail.sealed = slices.Clone(l.tail.sealed) // readers have the old one
		l.tail.sealed[i] = p
		l.publish()
	}
	return nil
}

// continues returns the extent that entries make behind x.
func continues(x segment.Extent, entries []segment.Entry) (segment.Extent, error) {
	for i := range entries {
		e := &entries[i]
		if e.Number != x.NextEntry || e.Offset != x.NextOffset || e.Term < x.LastTerm {
			return x, fmt.Errorf("%w: entry %d with offset %d and term %d does not follow", record.ErrInvalid, e.Number, e.Offset, e.Term)
		}
		if err := e.Check(); err != nil {
			return x, err
		}
		x.Size, x.NextEntry, x.NextOffset, x.LastTerm = x.Size+e.Size(), e.Number+1, e.Next(), e.Term
	}
	return x, nil
}
