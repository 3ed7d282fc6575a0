package torture

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Kind is a promise that was broken.
type Kind string

// What can be wrong.
const (
	Lost        Kind = "lost write"                   // acknowledged, and not there at the end
	Vanished    Kind = "unseen after recovery"        // somebody has read it, and it is not there at the end
	Duplicate   Kind = "duplicate"                    // one value at two offsets
	TwoValues   Kind = "one offset, two values"       // at two nodes or at two times
	Disorder    Kind = "order broken"                 // acknowledged records of one producer and partition
	Skipped     Kind = "skipped"                      // a plain reader
	Repeated    Kind = "repeated"                     // a plain reader
	PastHigh    Kind = "read past high watermark"     // or other offsets of an answer out of order
	StartBack   Kind = "log start went back"          // for one reader
	Overtrimmed Kind = "trimmed too much"             // more than retention allows
	HighBack    Kind = "high watermark went back"     // for one reader
	StaleEnd    Kind = "stale high watermark"         // lower than what was acknowledged before it was asked for
	StableBack  Kind = "last stable offset went back" // for one reader
	OpenRead    Kind = "read of an open transaction"
	AbortedRead Kind = "read of an aborted transaction"
	Torn        Kind = "torn transaction"          // a part of it is there
	CommitBack  Kind = "commit went back"          // the group's position is below an acknowledged commit
	GroupSkip   Kind = "skipped by a group"        // committed without being handed out, or not from the committed position on
	Lie         Kind = "outcome that lies"         // reported as not written, and it is there
	Silent      Kind = "no answer"                 // a record without a result
	NoProgress  Kind = "no progress after healing" // or a call that does not end
	Diverged    Kind = "replicas differ"           // below the high watermark
	Unopened    Kind = "does not open again"       // a node, or a partition of it
	Stopped     Kind = "replica stopped by itself" // without a fault of its disk
	BadData     Kind = "bad data"                  // bytes that nobody has written
	BadError    Kind = "error that must not come"  // of a call that nothing was wrong with
	Leak        Kind = "goroutines left behind"
	maxReported      = 20
)

// Violation is one broken promise.
type Violation struct {
	Kind Kind
	Text string
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s", v.Kind, v.Text) }

// Report is what a run has done and found.
type Report struct {
	Config        Config
	Sent, Acked   int
	Unknown       int // outcomes nobody could know
	NotWritten    int
	Resent        int // acknowledged as duplicates of an earlier try
	Read, Polled  int // records, by plain readers and by groups
	Overtaken     int // readers that retention had overtaken
	Trimmed       int // offsets below the log starts at the end
	Commits       int // acknowledged ones, of groups
	Transactions  int
	Committed     int            // transactions
	Faults        map[string]int // by name
	LeaderChanges int            // leaderships that have left an entry, beyond the first of each partition
	Violations    []Violation
	Story         string // of a run that found something
}

// Failed reports whether a promise was broken.
func (r *Report) Failed() bool { return len(r.Violations) > 0 }

// Has reports whether a promise of that kind was broken.
func (r *Report) Has(k Kind) bool {
	return slices.ContainsFunc(r.Violations, func(v Violation) bool { return v.Kind == k })
}

func (r *Report) String() string {
	var b strings.Builder
	mode := ""
	if r.Config.Relaxed {
		mode = "relaxed flush, "
	}
	fmt.Fprintf(&b, "seed %d, %d nodes, %v: %ssent %d, acked %d (%d by an earlier try), unknown %d, not written %d, read %d, polled %d, commits %d, transactions %d (%d committed), trimmed %d, readers overtaken %d, leader changes %d\nfaults:",
		r.Config.Seed, r.Config.Nodes, r.Config.Duration, mode, r.Sent, r.Acked, r.Resent, r.Unknown, r.NotWritten, r.Read, r.Polled, r.Commits, r.Transactions, r.Committed, r.Trimmed, r.Overtaken, r.LeaderChanges)
	for _, name := range slices.Sorted(maps.Keys(r.Faults)) {
		fmt.Fprintf(&b, " %s %d;", name, r.Faults[name])
	}
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "\nVIOLATION %v", v)
	}
	if r.Story != "" {
		fmt.Fprintf(&b, "\n%s", r.Story)
	}
	return b.String()
}
