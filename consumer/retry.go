package consumer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// RetryPolicy says what becomes of a record whose handler fails. Without one,
// which is the zero value, the first failure ends Run with its error.
//
//	handler fails -> in place, InPlace times, each wait twice the last
//	              -> <group>.retry.1, handled again Delays[0] later
//	              -> <group>.retry.2, Delays[1] later ...
//	              -> <group>.dlq, the dead letters
//
// While a record waits to be tried in place, those behind it in its order wait
// as well (the partition's, or with several workers the key's); other partitions
// go on. In the retry topics it holds nobody up; every member reads them beside
// the group's own topics, in the same way, and a handler sees the record as it
// was at its origin, with [FailureOf] telling the rest. A record of an error that
// [Permanent] marks, and one whose handler panics, goes to the dead letters at
// once. A failure that ctx of Run caused is none.
//
// A record is moved once, whatever dies when: its copy and the offset behind it are
// one transaction. It waits until the records in front of it in its partition are
// finished, so a slow handler delays the moves behind it, but no other handler. With
// [OnReceipt] and [ByHand], and with a [Mover] that is no [AtomicMover], the record is
// appended to its new topic first and committed behind later: a crash between the two
// repeats the record and its move, and loses neither. So it does where
// [Config.ResumeAt] goes back behind the move. [FailureOf] names the origin, by which a
// repeated one can be told.
type RetryPolicy struct {
	// InPlace is how often a record is tried again where it is. Default 0.
	InPlace int
	// Backoff is the wait before the first try in place, MaxBackoff the longest.
	// Defaults 100 ms and 10 s.
	Backoff, MaxBackoff time.Duration
	// Delays are those of the retry topics, one each, none shorter than the one
	// before. Default none.
	Delays []time.Duration
	// DeadLetters alone, with no tries in place and no delays, sends what fails to
	// the dead letters at once. Any other field that is set implies it.
	DeadLetters bool
	// KeyOrder keeps the order of each key: while a record of a key is in a retry
	// topic, those of the same key and origin follow it there, so that an update
	// never overtakes an earlier one. Needs Delays. What has gone to the dead
	// letters is not waited for.
	KeyOrder bool
	// Classify says what to do about an error. [Permanent] errors and panics are
	// not asked about. Default: [Retry], whatever the error.
	Classify func(err error) Action
}

// Action is what becomes of a record that failed.
type Action int8

const (
	// Retry tries again: in place, then by way of the retry topics.
	Retry Action = iota
	// DeadLetter moves the record to the dead letters at once.
	DeadLetter
	// Stop ends Run with the error; the record stays where it is.
	Stop
)

// permanentError marks an error that trying again cannot mend.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// Permanent marks an error of a handler as one that trying again cannot mend:
// under a [RetryPolicy] the record goes to the dead letters at once. Permanent
// of nil is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanentError{err}
}

// active reports whether there is a policy.
func (p *RetryPolicy) active() bool {
	return p.InPlace > 0 || len(p.Delays) > 0 || p.DeadLetters || p.KeyOrder || p.Classify != nil
}

func (p RetryPolicy) withDefaults() RetryPolicy {
	p.Backoff = cmp.Or(p.Backoff, 100*time.Millisecond)
	p.MaxBackoff = cmp.Or(p.MaxBackoff, max(10*time.Second, p.Backoff))
	p.Delays = slices.Clone(p.Delays)
	if p.Classify == nil {
		p.Classify = func(error) Action { return Retry }
	}
	return p
}

// validate reports everything that is wrong with p, which has its defaults.
func (p *RetryPolicy) validate() (errs []error) {
	if p.InPlace < 0 {
		errs = append(errs, fmt.Errorf("Retry.InPlace is %d, want 0 or more", p.InPlace))
	}
	if p.Backoff < 0 || p.MaxBackoff < p.Backoff {
		errs = append(errs, fmt.Errorf("Retry.Backoff is %v and MaxBackoff is %v, want more than 0, and the second not below the first", p.Backoff, p.MaxBackoff))
	}
	for i, d := range p.Delays {
		if d <= 0 || i > 0 && d < p.Delays[i-1] {
			errs = append(errs, fmt.Errorf("Retry.Delays are %v, want more than 0, none shorter than the one before", p.Delays))
			break
		}
	}
	if p.KeyOrder && len(p.Delays) == 0 {
		errs = append(errs, errors.New("Retry.KeyOrder is set, but there are no Retry.Delays: without retry topics no record is overtaken"))
	}
	return errs
}

// backoff returns the wait before the next try in place, after n of them.
func (p *RetryPolicy) backoff(n int) time.Duration {
	d := p.Backoff
	for range n - 1 {
		if d >= p.MaxBackoff/2 {
			return p.MaxBackoff
		}
		d *= 2
	}
	return min(d, p.MaxBackoff)
}

// judge returns what to do about an error, and what to call it. A classifier
// that panics is as bad as a handler that does.
func (p *RetryPolicy) judge(err error) (action Action, cause Cause) {
	defer func() {
		if recover() != nil {
			action, cause = DeadLetter, CausePanic
		}
	}()
	var panicked *PanicError
	var permanent permanentError
	switch {
	case errors.As(err, &panicked):
		return DeadLetter, CausePanic
	case errors.As(err, &permanent):
		return DeadLetter, CausePermanent
	}
	return p.Classify(err), CauseError
}
