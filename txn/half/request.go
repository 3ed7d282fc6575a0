package half

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/quorumlog/quorumlog/record"
)

// ID names a half message; unique in its producer group.
type ID string

// NewID returns a random id.
func NewID() ID { return ID(rand.Text()) }

// Decision is what becomes of a half message. The zero value is the safe one: it
// will be asked again.
type Decision int

const (
	// Unknown: nobody knows yet; check back.
	Unknown Decision = iota
	// Commit appends the record to its topic.
	Commit
	// Rollback forgets it.
	Rollback
)

// String returns "unknown", "commit" or "rollback".
func (d Decision) String() string {
	switch d {
	case Unknown:
		return "unknown"
	case Commit:
		return "commit"
	case Rollback:
		return "rollback"
	}
	return fmt.Sprintf("decision(%d)", int(d))
}

// Policy is what becomes of a half message that all checks have not decided.
type Policy string

const (
	RollbackUndecided Policy = "rollback" // the default
	CommitUndecided   Policy = "commit"
	ParkUndecided     Policy = "park" // keep it until somebody decides by hand
)

// Schedule says when half messages are checked. The zero value is the default.
type Schedule struct {
	First  time.Duration // from storing to the first check; default 6 s
	Every  time.Duration // between checks; default 30 s
	Most   int           // checks; default 15
	Policy Policy        // after the last one; default RollbackUndecided
}

// Half is a half message as a check sees it.
type Half struct {
	ID     ID
	Tries  int           // checks so far, this one included
	Record record.Record // with Topic and Partition
}

// Op says what a request asks for.
type Op string

const (
	OpStore  Op = "store"  // keep a half message
	OpDecide Op = "decide" // end one
	OpPoll   Op = "poll"   // hand out what is due for a check
	OpList   Op = "list"   // what is half or parked
)

// Request is one question to the coordinator of a producer group. Every request may
// be sent again when its answer was lost. It travels as JSON.
type Request struct {
	Op       Op
	ID       ID             `json:",omitempty"` // store, decide
	Record   *record.Record `json:",omitempty"` // store; with Topic and Partition
	Schedule Schedule       // store
	Decision Decision       `json:",omitempty"` // decide: Commit or Rollback
}

// Response answers a request.
type Response struct {
	// Decision is the one that counts, Unknown if there is none. Store, decide.
	Decision Decision
	// Halves are to be checked, or listed. Poll, list.
	Halves []Half `json:",omitempty"`
	// Next is when to poll again at the latest; 0 when nothing is half. Poll.
	Next time.Duration `json:",omitempty"`
}

// ErrGone: the half message is not known: it never was, or was decided more than a
// day ago. Nothing was done.
var ErrGone = errors.New("half message is gone")

// maxRecord is how large a half message may be, in bytes.
const maxRecord = 1 << 20

func (req *Request) check(group string) error {
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	name := func(what, s string) {
		bad(s == "" || len(s) > 1024 || !utf8.ValidString(s), "%s %q must be 1 to 1024 bytes of UTF-8", what, s)
	}
	name("producer group", group)
	switch req.Op {
	case OpStore:
		name("id", string(req.ID))
		if req.Record == nil {
			bad(true, "there is no record")
			break
		}
		name("topic", req.Record.Topic)
		bad(req.Record.Partition < 0, "the partition is negative")
		if size := record.SizeOf(req.Record); size > maxRecord {
			errs = append(errs, &record.TooLargeError{What: "half message", Size: size, Limit: maxRecord})
		}
		s := req.Schedule
		bad(s.First < 0 || s.Every < 0 || s.Most < 0, "the schedule %+v is negative", s)
		switch s.Policy {
		case "", RollbackUndecided, CommitUndecided, ParkUndecided:
		default:
			bad(true, "policy %q is not known", s.Policy)
		}
	case OpDecide:
		name("id", string(req.ID))
		bad(req.Decision != Commit && req.Decision != Rollback, "the decision is %v, want commit or rollback", req.Decision)
	case OpPoll, OpList:
	default:
		bad(true, "operation %q is not known", req.Op)
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("half message of %q, %s: %w: %w", group, req.Op, record.ErrInvalid, errors.Join(errs...))
}
