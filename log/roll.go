package log

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/quorumlog/quorumlog/segment"
)

// roll seals the active segment and begins the next one.
func (l *Log) roll() error {
	if err := l.seal(); err != nil {
		return err
	}
	h := l.tail.active.seg.Behind(l.tail.active.ext, l.cfg.Now().UnixMilli())
	seg, err := l.create(h)
	if err != nil {
		return err
	}
	l.tail.sealed = append(slices.Clip(l.tail.sealed), l.tail.active) // readers have the old one
	l.tail.active = part{seg: seg, ext: h.Empty()}
	return nil
}

// header begins the header of a segment that has none before it.
func (l *Log) header() segment.Header {
	now := l.cfg.Now().UnixMilli()
	return segment.Header{TopicID: l.cfg.TopicID, Partition: l.cfg.Partition, Created: now, Latest: now}
}

// seal makes the active segment durable and writes its indexes.
func (l *Log) seal() error {
	if err := l.sync(); err != nil {
		return err
	}
	l.saveIndexes()
	return nil
}

// saveIndexes writes those of the active segment, and those that readers have
// built. Indexes are derived: without them Open, or a reader, is slower, so a
// failure is not worth an error.
func (l *Log) saveIndexes() {
	if p := l.tail.active; p.ext.NextEntry > p.seg.BaseEntry {
		if p.seg.Indexed() != p.ext.Size {
			l.savedIndex(p.seg, p.seg.SaveIndex(p.ext))
		}
		if p.seg.Timed() != p.ext.Size {
			l.savedIndex(p.seg, p.seg.SaveTimes(p.ext))
		}
	}
	for _, p := range l.tail.sealed {
		if x, ok := p.seg.Unsaved(p.ext); ok {
			l.savedIndex(p.seg, p.seg.SaveTimes(x))
		}
	}
}

func (l *Log) savedIndex(seg *segment.Segment, err error) {
	if err != nil {
		l.cfg.Logger.Warn("index not written; it will be built again", "segment", seg.File(), "error", err)
	}
}

// create makes a segment file. If it cannot, no file is left that recovery
// could take for the end of the log.
func (l *Log) create(h segment.Header) (*segment.Segment, error) {
	seg, err := segment.Create(l.cfg.FS, l.dir, h, l.cfg.IndexBytes)
	if err == nil {
		return seg, nil
	}
	name := h.Name(l.dir) + segment.LogSuffix
	rmErr := l.cfg.FS.Remove(name)
	if rmErr == nil || errors.Is(rmErr, fs.ErrNotExist) {
		rmErr = l.cfg.FS.SyncDir(l.dir)
	}
	if rmErr != nil {
		return nil, l.fail(name, fmt.Errorf("%w; and removing it: %w", err, rmErr))
	}
	return nil, err
}
