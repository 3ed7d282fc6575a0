package log

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/segment"
)

// RecoveryReport says what Open found and did.
type RecoveryReport struct {
	Segments       int      // opened
	ScannedBytes   int64    // read and checked, because no index spoke of them
	RewrittenBytes int64    // of those, not known to be on disk: written once more, and synced
	CutBytes       int64    // torn or zero tail, cut off
	RebuiltIndexes []string // files that were missing or wrong
	MendedHeaders  []string // segment files whose header was damaged, and written again
	SetAside       []string // files of which nothing could be told, now or before, under their new names
	Removed        []string // files left over from an interrupted operation
	RemovedBytes   int64    // in them
	// Damage is what recovery met that no crash explains: holes, from which reads are a
	// *CorruptError until Fill. There may be more where recovery need not look: see Verify.
	Damage   []*CorruptError
	Duration time.Duration
}

var errReadAll = errors.New("all is to be read")

// recover opens what is in the directory. What it opens is in l.tail, also
// after an error.
func (l *Log) recover(ctx context.Context) error {
	if err := l.cfg.FS.MkdirAll(l.dir); err != nil {
		return err
	}
	names, err := l.tidy()
	if err != nil {
		return err
	}
	segs, err := l.openSegments(names)
	if err != nil {
		return err
	}
	if segs == 0 {
		h := l.header()
		h.BaseEntry = 1
		l.tail.active.ext = h.Empty()
		l.tail.active.seg, err = l.create(h)
		l.report.Segments = 1
		return err
	}
	l.report.Segments = segs
	m, sizes, err := l.recoveryMeter()
	if err != nil {
		return err
	}
	for i := range l.tail.sealed {
		if err := l.recoverSealed(ctx, &l.tail.sealed[i], sizes[i], l.tail.at(i+1).seg.Header, m.read); err != nil {
			return err
		}
		m.segment(sizes[i])
	}
	if err := l.recoverActive(ctx, &l.tail.active, sizes[segs-1], m.read); err != nil {
		return err
	}
	m.segment(sizes[segs-1])
	m.end()
	// Who made or removed files may have been stopped before it came to this.
	return l.cfg.FS.SyncDir(l.dir)
}

// recoveryMeter returns the sizes of the segment files too.
func (l *Log) recoveryMeter() (*meter, []int64, error) {
	m := newMeter(l.cfg.Progress)
	var sizes []int64
	for p := range l.tail.parts {
		size, err := p.seg.Size()
		if err != nil {
			return nil, nil, err
		}
		sizes = append(sizes, size)
		m.TotalSegments++
		m.TotalBytes += size
	}
	return m, sizes, nil
}

// tidy finishes an interrupted reset, removes what nothing needs and returns the
// names of the segment files in order.
func (l *Log) tidy() ([]string, error) {
	names, err := l.cfg.FS.List(l.dir)
	if err != nil {
		return nil, err
	}
	var logs []string
	has := make(map[string]bool, len(names))
	for _, name := range names {
		has[name] = true
	}
	if has[resetName] {
		if name, err := l.resumeReset(); name != "" || err != nil {
			return []string{name}, err
		}
	}
	for _, name := range names {
		base, isLog := strings.CutSuffix(name, segment.LogSuffix)
		base = strings.TrimSuffix(strings.TrimSuffix(base, segment.IndexSuffix), segment.TimeIndexSuffix)
		orphan := isSegmentFile(name) && !has[base+segment.LogSuffix]
		final, isTmp := strings.CutSuffix(name, ".tmp")
		switch {
		case orphan, isTmp && (isSegmentFile(final) || final == resetName):
			if err := l.remove(name); err != nil {
				return nil, err
			}
		case isLog && isSegmentFile(name):
			logs = append(logs, name)
		case strings.HasSuffix(name, damagedSuffix):
			l.report.SetAside = append(l.report.SetAside, name)
		}
	}
	return logs, nil
}

// resumeReset returns "" if the mark says nothing that can be understood: then
// what is there is taken for the log.
func (l *Log) resumeReset() (string, error) {
	file := path.Join(l.dir, resetName)
	b, err := l.cfg.FS.ReadFile(file)
	if err != nil {
		return "", err
	}
	h, err := segment.DecodeHeader(b)
	if err != nil && !errors.Is(err, segment.ErrVersion) {
		known := segment.Header{TopicID: l.cfg.TopicID, Partition: l.cfg.Partition, BaseOffset: record.NoOffset}
		var ok bool
		if h, ok = segment.MendHeader(b, known, func(uint32) bool { return true }); !ok {
			return "", l.setAside(resetName, err.Error())
		}
		err = vfs.WriteFile(l.cfg.FS, file, h.Encode())
	}
	if err != nil {
		return "", err
	}
	if err := l.owns(file, h); err != nil {
		return "", err
	}
	seg, err := l.finishReset(h)
	if err != nil {
		return "", err
	}
	l.cfg.Logger.Warn("interrupted reset finished", "dir", l.dir)
	l.report.Removed = append(l.report.Removed, resetName)
	return path.Base(seg.File()), seg.Release()
}

// openSegments opens the files into l.tail and returns how many there are. A
// last one without header was being made when the crash came. Files of which
// nothing can be told are set aside.
func (l *Log) openSegments(names []string) (int, error) {
	var opened []part
	var lost *CorruptError // the first file, until it is known what comes behind
	defer func() {
		if n := len(opened); n > 0 {
			l.tail.sealed, l.tail.active = opened[:n-1:n-1], opened[n-1]
		}
	}()
	for i, name := range names {
		// One that was being made when the crash came: behind others, or the very first.
		torn := i == len(names)-1 && (i > 0 || name == path.Base(segment.Header{}.Name("")+segment.LogSuffix))
		seg, err := l.openSegment(name, torn)
		if c := (*CorruptError)(nil); errors.As(err, &c) {
			if err := l.setAside(name, c.Reason); err != nil {
				return 0, err
			}
			if i == 0 {
				lost = c
			}
			continue
		}
		if err != nil {
			return 0, err
		}
		if seg == nil {
			break
		}
		if lost != nil { // an empty one in its place, so that who reads there is told
			h := seg.Header
			h.BaseOffset, h.PrevTerm = lost.From, 0
			h.BaseEntry -= min(h.BaseEntry-1, record.EntryNumber(seg.BaseOffset-lost.From)) // a guess
			first, err := l.create(h)
			if err != nil {
				return 0, errors.Join(err, seg.Release())
			}
			opened, lost = append(opened, part{seg: first}), nil
		}
		opened = append(opened, part{seg: seg})
		if err := l.owns(seg.File(), seg.Header); err != nil {
			return 0, err
		}
	}
	if lost != nil && len(opened) == 0 { // go on where it began: no offset is given out twice that may have been read
		h := l.header()
		h.BaseOffset, h.BaseEntry = lost.From, 1
		seg, err := l.create(h)
		if err != nil {
			return 0, err
		}
		opened = append(opened, part{seg: seg})
	}
	return len(opened), nil
}

// openSegment opens a file; nil if it has no header, and that may be a crash's
// doing. A *CorruptError says that nothing can be told from it.
func (l *Log) openSegment(name string, torn bool) (*segment.Segment, error) {
	seg, err := segment.Open(l.cfg.FS, l.dir, name, l.cfg.IndexBytes)
	if errors.Is(err, segment.ErrNoHeader) {
		if torn {
			return nil, l.remove(name)
		}
		err = &CorruptError{File: path.Join(l.dir, name), Reason: "its header is missing"}
	}
	if !errors.Is(err, record.ErrCorrupt) {
		return seg, err
	}
	known := segment.Header{TopicID: l.cfg.TopicID, Partition: l.cfg.Partition, BaseOffset: baseOffset(name)}
	seg, ok, mendErr := segment.Mend(l.cfg.FS, l.dir, name, known, l.cfg.IndexBytes)
	if mendErr != nil {
		return nil, mendErr
	}
	if ok {
		l.cfg.Logger.Warn("damaged header written again", "segment", seg.File(), "reason", err)
		l.report.MendedHeaders = append(l.report.MendedHeaders, name)
		return seg, nil
	}
	c := (*CorruptError)(nil)
	errors.As(err, &c)
	c.From, c.To = known.BaseOffset, known.BaseOffset
	return nil, c
}

// damagedSuffix ends the name of a file that was set aside.
const damagedSuffix = ".damaged"

// setAside renames a file of which nothing can be told, so that it is not in the
// way and yet there for who knows how to save something.
func (l *Log) setAside(name, reason string) error {
	to := name + damagedSuffix
	for slices.Contains(l.report.SetAside, to) {
		to += damagedSuffix
	}
	if err := l.cfg.FS.Rename(path.Join(l.dir, name), path.Join(l.dir, to)); err != nil {
		return err
	}
	l.cfg.Logger.Error("damaged file set aside", "file", path.Join(l.dir, to), "reason", reason)
	l.report.SetAside = append(l.report.SetAside, to)
	c := &CorruptError{File: path.Join(l.dir, to), Reason: reason}
	if isSegmentFile(name) {
		c.From = baseOffset(name)
		c.To = c.From // and on, as far as nobody knows
	}
	l.report.Damage = append(l.report.Damage, c)
	return l.cfg.FS.SyncDir(l.dir)
}

// baseOffset returns the offset that a segment file is named after.
func baseOffset(name string) record.Offset {
	n, err := strconv.ParseInt(name[:20], 10, 64)
	if err != nil { // beyond 63 bits: no name of ours
		return 0
	}
	return record.Offset(n)
}

// owns refuses a file of another partition.
func (l *Log) owns(file string, h segment.Header) error {
	if h.TopicID == l.cfg.TopicID && h.Partition == l.cfg.Partition {
		return nil
	}
	return fmt.Errorf("%w: %s belongs to partition %d of topic %v, not to partition %d of %v",
		record.ErrInvalid, file, h.Partition, h.TopicID, l.cfg.Partition, l.cfg.TopicID)
}

// recoverSealed finds out what a sealed segment holds. All of it was on disk
// before the next one was made, so whatever is wrong is damage.
func (l *Log) recoverSealed(ctx context.Context, p *part, size int64, next segment.Header, read func(int64)) error {
	meets := func(x segment.Extent) bool {
		return x.NextOffset == next.BaseOffset && x.NextEntry == next.BaseEntry && x.LastTerm == next.PrevTerm
	}
	x, why := p.seg.LoadIndex(size)
	if why == nil && l.cfg.ReadAll {
		why = errReadAll
	}
	if why == nil && meets(x) {
		p.ext = x
		return nil
	}
	found := len(l.report.Damage)
	end := segment.Extent{Size: size, NextOffset: next.BaseOffset, NextEntry: next.BaseEntry, LastTerm: next.PrevTerm}
	x = p.seg.Empty()
	for whole := false; !whole; {
		var reason string
		var err error
		if x, reason, err = p.seg.ScanTelling(ctx, x, size, read); err != nil {
			return err
		}
		if whole = reason == "" && meets(x); whole {
			break
		}
		if x.NextEntry > next.BaseEntry || x.NextOffset > next.BaseOffset || x.LastTerm > next.PrevTerm {
			return p.seg.Hole(x, end, "the next segment does not continue it") // nor is it behind: these are two logs
		}
		if reason == "" {
			reason = "it ends before the next segment begins"
		}
		if x, err = l.over(ctx, p.seg, x, end, reason); err != nil {
			return err
		}
		whole = x.NextEntry == end.NextEntry
	}
	l.report.ScannedBytes += x.Size - segment.HeaderSize
	p.ext = x
	if len(l.report.Damage) > found {
		return nil // without an index it is looked at again, until it is filled
	}
	name := path.Base(p.seg.Name("")) + segment.IndexSuffix
	l.report.RebuiltIndexes = append(l.report.RebuiltIndexes, name)
	l.cfg.Logger.Warn("index built again", "dir", l.dir, "file", name, "reason", why)
	l.savedIndex(p.seg, p.seg.SaveIndex(x)) // a full disk must not keep the log from opening
	l.savedIndex(p.seg, p.seg.SaveTimes(x))
	return nil
}

// over goes over the damage behind x and reports it.
func (l *Log) over(ctx context.Context, seg *segment.Segment, x, limit segment.Extent, reason string) (segment.Extent, error) {
	y, err := seg.Over(ctx, x, limit)
	if err != nil {
		return x, err
	}
	c := seg.Hole(x, y, reason)
	l.report.Damage = append(l.report.Damage, c)
	l.cfg.Logger.Error("damage found; the log opens with a hole", "error", c)
	return y, nil
}

// recoverActive finds out what the last segment holds, cuts off what a crash
// has torn, and makes the rest durable.
func (l *Log) recoverActive(ctx context.Context, p *part, size int64, read func(int64)) (err error) {
	known, why := p.seg.LoadIndex(size)
	durable := known // the index says that this much was on disk
	if why == nil && l.cfg.ReadAll {
		why = errReadAll
	}
	if why == nil {
		fits, err := p.seg.Fits(known)
		if err != nil {
			return err
		}
		if !fits {
			why = errors.New("index does not fit the end of the segment")
		}
	}
	if why != nil {
		known = p.seg.Empty()
	} else if known, err = l.withTimes(ctx, p.seg, known); err != nil {
		return err
	}
	x, from := known, known // what lies between them has no hole
	var reason string
	holes := false
	for {
		if x, reason, err = p.seg.ScanTelling(ctx, x, size, read); err != nil {
			return err
		}
		if reason == "" && x.Size >= durable.Size {
			break
		}
		limit := durable
		if reason != "" {
			_, damaged, err := p.seg.Damaged(ctx, x, size)
			if err != nil {
				return err
			}
			if damaged {
				limit = segment.Unbounded(size)
			}
		} else {
			reason = "it ends before what its index speaks of"
		}
		if limit.Size <= x.Size { // torn
			break
		}
		if why != nil || x.Size > known.Size {
			if err := p.seg.Rewrite(ctx, from, x); err != nil {
				return err
			}
		}
		if x, err = l.over(ctx, p.seg, x, limit, reason); err != nil {
			return err
		}
		from, holes = x, true
	}
	l.report.ScannedBytes += x.Size - known.Size
	p.ext = x
	if why != nil && !errors.Is(why, fs.ErrNotExist) {
		l.cfg.Logger.Warn("index not used", "segment", p.seg.File(), "reason", why)
		l.report.RebuiltIndexes = append(l.report.RebuiltIndexes, path.Base(p.seg.Name(""))+segment.IndexSuffix)
	}
	switch {
	case why != nil && holes && durable.Size > 0: // it may be all that proves that they are holes
		err = p.seg.DropTimes()
	case why != nil:
		err = p.seg.DropIndex()
	case p.seg.Timed() > x.Size:
		err = p.seg.DropTimes()
	}
	if err != nil {
		return err
	}
	unknown := why != nil || x.Size > known.Size // else the index says that it is on disk
	if unknown {
		if err := p.seg.Rewrite(ctx, from, x); err != nil {
			return err
		}
		l.report.RewrittenBytes = x.Size - known.Size
	}
	if reason != "" {
		l.report.CutBytes = size - x.Size
		l.cfg.Logger.Warn("torn tail cut off", "segment", p.seg.File(), "position", x.Size, "bytes", size-x.Size, "reason", reason)
		return p.seg.Cut(x) // which syncs
	}
	if unknown {
		return p.seg.Sync()
	}
	return nil
}

// remove deletes a file of the log that holds nothing. The directory is synced
// before Open returns.
func (l *Log) remove(name string) error {
	b, err := l.cfg.FS.ReadFile(path.Join(l.dir, name))
	if err != nil {
		return err
	}
	if err := l.cfg.FS.Remove(path.Join(l.dir, name)); err != nil {
		return err
	}
	l.report.Removed = append(l.report.Removed, name)
	l.report.RemovedBytes += int64(len(b))
	return nil
}

// isSegmentFile tells the log's own files from others in the directory.
func isSegmentFile(name string) bool {
	for _, suffix := range []string{segment.LogSuffix, segment.IndexSuffix, segment.TimeIndexSuffix} {
		if base, ok := strings.CutSuffix(name, suffix); ok {
			return len(base) == 20 && strings.Trim(base, "0123456789") == ""
		}
	}
	return false
}
