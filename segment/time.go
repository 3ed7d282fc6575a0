package segment

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"

	"github.com/quorumlog/quorumlog/index"
	"github.com/quorumlog/quorumlog/internal/vfs"
	"github.com/quorumlog/quorumlog/record"
)

// timeRead is what FindTime reads at a time: what mostly lies between two slots
// of the time index, with some room.
const timeRead = 64 << 10

// FindTime returns the offset of the first record in [from, bound) whose time, ms
// since 1970, is t or later; false if x has none. times is that of x. Control
// batches have no records. Only batches that may matter are read, and what is read
// is checked: a *CorruptError if one is damaged, and what a record.Iterator says
// of one that cannot be decoded.
//
// A batch whose header gives an earlier max timestamp than its records have is
// passed over; one that gives a later one is looked through for nothing.
func (s *Segment) FindTime(x Extent, times index.Times, t int64, from, bound record.Offset) (record.Offset, bool, error) {
	from, bound = max(from, times.Below(t)), min(bound, x.NextOffset)
	if times.Latest() < t || from >= bound {
		return record.NoOffset, false, nil
	}
	at, err := s.FindOffset(x, from)
	for err == nil && at.Offset < bound {
		var batches []record.Batch
		if batches, at, err = s.Read(x, at, from, x.NextOffset, timeRead); len(batches) == 0 {
			break
		}
		for _, b := range batches {
			if b.IsControl() || b.MaxTimestamp() < t {
				continue
			}
			offset, ok, err := firstInTime(b, t, from)
			if err != nil {
				return record.NoOffset, false, fmt.Errorf("%s: %w", s.File(), err)
			}
			if ok && offset < bound {
				return offset, true, nil
			}
		}
	}
	return record.NoOffset, false, err
}

// firstInTime returns the offset of the first record in b from from on that has time t or later.
func firstInTime(b record.Batch, t int64, from record.Offset) (record.Offset, bool, error) {
	var it record.Iterator
	if err := it.Reset(b); err != nil {
		return record.NoOffset, false, err
	}
	for r := (record.Record{}); it.Next(&r); {
		if r.Offset >= from && r.Time.UnixMilli() >= t {
			return r.Offset, true, nil
		}
	}
	return record.NoOffset, false, it.Err()
}

// Times returns the time index of x: the one it brings, or that of the
// .timeindex, or, if that is missing or wrong, one for which all of x is read.
// When ctx ends that, the next call goes on from there.
func (s *Segment) Times(ctx context.Context, x Extent) (index.Times, error) {
	if x.Times.Known() {
		return x.Times, nil
	}
	k := s.times.Load()
	if k == nil || k.size != x.Size {
		k = &knownTimes{size: x.Size, read: s.Empty()}
		if times, err := s.LoadTimes(x); err == nil {
			k.times, k.saved = times, true
		}
	}
	if !k.times.Known() {
		var err error
		if k, err = s.build(ctx, *k); err != nil {
			s.times.Store(k)
			return index.Times{}, err
		}
	}
	s.times.Store(k)
	return k.times, nil
}

// knownTimes is the time index of an extent that does not bring it. Once stored
// it is not changed.
type knownTimes struct {
	size  int64       // of the extent
	times index.Times // not known until all is read
	saved bool        // on disk, or not worth it
	read  Extent      // as far as was needed and ctx allowed
}

// build reads what is left. Where that is damaged, all is possible from there on.
func (s *Segment) build(ctx context.Context, k knownTimes) (*knownTimes, error) {
	read, reason, err := s.Scan(ctx, k.read, k.size)
	if err != nil {
		k.read = read
		return &k, err
	}
	k.read = Extent{}
	k.times = read.Times
	if reason != "" {
		k.times, k.saved = read.Times.Raise(math.MaxInt64), true
	}
	return &k, nil
}

// Unsaved returns x with the time index that Times has built for it, false if
// it has not, or if that is on disk.
func (s *Segment) Unsaved(x Extent) (Extent, bool) {
	k := s.times.Load()
	if x.Times.Known() || k == nil || k.size != x.Size || !k.times.Known() || k.saved || s.timed == x.Size {
		return x, false
	}
	x.Times = k.times
	return x, true
}

// timesBefore returns the time index of y, which is x with its end cut off.
func (s *Segment) timesBefore(x, y Extent) (index.Times, error) {
	whole, err := s.Times(context.Background(), x)
	if err != nil {
		return index.Times{}, err
	}
	times, from := whole.Cut(y.NextOffset)
	if from >= y.NextOffset {
		return times, nil
	}
	at, err := s.FindOffset(y, from)
	for err == nil {
		var batches []record.Batch
		if batches, at, err = s.Read(y, at, from, y.NextOffset, timeRead); len(batches) == 0 {
			break
		}
		for _, b := range batches {
			times = times.Raise((&Entry{Kind: KindBatch, Data: b}).latest())
		}
	}
	if errors.Is(err, record.ErrCorrupt) { // no reason not to cut
		return times.Raise(whole.Latest()), nil
	}
	return times, err
}

// SaveTimes writes the .timeindex for x, as SaveIndex does the .index.
func (s *Segment) SaveTimes(x Extent) error {
	s.timed = max(s.timed, x.Size)
	return vfs.WriteFile(s.fsys, s.path+TimeIndexSuffix, x.Times.Encode(s.summary(x)))
}

// OpenTimes returns x with its .timeindex, for the writer to go on from. An error
// says why that is not possible.
func (s *Segment) OpenTimes(x Extent) (Extent, error) {
	times, err := s.LoadTimes(x)
	switch {
	case err == nil:
		s.timed = x.Size
	case !errors.Is(err, fs.ErrNotExist):
		s.timed = math.MaxInt64 // whatever it speaks of, it must go
	}
	x.Times = times
	return x, err
}

// Timed returns how many bytes of the file the .timeindex speaks of as far as
// the writer knows, 0 without one.
func (s *Segment) Timed() int64 { return s.timed }

// LoadTimes returns the .timeindex if it is that of x. An error says why it is not.
func (s *Segment) LoadTimes(x Extent) (index.Times, error) {
	b, err := s.fsys.ReadFile(s.path + TimeIndexSuffix)
	if err != nil {
		return index.Times{}, err
	}
	times, sum, err := index.DecodeTimes(b)
	if err == nil && sum != s.summary(x) {
		err = errors.New("time index of another segment, or of another end of it")
	}
	return times, err
}
