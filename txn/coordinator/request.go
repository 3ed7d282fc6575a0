package coordinator

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/quorumlog/quorumlog/record"
)

// Op says what a request asks for.
type Op string

const (
	// OpTake makes the holder the one that counts, ends the transaction that is
	// open, and returns the identity of the next one. The holder that counts
	// already gets the same answer again.
	OpTake Op = "take"
	// OpAdd adds partitions and groups to the transaction, and opens it there.
	// The first one begins the transaction.
	OpAdd Op = "add"
	// OpEnd commits or aborts. It is answered when every participant knows.
	OpEnd Op = "end"
	// OpAbort aborts the transaction of a producer id and epoch, whoever holds it.
	OpAbort Op = "abort"
)

// Request is one question to a transaction's coordinator. Every request may be
// sent again when its answer was lost. It travels as JSON.
type Request struct {
	Op     Op
	Holder string `json:",omitempty"` // of the id; take, add, end
	// Producer and Epoch are the identity that the last answer gave. Add, end, abort.
	Producer record.ProducerID    `json:",omitempty"`
	Epoch    record.ProducerEpoch `json:",omitempty"`
	// Timeout is how long a transaction may be open. Take. Whole milliseconds,
	// 1 ms to 15 min; 0 is the default, 1 min.
	Timeout    time.Duration           `json:",omitempty"`
	Partitions []record.TopicPartition `json:",omitempty"` // add
	Groups     []string                `json:",omitempty"` // add: whose offsets are committed with it
	Commit     bool                    `json:",omitempty"` // end
}

// Response answers a request: the identity that the next transaction, or after
// an add this one, writes under.
type Response struct {
	Producer record.ProducerID
	Epoch    record.ProducerEpoch
}

// NewHolder returns a random name for a holder.
func NewHolder() string { return rand.Text() }

const (
	defaultTimeout = time.Minute
	maxTimeout     = 15 * time.Minute
	maxName        = 1024 // bytes
)

// ErrEnded matches *EndedError.
var ErrEnded = errors.New("the transaction has ended")

// EndedError says that a transaction is not open any more, and how it ended. The
// request had no effect.
type EndedError struct {
	ID       string // transactional id
	Producer record.ProducerID
	Epoch    record.ProducerEpoch
	// Outcome is what is known of it: [CompleteCommit], [CompleteAbort], or ""
	// when it never began or is forgotten, which is as good as aborted.
	Outcome Status
}

// Is reports whether target is ErrEnded.
func (e *EndedError) Is(target error) bool { return target == ErrEnded }

func (e *EndedError) Error() string {
	how := "was never begun, or aborted long ago"
	switch e.Outcome {
	case CompleteCommit:
		how = "was committed"
	case CompleteAbort:
		how = "was aborted: by its owner, its timeout, or on request"
	}
	return fmt.Sprintf("transaction %q, producer %d epoch %d, %s", e.ID, e.Producer, e.Epoch, how)
}

// check reports everything that is wrong with a request, whatever the state.
func (req *Request) check(id string) error {
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	name := func(what, s string) {
		if s != "" && utf8.ValidString(s) && len(s) <= maxName {
			return
		}
		bad(s == "", "the %s has no name", what)
		bad(!utf8.ValidString(s), "%s %q is not UTF-8", what, s)
		bad(len(s) > maxName, "%s has %d bytes, want at most %d", what, len(s), maxName)
	}
	name("transactional id", id)
	switch req.Op {
	case OpTake, OpAdd, OpEnd:
		name("holder", req.Holder)
	case OpAbort:
	default:
		bad(true, "operation %q is not known", req.Op)
	}
	switch req.Op {
	case OpTake:
		bad(req.Timeout < 0 || req.Timeout > maxTimeout || req.Timeout%time.Millisecond != 0,
			"Timeout is %v, want whole milliseconds from 1 ms to %v, or 0 for %v", req.Timeout, maxTimeout, defaultTimeout)
	case OpAdd:
		bad(len(req.Partitions)+len(req.Groups) == 0, "nothing is to be added")
		for _, tp := range req.Partitions {
			name("topic", tp.Topic)
			bad(tp.Partition < 0, "%v: the partition is negative", tp)
		}
		for _, g := range req.Groups {
			name("group", g)
		}
	}
	if req.Op == OpAdd || req.Op == OpEnd || req.Op == OpAbort {
		bad(req.Producer < 0, "the producer id is %d", req.Producer)
		bad(req.Epoch < 0 || req.Epoch > lastEpoch, "the epoch is %d, want 0 to %d", req.Epoch, lastEpoch)
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("transaction %q, %s: %w: %w", id, req.Op, record.ErrInvalid, errors.Join(errs...))
}

// lastEpoch is the last one a transaction may have: its markers carry the next.
const lastEpoch record.ProducerEpoch = math.MaxInt16 - 1
