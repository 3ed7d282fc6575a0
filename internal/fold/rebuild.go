package fold

import (
	"cmp"
	"errors"

	"github.com/quorumlog/quorumlog/record"
)

// rebuild is a state that is folded anew, because what came next for the one before
// was trimmed. It is not shown until it is whole, so nobody sees less than before.
type rebuild struct {
	state State
	image
}

// rebuild begins at the start of the log. What it folds first may be of any time
// before the rewriting that the log was trimmed to, so it is whole with a mark of that
// one, or of a later one: one is in the log, or nothing would have been trimmed.
func (f *Fold) rebuild(start record.Offset) *rebuild {
	s := f.compaction.New()
	floor := cmp.Or(f.compaction.Floor, defaultFloor)
	return &rebuild{s, image{
		apply: s.Apply, next: start, from: start, floor: floor, limit: floor, whole: start == 0, grown: f.grownUp,
	}}
}

// show makes a rebuilt state the one that counts.
func (f *Fold) show(r *rebuild) {
	f.state.Lock()
	if r.next > 0 {
		f.logger.Debug("state folded from the new start of the log", "until", r.next)
	}
	f.current, f.image = r.state, r.image
	f.compaction.Show(r.state)
	f.state.Unlock()
	f.advanced()
}

// missed tells whether a fetch has failed because a log that is kept short begins
// above what it was to return, and where.
func (f *Fold) missed(err error) (start record.Offset, ok bool) {
	var outside *record.OffsetRangeError
	if f.compaction == nil || !errors.As(err, &outside) || outside.Offset >= outside.Start {
		return 0, false
	}
	return outside.Start, true
}
