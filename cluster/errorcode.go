package cluster

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
	"github.com/quorumlog/quorumlog/replica"
	txn "github.com/quorumlog/quorumlog/txn/coordinator"
	"github.com/quorumlog/quorumlog/txn/half"
)

// wireError is an error on its way between nodes: which one it is, its text,
// and the facts of a typed one.
type wireError struct {
	Code  string          `json:"code,omitempty"` // "" for an error no code is known for
	Text  string          `json:"text"`
	Facts json.RawMessage `json:"facts,omitempty"`
}

// errorCode is how one kind of error travels.
type errorCode struct {
	code   string
	encode func(error) (facts any, ok bool)
	decode func(facts json.RawMessage) (error, error)
}

// typed is for an error type whose exported fields are its facts.
func typed[T any, E interface {
	*T
	error
}](code string) errorCode {
	return errorCode{
		code: code,
		encode: func(err error) (any, bool) {
			var e E
			ok := errors.As(err, &e)
			return e, ok
		},
		decode: func(facts json.RawMessage) (error, error) {
			e := E(new(T))
			return e, json.Unmarshal(facts, e)
		},
	}
}

// plain is for an error that is a value.
func plain(code string, value error) errorCode {
	return errorCode{
		code:   code,
		encode: func(err error) (any, bool) { return nil, errors.Is(err, value) },
		decode: func(json.RawMessage) (error, error) { return value, nil },
	}
}

type outcomeUnknownFacts struct {
	record.TopicPartition
	Cause wireError
}

func outcomeUnknown() errorCode {
	return errorCode{
		code: "outcome-unknown",
		encode: func(err error) (any, bool) {
			var e *record.OutcomeUnknownError
			if !errors.As(err, &e) {
				return nil, false
			}
			f := outcomeUnknownFacts{TopicPartition: e.TopicPartition}
			if e.Err != nil {
				f.Cause = toWire(e.Err)
			}
			return f, true
		},
		decode: func(facts json.RawMessage) (error, error) {
			var f outcomeUnknownFacts
			err := json.Unmarshal(facts, &f)
			e := &record.OutcomeUnknownError{TopicPartition: f.TopicPartition}
			if f.Cause.Text != "" {
				e.Err = f.Cause.err()
			}
			return e, err
		},
	}
}

// errorCodes are the errors that arrive as what they were. The first that fits
// counts, so what says most about a write comes first, types before classes.
// Built anew at each use: errors are rare, and a package variable would refer
// to itself.
func errorCodes() []errorCode {
	return []errorCode{
		outcomeUnknown(),
		typed[record.NotLeaderError]("not-leader"),
		typed[record.OffsetRangeError]("offset-out-of-range"),
		typed[record.UnknownTopicError]("unknown-topic"),
		typed[record.FencedError]("fenced"),
		typed[record.OutOfOrderError]("out-of-order"),
		typed[record.TransactionError]("not-in-transaction"),
		typed[txn.EndedError]("transaction-ended"),
		typed[record.NotEnoughReplicasError]("not-enough-replicas"),
		typed[record.TooLargeError]("too-large"),
		typed[record.BatchError]("bad-batch"),
		typed[InvalidTopicError]("invalid-topic"),
		typed[RefusedError]("refused"),
		typed[replica.UnsafeChangeError]("unsafe-change"),
		plain("stale", errStale),
		typed[group.FullError]("group-full"),
		plain("closed", record.ErrClosed),
		plain("overloaded", record.ErrOverloaded),
		plain("unreachable", record.ErrUnreachable),
		plain("topic-exists", record.ErrTopicExists),
		plain("duplicate", record.ErrDuplicate),
		plain("is-pending", record.ErrPending),
		plain("is-not-in-transaction", record.ErrNotInTransaction),
		plain("is-transaction-ended", txn.ErrEnded),
		plain("half-gone", half.ErrGone),
		plain("is-corrupt", record.ErrCorrupt),
		plain("is-invalid", record.ErrInvalid),
		plain("is-not-leader", record.ErrNotLeader),
		plain("is-outcome-unknown", record.ErrOutcomeUnknown),
		plain("is-offset-out-of-range", record.ErrOffsetOutOfRange),
		plain("is-unknown-topic", record.ErrUnknownTopic),
		plain("is-fenced", record.ErrFenced),
		plain("is-out-of-order", record.ErrOutOfOrder),
		plain("is-not-enough-replicas", record.ErrNotEnoughReplicas),
		plain("is-too-large", record.ErrTooLarge),
		plain("is-unsafe-change", replica.ErrUnsafeChange),
		plain("is-group-full", group.ErrFull),
		plain("no-space", log.ErrNoSpace),
		plain("sync-failed", log.ErrSync),
		plain("canceled", context.Canceled),
		plain("deadline-exceeded", context.DeadlineExceeded),
	}
}

func toWire(err error) wireError {
	w := wireError{Text: err.Error()}
	for _, c := range errorCodes() {
		facts, ok := c.encode(err)
		if !ok {
			continue
		}
		if facts != nil {
			raw, jsonErr := json.Marshal(facts)
			if jsonErr != nil {
				break // the text must do
			}
			w.Facts = raw
		}
		w.Code = c.code
		break
	}
	return w
}

// err returns the error that w was made from, as far as its kind is known here.
func (w wireError) err() error {
	for _, c := range errorCodes() {
		if c.code != w.Code {
			continue
		}
		e, err := c.decode(w.Facts)
		if err != nil {
			break // the text must do
		}
		if e.Error() == w.Text {
			return e
		}
		return &placedError{text: w.Text, err: e}
	}
	return errors.New(w.Text)
}

// placedError is an error with the words that were added on its way up.
type placedError struct {
	text string
	err  error
}

func (e *placedError) Error() string { return e.text }
func (e *placedError) Unwrap() error { return e.err }
