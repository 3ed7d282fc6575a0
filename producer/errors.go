package producer

import (
	"errors"
	"fmt"

	"github.com/quorumlog/quorumlog/record"
)

var (
	// ErrNotWritten matches, under errors.Is, every *NotWrittenError.
	ErrNotWritten = errors.New("not written")
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

// notWritten is the error of a record that has no partition yet.
func notWritten(topic string, err error) error {
	return &NotWrittenError{TopicPartition: record.TopicPartition{Topic: topic, Partition: -1}, Err: err}
}
