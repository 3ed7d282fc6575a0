package log

import (
	"fmt"

	"github.com/quorumlog/quorumlog/record"
)

// TrimTo removes the sealed segments that lie wholly below offset, oldest first
// and durably, and returns the new start offset. The active segment stays. After
// an error the start is where it got to; the call may be made again.
func (l *Log) TrimTo(offset record.Offset) (record.Offset, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return l.tail.bounds().Start, err
	}
	for len(l.tail.sealed) > 0 && l.tail.sealed[0].ext.NextOffset <= offset {
		seg := l.tail.sealed[0].seg
		err := seg.Remove()
		if err == nil {
			l.tail.sealed = l.tail.sealed[1:]
			l.publish()
			err = seg.Release()
		}
		if err != nil {
			return l.tail.bounds().Start, fmt.Errorf("trim to offset %d: %w", offset, err)
		}
	}
	return l.tail.bounds().Start, nil
}

// FirstAfterTrim returns the first entry that TrimTo(offset) would leave.
func (l *Log) FirstAfterTrim(offset record.Offset) record.EntryNumber {
	v := l.view.Load()
	i := 0
	for i < len(v.sealed) && v.sealed[i].ext.NextOffset <= offset {
		i++
	}
	return v.at(i).seg.BaseEntry
}
