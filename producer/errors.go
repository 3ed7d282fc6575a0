package producer

import (
	"errors"
	"fmt"

	"github.com/quorumlog/quorumlog/record"
)

var (
	// ErrNotWritten matches, under errors.Is, every *NotWrittenError.
	ErrNotWritten = errors.New("not written")
	// ErrBufferFull matches, under errors.Is, every *BufferFullError.
	ErrBufferFull = errors.New("buffer full")
	// ErrTopicGrown matches, under errors.Is, every *TopicGrownError.
	ErrTopicGrown = errors.New("topic has grown")
	// ErrDeliveryTimeout is inside the error of a record that had no result
	// within Config.DeliveryTimeout.
	ErrDeliveryTimeout = errors.New("delivery timeout")
)

// NotWrittenError says that a record was given up and is certainly not in the
// log: it may be sent again.
type NotWrittenError struct {
	record.TopicPartition       // Partition is -1 when none had been picked
	Err                   error // why
}

// Is reports whether target is ErrNotWritten.
func (e *NotWrittenError) Is(target error) bool { return target == ErrNotWritten }

// Unwrap returns the cause.
func (e *NotWrittenError) Unwrap() error { return e.Err }

func (e *NotWrittenError) Error() string {
	if e.Partition < 0 {
		return fmt.Sprintf("record for topic %q: not written: %v", e.Topic, e.Err)
	}
	return fmt.Sprintf("%v: not written: %v", e.TopicPartition, e.Err)
}

// BufferFullError says that a Try form found no room in the producer's buffer.
// The record was not written. It matches record.ErrOverloaded too.
type BufferFullError struct {
	Need, Free, Limit int64 // bytes; Free may be enough when others wait in line
}

// Is reports whether target is ErrBufferFull or record.ErrOverloaded.
func (e *BufferFullError) Is(target error) bool {
	return target == ErrBufferFull || target == record.ErrOverloaded
}

func (e *BufferFullError) Error() string {
	return fmt.Sprintf("the producer's buffer has %d of %d bytes free, the record needs %d", e.Free, e.Limit, e.Need)
}

// TopicGrownError says that a topic has got more partitions, so that ByKey would
// send most keys to another one and their order would end, which
// Config.RefuseGrowth refuses. The record was not written. A new producer knows of
// no other number, and writes.
type TopicGrownError struct {
	Topic     string
	Had, Have int // partitions
}

// Is reports whether target is ErrTopicGrown.
func (e *TopicGrownError) Is(target error) bool { return target == ErrTopicGrown }

func (e *TopicGrownError) Error() string {
	return fmt.Sprintf("topic %q has grown from %d to %d partitions, which moves keys: begin with a new producer, or without RefuseGrowth", e.Topic, e.Had, e.Have)
}

// Outcome is what an error of a send says about the record.
type Outcome int8

const (
	NotWritten Outcome = iota // it is certainly not in the log
	Written                   // it is in the log
	Unknown                   // it may be in the log, now or later
)

// String returns "not written", "written" or "unknown".
func (o Outcome) String() string {
	switch o {
	case NotWritten:
		return "not written"
	case Written:
		return "written"
	case Unknown:
		return "unknown"
	}
	return fmt.Sprintf("outcome(%d)", int8(o))
}

// OutcomeOf returns what err, from a send or a callback of this package, says
// about the record: Written for nil, Unknown for record.ErrOutcomeUnknown, and
// NotWritten for every other.
func OutcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return Written
	case errors.Is(err, record.ErrOutcomeUnknown):
		return Unknown
	}
	return NotWritten
}

// notWritten is the error of a record that has no partition yet.
func notWritten(topic string, err error) error {
	return &NotWrittenError{TopicPartition: record.TopicPartition{Topic: topic, Partition: -1}, Err: err}
}
