package consumer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlog/quorumlog/record"
)

// headersOf returns a record's headers as "key=value".
func headersOf(r record.Record) (all []string) {
	for _, h := range r.Headers {
		all = append(all, fmt.Sprintf("%s=%s", h.Key, h.Value))
	}
	return all
}

func TestTheHeadersOfAMovedRecordAreThese(t *testing.T) {
	at := func(s int) time.Time { return time.Date(2026, 11, 29, 18, 0, s, 0, time.UTC) }
	f := Failure{
		Group: "billing", Origin: record.TopicPartition{Topic: "orders", Partition: 3}, Offset: 4711, Time: at(0).Add(123 * time.Millisecond),
		Cause: CauseError, Reason: "busy", Attempts: 4, First: at(1), Last: at(2), Due: at(3),
	}
	own := record.Header{Key: "trace", Value: []byte("7f")}
	r := record.Record{Topic: "orders", Partition: 3, Offset: 4711, Key: []byte("k"), Value: []byte("v"), Headers: []record.Header{own}}
	moved := f.put(r, "billing.retry.1", at(4))
	require.Equal(t, []string{
		"trace=7f",
		"quorumlog-group=billing",
		"quorumlog-origin=orders/3/4711",
		"quorumlog-origin-time=2026-11-29T18:00:00.123Z",
		"quorumlog-cause=error",
		"quorumlog-reason=busy",
		"quorumlog-attempts=4",
		"quorumlog-first-failure=2026-11-29T18:00:01Z",
		"quorumlog-last-failure=2026-11-29T18:00:02Z",
		"quorumlog-due=2026-11-29T18:00:03Z",
	}, headersOf(moved))
	require.Equal(t, "billing.retry.1", moved.Topic)
	require.True(t, at(4).Equal(moved.Time))
	require.Equal(t, []record.Header{own}, r.Headers, "the record itself is left alone")

	got, ok := FailureOf(moved)
	require.True(t, ok)
	for _, pair := range [][2]*time.Time{{&f.Time, &got.Time}, {&f.First, &got.First}, {&f.Last, &got.Last}, {&f.Due, &got.Due}} {
		require.True(t, pair[0].Equal(*pair[1]))
		*pair[1] = *pair[0]
	}
	require.Equal(t, f, got)

	f.Cause, f.Reason, f.Due = CausePanic, strings.Repeat("ü", 2000), time.Time{}
	again := headersOf(f.put(moved, "billing.dlq", at(5)))
	require.Len(t, again, 9, "those of the move before are replaced")
	require.Contains(t, again, "quorumlog-reason="+strings.Repeat("ü", 512), "1 KiB of whole letters")
}

func TestARecordThatWasNotMovedHasNoFailure(t *testing.T) {
	for _, origin := range []string{"", "orders", "orders/x/1", "orders/1/x", "orders/1/2/3"} {
		_, ok := FailureOf(record.Record{Headers: []record.Header{{Key: headerOrigin, Value: []byte(origin)}}})
		require.False(t, ok, origin)
	}
	_, ok := FailureOf(record.Record{})
	require.False(t, ok)
}
