package log

import (
	"fmt"
	"time"
)

// FlushPolicy says when appended entries are made to survive a power cut. A
// crash of the process alone loses nothing under any policy.
type FlushPolicy time.Duration

const (
	// FlushEach: Append returns after fsync. Nothing acknowledged is lost. Default.
	FlushEach FlushPolicy = 0
	// FlushNever leaves it to the operating system, except when a segment is
	// sealed. A power cut may take what was appended since.
	FlushNever FlushPolicy = -1
)

// FlushEvery returns the policy of one fsync for all that was appended within d,
// d > 0: a power cut may take the appends of the last d.
func FlushEvery(d time.Duration) FlushPolicy { return FlushPolicy(d) }

// String returns "each", "never" or "every 1s".
func (p FlushPolicy) String() string {
	switch {
	case p == FlushEach:
		return "each"
	case p < 0:
		return "never"
	}
	return fmt.Sprintf("every %v", time.Duration(p))
}
