package log

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// Retention says what a log may forget. The zero value keeps everything for
// ever. The oldest segments go, whole ones, as long as one of the rules says so
// of the next, and it lies below a bound, such as the high watermark. The active
// segment stays.
//
// By MaxAge, a segment goes when a segment after it was created more than MaxAge
// ago: then all it holds was appended earlier than that. With ByRecordTime it
// goes when its latest record is older than MaxAge by the record's own time; one
// without records, or with a damaged one, follows the other rule or stays.
//
// By MaxBytes, a segment goes as long as the segments without it still have
// MaxBytes or more. So a log holds at least MaxBytes once it has grown to that,
// and at most one segment more beside the active one. Indexes do not count.
//
// # Clocks that are set
//
// A segment's date counts for nothing, and the date of the next one is taken,
// when it lies in the future, or before that of a segment before it. So nothing
// goes early after a clock was ahead, or far behind, for a while. One that was
// behind by less than the time since the last segment is not noticed: what was
// appended then goes early by as much. While the clock is behind now, all dates
// lie in the future, and nothing goes by age.
//
// When the clock is set ahead by more than an hour while the log is open, ages
// are counted on from before, as the monotonic clock counts, until the clock is
// set back or the log is opened again; the logger is told. Only if it had been
// behind the newest date in the log when that was opened is it believed at once. A
// machine that slept looks like one whose clock was set ahead: what it holds stays
// longer, by as long as it slept. A clock that was ahead already when the log was
// opened, or behind when the log was made, cannot be told from a right one.
type Retention struct {
	MaxAge       time.Duration // 0 means any age
	MaxBytes     int64         // of all segments; 0 means any size
	ByRecordTime bool          // MaxAge is of the records' own times
}

// Validate reports everything that is wrong with r.
func (r Retention) Validate() error {
	var errs []error
	if r.MaxAge < 0 {
		errs = append(errs, fmt.Errorf("retention age is %v, want a positive one, or 0 for any", r.MaxAge))
	}
	if r.MaxBytes < 0 {
		errs = append(errs, fmt.Errorf("retention size is %d bytes, want a positive one, or 0 for any", r.MaxBytes))
	}
	if r.ByRecordTime && r.MaxAge == 0 {
		errs = append(errs, errors.New("retention is by record time, but of any age"))
	}
	return errors.Join(errs...)
}

// Reason says by which rule a segment goes.
type Reason string

// Reasons. A segment that goes by both rules goes by age.
const (
	ReasonAge   Reason = "age"
	ReasonBytes Reason = "bytes"
)

// Plan is what retention would remove at one moment.
type Plan struct {
	Start    record.Offset `json:"start"`              // log start offset afterwards
	Segments []Expired     `json:"segments,omitempty"` // that go, oldest first
}

// Bytes returns how much goes.
func (p Plan) Bytes() (n int64) {
	for _, s := range p.Segments {
		n += s.Bytes
	}
	return n
}

// Expired is a segment that goes. It holds the offsets [Start, End).
type Expired struct {
	File   string        `json:"file"` // without its directory
	Start  record.Offset `json:"start"`
	End    record.Offset `json:"end"`
	Bytes  int64         `json:"bytes"`
	Reason Reason        `json:"reason"`
}

// PlanRetention says which segments may go, and why, and changes nothing: give
// the plan's Start to TrimTo. Nothing at or above bound goes. By record time it
// may have to read segments without a .timeindex, which ctx ends.
func (l *Log) PlanRetention(ctx context.Context, keep Retention, bound record.Offset) (plan Plan, err error) {
	if err := keep.Validate(); err != nil {
		return Plan{}, fmt.Errorf("%w: %w", record.ErrInvalid, err)
	}
	now := l.retentionTime(keep)
	err = l.look(func(v *view) error {
		var segs []held
		for p := range v.parts {
			segs = append(segs, held{
				Expired: Expired{File: path.Base(p.seg.File()), Start: p.seg.BaseOffset, End: p.ext.NextOffset, Bytes: p.ext.Size},
				created: p.seg.Created, latest: p.seg.Latest,
			})
		}
		plan, err = keep.plan(segs, now.UnixMilli(), bound, func(i int) (int64, error) { return latestRecord(ctx, v.at(i)) })
		return err
	})
	return plan, err
}

// held is a segment as retention sees it; the last one is active.
type held struct {
	Expired
	created, latest int64 // of its header
}

// plan applies the rules at a time. newest returns the time of the latest record
// in a segment, math.MinInt64 without one. Times are ms since 1970.
func (r Retention) plan(segs []held, now int64, bound record.Offset, newest func(i int) (int64, error)) (Plan, error) {
	plan := Plan{Start: segs[0].Start}
	ended := ends(segs, now)
	var rest int64
	for _, s := range segs {
		rest += s.Bytes
	}
	for i, s := range segs[:len(segs)-1] {
		if s.End > bound {
			break
		}
		last := ended[i]
		if r.ByRecordTime {
			t, err := newest(i)
			if err != nil {
				return Plan{}, err
			}
			if t != math.MinInt64 {
				last = t
			}
		}
		switch {
		case r.MaxAge > 0 && last < now-r.MaxAge.Milliseconds():
			s.Reason = ReasonAge
		case r.MaxBytes > 0 && rest-s.Bytes >= r.MaxBytes:
			s.Reason = ReasonBytes
		default:
			return plan, nil
		}
		rest -= s.Bytes
		plan.Start = s.End
		plan.Segments = append(plan.Segments, s.Expired)
	}
	return plan, nil
}

// ends returns for each segment a time when it had its last entry already: that
// of the first one behind it whose date can be believed; the end of time
// without one. What a date is worth depends on its own header alone, so it stays
// the same when older segments go.
func ends(segs []held, now int64) []int64 {
	ended := make([]int64, len(segs))
	next := int64(math.MaxInt64)
	for i := len(segs) - 1; i >= 0; i-- {
		ended[i] = next
		s := segs[i]
		setBack := s.created < s.latest && s.latest <= now // else the clock had been ahead before
		if s.created <= now && !setBack {
			next = s.created
		}
	}
	return ended
}

// latestRecord returns the time of the latest record in p.
func latestRecord(ctx context.Context, p part) (int64, error) {
	if !p.seg.Acquire() {
		return 0, errGone
	}
	times, err := p.seg.Times(ctx, p.ext)
	return times.Latest(), errors.Join(err, p.seg.Release())
}
