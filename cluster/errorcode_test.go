package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/consumer/group"
	"github.com/quorumlog/quorumlog/log"
	"github.com/quorumlog/quorumlog/record"
)

// overTheWire is what the asking node makes of another node's error.
func overTheWire(t *testing.T, err error) error {
	t.Helper()
	_, got := answerBody(errorAnswer(err), 1)
	require.Error(t, got)
	return got
}

func TestTypedErrorArrivesWithItsFacts(t *testing.T) {
	tp := record.TopicPartition{Topic: "orders", Partition: 3}
	for _, err := range []error{
		&record.NotLeaderError{TopicPartition: tp, Leader: "b", Epoch: 7},
		&record.OffsetRangeError{TopicPartition: tp, Offset: 1, Start: 2, End: 3},
		&record.UnknownTopicError{Topic: "orders", Partition: -1},
		&record.FencedError{What: "producer 7", Have: 1, Want: 2},
		&record.OutOfOrderError{TopicPartition: tp, Producer: 7, Epoch: 1, Got: 5, Want: 4},
		&record.TooLargeError{What: "batch", Size: 10, Limit: 9},
		&record.BatchError{BaseOffset: 5, Reason: "bad magic"},
		&InvalidTopicError{Topic: "orders", Reason: "it is bad"},
		&group.FullError{Group: "billing", Limit: 3},
	} {
		t.Run(fmt.Sprintf("%T", err), func(t *testing.T) {
			require.Equal(t, err, overTheWire(t, err))
			wrapped := overTheWire(t, fmt.Errorf("on the way: %w", err))
			require.EqualError(t, wrapped, "on the way: "+err.Error())
			require.Equal(t, err, errors.Unwrap(wrapped))
		})
	}
}

func TestPlainErrorArrivesAsItself(t *testing.T) {
	for _, err := range []error{
		record.ErrClosed, record.ErrNotLeader, record.ErrOverloaded, record.ErrUnreachable, record.ErrOutcomeUnknown,
		record.ErrOffsetOutOfRange, record.ErrUnknownTopic, record.ErrTopicExists, record.ErrFenced, record.ErrOutOfOrder,
		record.ErrDuplicate, record.ErrTooLarge, record.ErrCorrupt, record.ErrInvalid,
		log.ErrNoSpace, log.ErrSync, group.ErrFull, context.Canceled, context.DeadlineExceeded,
	} {
		t.Run(err.Error(), func(t *testing.T) {
			require.Equal(t, err, overTheWire(t, err))
			wrapped := overTheWire(t, fmt.Errorf("on the way: %w", err))
			require.EqualError(t, wrapped, "on the way: "+err.Error())
			require.ErrorIs(t, wrapped, err)
		})
	}
}

func TestUnknownOutcomeArrivesWithItsCause(t *testing.T) {
	tp := record.TopicPartition{Topic: "orders", Partition: 3}
	for _, cause := range []error{&record.NotLeaderError{TopicPartition: tp, Leader: "b", Epoch: 7}, errors.New("why ever"), nil} {
		err := &record.OutcomeUnknownError{TopicPartition: tp, Err: cause}
		require.Equal(t, err, overTheWire(t, err))
	}
}

func TestErrorNobodyKnowsArrivesAsItsText(t *testing.T) {
	require.EqualError(t, overTheWire(t, errors.New("disk on fire")), "disk on fire")
	require.EqualError(t, wireError{Code: "of tomorrow", Text: "new"}.err(), "new")
	require.EqualError(t, wireError{Code: "fenced", Text: "bad facts", Facts: json.RawMessage(`{"Have":"x"}`)}.err(), "bad facts")
}
