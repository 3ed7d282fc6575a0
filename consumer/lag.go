package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/record"
)

// Lag is how far a group is behind in one partition.
type Lag struct {
	record.TopicPartition
	// Committed is where the group resumes; record.NoOffset where it has committed
	// nothing.
	Committed record.Offset
	// Start and End are the log's: first readable offset, and the one behind the
	// last record a group with read committed sees.
	Start, End record.Offset
	// Records is how many offsets the group has before it: from Committed, or the
	// log's start where that is higher, to End. Markers of transactions count.
	Records int64
	// Age is how long ago the oldest of these records was written, 0 without any.
	Age time.Duration
	// Idle is how long nothing was committed although there was something to
	// handle: since the last commit that moved, or since the oldest record before
	// the group was written if that is later. 0 without lag.
	Idle time.Duration
	// Member is who owns the partition, "" if nobody does; Client its name for
	// people.
	Member, Client string
}

// Stalled reports whether there are records to handle and nothing was committed
// for d.
func (l *Lag) Stalled(d time.Duration) bool { return l.Records > 0 && l.Idle >= d }

// Lags returns how far a group is behind, sorted by partition: in the partitions
// of all topics that its members read, and in those it has committed offsets of,
// so for groups without members too. A group that nobody has heard of has none.
func Lags(ctx context.Context, src Source, coord Coordinator, name string) ([]Lag, error) {
	d, err := coord.Group(ctx, name, group.Request{Op: group.OpDescribe})
	if err != nil {
		return nil, fmt.Errorf("lag of group %q: %w", name, err)
	}
	lags := map[record.TopicPartition]*Lag{}
	at := map[record.TopicPartition]time.Time{}
	for _, o := range d.Offsets {
		lags[o.TopicPartition] = &Lag{TopicPartition: o.TopicPartition, Committed: o.Offset}
		at[o.TopicPartition] = o.Time
	}
	for _, m := range d.Members {
		for _, topic := range m.Topics {
			n, err := src.Partitions(ctx, topic)
			if err != nil {
				return nil, fmt.Errorf("lag of group %q: %w", name, err)
			}
			for p := range int32(n) {
				if tp := (record.TopicPartition{Topic: topic, Partition: p}); lags[tp] == nil {
					lags[tp] = &Lag{TopicPartition: tp, Committed: record.NoOffset}
				}
			}
		}
		for _, tp := range m.Assigned {
			if l := lags[tp]; l != nil {
				l.Member, l.Client = m.ID, m.Client
			}
		}
	}
	now := time.Now()
	var all []Lag
	for _, tp := range sorted(lags) {
		switch err := lags[tp].look(ctx, src, at[tp], now); {
		case errors.Is(err, record.ErrUnknownTopic): // deleted; its offsets will be forgotten
		case err != nil:
			return nil, fmt.Errorf("lag of group %q: %w", name, place(tp, err))
		default:
			all = append(all, *lags[tp])
		}
	}
	return all, nil
}

// look fills in what the log says.
func (l *Lag) look(ctx context.Context, src Source, committed, now time.Time) (err error) {
	if l.Start, l.End, err = src.Offsets(ctx, l.TopicPartition, record.ReadCommitted); err != nil {
		return err
	}
	from := max(l.Committed, l.Start)
	if from >= l.End {
		return nil
	}
	l.Records = int64(l.End - from)
	for r, err := range Read(ctx, src, l.Topic, Partition(l.Partition), FromOffset(from), UntilEnd(), MaxBytes(1)) {
		if errors.Is(err, record.ErrOffsetOutOfRange) {
			break // trimmed since: the next look tells
		}
		if err != nil {
			return err
		}
		l.Age = max(0, now.Sub(r.Time))
		since := committed
		if r.Time.After(since) {
			since = r.Time
		}
		l.Idle = max(0, now.Sub(since))
		return nil
	}
	return nil
}
