package group

import (
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/quorumlog/quorumlog/record"
)

// maxName is how long the name of a group, a member or a client may be, in bytes.
const maxName = 1024

// check reports everything that is wrong with a request, whatever the state.
func (req *Request) check(group string) error {
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	name := func(what, s string) {
		bad(!utf8.ValidString(s), "%s %q is not UTF-8", what, s)
		bad(len(s) > maxName, "%s has %d bytes, want at most %d", what, len(s), maxName)
	}
	partition := func(tp record.TopicPartition) {
		name("topic", tp.Topic)
		bad(tp.Topic == "", "a topic has no name")
		bad(tp.Partition < 0, "%v: the partition is negative", tp)
	}

	name("group", group)
	bad(group == "", "the group has no name")
	name("member", req.Member)
	bad(req.Generation < 0, "generation is %d, want at least 0", req.Generation)
	switch req.Op {
	case OpJoin:
		bad(req.Member == "", "the member has no id; take one from NewMember")
		name("client", req.Client)
		name("instance", req.Instance)
		name("member", req.Replaces)
		bad(len(req.Topics) == 0, "no topics are named")
		for _, topic := range req.Topics {
			name("topic", topic)
			bad(topic == "", "a topic has no name")
		}
		bad(req.SessionTimeout < 0 || req.SessionTimeout%time.Millisecond != 0,
			"SessionTimeout is %v, want whole milliseconds, or 0 for the default", req.SessionTimeout)
		switch req.Assignor {
		case "", Sticky, Range, RoundRobin:
		default:
			bad(true, "assignor %q is not known, use %q, %q or %q", req.Assignor, Sticky, Range, RoundRobin)
		}
	case OpHeartbeat:
		bad(req.Member == "", "the member has no id")
		for _, tp := range req.Owned {
			partition(tp)
		}
	case OpLeave:
		bad(req.Member == "", "the member has no id")
	case OpSettle:
		bad(req.Producer < 0 || req.Epoch < 1, "settle of producer %d, epoch %d", req.Producer, req.Epoch)
	case OpCommit, OpPend:
		bad(req.Producer < 0 || req.Epoch < 0, "producer is %d, epoch %d", req.Producer, req.Epoch)
		for _, o := range req.Offsets {
			partition(o.TopicPartition)
			bad(o.Offset < 0 || o.Offset == math.MaxInt64, "%v: offset is %d, want 0 to 2^63-2", o.TopicPartition, o.Offset)
			bad(!utf8.ValidString(o.Metadata), "%v: metadata is not UTF-8", o.TopicPartition)
			bad(len(o.Metadata) > MaxMetadata, "%v: metadata has %d bytes, want at most %d", o.TopicPartition, len(o.Metadata), MaxMetadata)
		}
	case OpDescribe:
	case OpCommitted:
		for _, tp := range req.Partitions {
			partition(tp)
		}
	default:
		bad(true, "operation %q is not known", req.Op)
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("group %q, %s: %w: %w", group, req.Op, record.ErrInvalid, errors.Join(errs...))
}
