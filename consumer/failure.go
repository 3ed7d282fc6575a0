package consumer

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// Cause says why a record was moved.
type Cause string

const (
	CauseError     Cause = "error"     // its handler returned an error
	CausePermanent Cause = "permanent" // the error was marked by Permanent
	CausePanic     Cause = "panic"     // its handler panicked
	CauseOrder     Cause = "order"     // an earlier record of its key is being tried again
	CauseRedrive   Cause = "redrive"   // somebody sent it back from the dead letters
)

// Failure says why and whence a record came to a retry topic or to the dead
// letters. It travels in the record's headers, all as text:
//
//	quorumlog-group             billing
//	quorumlog-origin            orders/3/4711      topic, partition, offset
//	quorumlog-origin-time       2026-11-29T18:00:00.123Z
//	quorumlog-cause             error | permanent | panic | order | redrive
//	quorumlog-reason            the error's text, at most 1 KiB
//	quorumlog-attempts          4                  calls of the handler so far
//	quorumlog-first-failure     2026-11-29T18:00:01Z
//	quorumlog-last-failure      2026-11-29T18:05:01Z
//	quorumlog-due               2026-11-29T18:06:01Z
type Failure struct {
	Group  string
	Origin record.TopicPartition
	Offset record.Offset // at the origin
	Time   time.Time     // of the record

	Cause       Cause
	Reason      string
	Attempts    int       // calls of the handler so far
	First, Last time.Time // failures; zero without one
	Due         time.Time // not to be handled before; zero in the dead letters
}

const (
	headerPrefix   = "quorumlog-"
	headerGroup    = headerPrefix + "group"
	headerOrigin   = headerPrefix + "origin"
	headerTime     = headerPrefix + "origin-time"
	headerCause    = headerPrefix + "cause"
	headerReason   = headerPrefix + "reason"
	headerAttempts = headerPrefix + "attempts"
	headerFirst    = headerPrefix + "first-failure"
	headerLast     = headerPrefix + "last-failure"
	headerDue      = headerPrefix + "due"
	headerSettles  = headerPrefix + "settles" // in the dead letters: an offset that is dealt with

	maxReason = 1024
)

// FailureOf returns what the headers of a record that was moved say; false for
// a record that was not.
func FailureOf(r record.Record) (Failure, bool) {
	var f Failure
	found := false
	for _, h := range r.Headers {
		if !strings.HasPrefix(h.Key, headerPrefix) {
			continue
		}
		v := string(h.Value)
		switch h.Key {
		case headerGroup:
			f.Group = v
		case headerOrigin:
			f.Origin, f.Offset, found = parseOrigin(v)
		case headerTime:
			f.Time = parseTime(v)
		case headerCause:
			f.Cause = Cause(v)
		case headerReason:
			f.Reason = v
		case headerAttempts:
			f.Attempts, _ = strconv.Atoi(v) // 0 if somebody wrote nonsense
		case headerFirst:
			f.First = parseTime(v)
		case headerLast:
			f.Last = parseTime(v)
		case headerDue:
			f.Due = parseTime(v)
		}
	}
	return f, found
}

// put returns r, to be sent to topic, with headers that say f instead of what
// an earlier move has said.
func (f *Failure) put(r record.Record, topic string, now time.Time) record.Record {
	r.Topic, r.Partition, r.Time = topic, 0, now
	r.Headers = slices.DeleteFunc(slices.Clone(r.Headers), func(h record.Header) bool {
		return strings.HasPrefix(h.Key, headerPrefix)
	})
	add := func(key, value string) {
		if value != "" {
			r.Headers = append(r.Headers, record.Header{Key: key, Value: []byte(value)})
		}
	}
	reason := f.Reason
	if len(reason) > maxReason {
		reason = reason[:maxReason]
	}
	add(headerGroup, f.Group)
	add(headerOrigin, f.Origin.String()+"/"+strconv.FormatInt(int64(f.Offset), 10))
	add(headerTime, formatTime(f.Time))
	add(headerCause, string(f.Cause))
	add(headerReason, strings.ToValidUTF8(reason, ""))
	add(headerAttempts, strconv.Itoa(f.Attempts))
	add(headerFirst, formatTime(f.First))
	add(headerLast, formatTime(f.Last))
	add(headerDue, formatTime(f.Due))
	return r
}

// at returns r as it was at its origin. The headers of the move stay.
func (f *Failure) at(r record.Record) record.Record {
	r.Topic, r.Partition, r.Offset, r.Time = f.Origin.Topic, f.Origin.Partition, f.Offset, f.Time
	return r
}

func parseOrigin(s string) (tp record.TopicPartition, o record.Offset, ok bool) {
	parts := strings.Split(s, "/")
	if len(parts) != 3 {
		return tp, 0, false
	}
	p, err := strconv.ParseInt(parts[1], 10, 32)
	n, err2 := strconv.ParseInt(parts[2], 10, 64)
	if err != nil || err2 != nil {
		return tp, 0, false
	}
	return record.TopicPartition{Topic: parts[0], Partition: int32(p)}, record.Offset(n), true
}

// parseTime returns the zero time for what is none.
func parseTime(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}
	}
	return t.Local() // as a record's own time is
}

func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
