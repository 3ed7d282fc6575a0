package segment

import (
	"fmt"

	"github.com/quorumlog/quorumlog/record"
)

// CorruptError says where bytes are not what was written. What lies before
// From and from To on is not affected.
type CorruptError struct {
	File     string
	Position int64         // of the first bad byte's entry
	From, To record.Offset // offsets that may be hurt: [From, To)
	Reason   string
}

// Is reports whether target is record.ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == record.ErrCorrupt }

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s: position %d, offsets [%d, %d): %s", e.File, e.Position, e.From, e.To, e.Reason)
}
