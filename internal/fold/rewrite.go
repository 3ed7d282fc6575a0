package fold

import (
	"context"
	"errors"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// Compaction says how a log is kept short. New and Show are required.
type Compaction struct {
	// New returns an empty state. Show makes it the one that is decided on and read;
	// the fold calls it under its lock, and once from Start. There may be a second one
	// while this node makes up for a part of the log that is gone.
	New  func() State
	Show func(s State)
	// Floor is the size in bytes below which a log is left alone. Default 4 MiB.
	Floor int64
}

// State is what a log with compaction adds up to. The last record of a key counts,
// whatever comes before it and between; one without a value deletes it.
type State interface {
	// Apply is as Config.Apply. The records before the first one may be missing, with
	// keys that those set: what it is told to delete need not be there.
	Apply(r record.Record) error
	// Keys returns one value for each record that the state is made of, in any order;
	// decisions wait meanwhile.
	Keys() []any
	// Current is called with those values, a while after. It returns the record that
	// makes this part of the state what it is; false if it is not there any more. now is
	// for records whose time means nothing.
	Current(key any, now time.Time) (record.Record, bool, error)
}

const (
	defaultFloor = 4 << 20
	growth       = 4                // a log is rewritten when it is so many times its size after the last time
	pieces       = 16               // at least so many make up the floor; what is longer is one record
	pieceTimeout = 10 * time.Second // the others wait as long
)

// shorten has the log rewritten and trimmed whenever it is due, until Close. It is
// a goroutine of the fold's own.
func (f *Fold) shorten() {
	trimmed := record.Offset(0)
	for {
		select {
		case <-f.grownUp:
		case <-f.life.Done():
			return
		}
		err := f.shortenOnce(&trimmed)
		if err == nil || f.life.Err() != nil {
			continue
		}
		f.state.Lock() // not before the log has grown: the next leader has its own mind
		f.limit = max(f.limit, f.bytes+f.floor)
		f.state.Unlock()
		if !errors.Is(err, record.ErrNotLeader) {
			f.logger.Warn("log could not be shortened, trying again when it has grown", "err", err)
		}
	}
}

func (f *Fold) shortenOnce(trimmed *record.Offset) error {
	for {
		if _, err := f.partition.Leading(); err != nil {
			return err
		}
		f.state.RLock()
		from, due := f.from, f.limit > 0 && f.bytes >= f.limit
		f.state.RUnlock()
		if from > *trimmed { // all that was there is written again
			if err := f.partition.Trim(f.life, from); err != nil {
				return err
			}
			*trimmed = from
		}
		if !due {
			return nil
		}
		if err := f.rewrite(); err != nil {
			return err
		}
	}
}

// rewrite writes the state again at the end of the log, in pieces between which
// others decide. Each key is written as it is at that moment. What is broken off by
// a change of leader or a crash does no harm: without its mark it counts as records
// like any other.
func (f *Fold) rewrite() error {
	var (
		keys   []any
		begin  record.Offset
		before int64 // bytes of the log below
	)
	for i, done := 0, false; !done; {
		at := i // the decision may be made again
		ctx, cancel := context.WithTimeout(f.life, pieceTimeout)
		err := f.Propose(ctx, func(record.LeaderEpoch) (records []record.Record, err error) {
			if at == 0 {
				begin, before, keys = f.next, f.bytes, f.current.Keys()
			}
			records, taken, room, err := f.piece(keys[at:])
			i = at + taken
			if done = err == nil && i == len(keys) && room; !done {
				return records, err
			}
			m, err := mark(begin, f.bytes-before)
			return append(records, m), err
		})
		cancel()
		if err != nil {
			return err
		}
	}
	var after int64
	f.View(func() { after = f.bytes })
	f.logger.Debug("log rewritten", "at", begin, "keys", len(keys), "bytes", before, "left", after)
	return nil
}

// piece returns the records of the first keys, as many as may be written at once, and
// how many keys those are. room says that the mark may go with them.
func (f *Fold) piece(keys []any) (records []record.Record, taken int, room bool, err error) {
	now := time.Now()
	var bytes int64
	for _, k := range keys {
		r, ok, err := f.current.Current(k, now)
		if err != nil {
			return nil, 0, false, err
		}
		if ok {
			size := int64(len(r.Key) + len(r.Value))
			if len(records) > 0 && bytes+size > f.floor/pieces {
				return records, taken, false, nil
			}
			records, bytes = append(records, r), bytes+size
		}
		taken++
	}
	return records, taken, bytes <= f.floor/pieces, nil
}
