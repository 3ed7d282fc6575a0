package log

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

// resetName is the file that says that all segments are to go. It is the one
// segment, without entries, that will be there then; its rename from a temporary
// name is the moment from which the log is reset, crash or not.
const resetName = "reset"

// Reset throws everything away, durably; the log goes on without entries, at entry next
// and offset, the entry before having prevTerm. After a crash there is the old
// log or the new one. After an error there is the old one, or the log takes no
// more writes.
func (l *Log) Reset(next record.EntryNumber, prevTerm uint64, offset record.Offset) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	if next < 1 || offset < 0 {
		return fmt.Errorf("%w: reset to entry %d, offset %d", record.ErrInvalid, next, offset)
	}
	h := l.header()
	h.BaseOffset, h.BaseEntry, h.PrevTerm = offset, next, prevTerm
	mark := path.Join(l.dir, resetName)
	if err := vfs.WriteFile(l.cfg.FS, mark, h.Encode()); err != nil {
		return fmt.Errorf("reset: %w", l.dropMark(mark, err))
	}
	seg, err := l.finishReset(h)
	if err != nil {
		return fmt.Errorf("reset: %w", l.fail(mark, err))
	}
	old := l.tail
	l.tail = view{active: part{seg: seg, ext: h.Empty()}, cuts: old.cuts + 1}
	l.durable.Store(uint64(next))
	l.publish()
	var errs []error
	for p := range old.parts {
		errs = append(errs, p.seg.Release())
	}
	return errors.Join(errs...)
}

// dropMark keeps the old log when the mark could not be written.
func (l *Log) dropMark(mark string, cause error) error {
	err := l.cfg.FS.Remove(mark)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = l.cfg.FS.SyncDir(l.dir)
	}
	if err != nil {
		return l.fail(mark, fmt.Errorf("%w; and removing it: %w", cause, err))
	}
	return cause
}

// finishReset does what the mark says, from wherever it was interrupted.
func (l *Log) finishReset(h segment.Header) (*segment.Segment, error) {
	names, err := l.cfg.FS.List(l.dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if isSegmentFile(name) {
			if err := l.cfg.FS.Remove(path.Join(l.dir, name)); err != nil {
				return nil, err
			}
		}
	}
	if err := l.cfg.FS.SyncDir(l.dir); err != nil {
		return nil, err
	}
	name := h.Name(l.dir) + segment.LogSuffix
	if err := l.cfg.FS.Rename(path.Join(l.dir, resetName), name); err != nil {
		return nil, err
	}
	if err := l.cfg.FS.SyncDir(l.dir); err != nil {
		return nil, err
	}
	return segment.Open(l.cfg.FS, l.dir, path.Base(name), l.cfg.IndexBytes)
}
