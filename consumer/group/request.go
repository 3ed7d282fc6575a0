package group

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlog/quorumlog/record"
)

// Op says what a request asks for.
type Op string

const (
	// OpJoin makes a member, or changes one that is there already.
	OpJoin Op = "join"
	// OpHeartbeat keeps the session alive, gives partitions up and learns which
	// ones are granted.
	OpHeartbeat Op = "heartbeat"
	// OpLeave ends the membership and gives up all partitions at once.
	OpLeave Op = "leave"
	// OpCommit stores offsets: all of the request or none.
	OpCommit Op = "commit"
	// OpPend stores offsets that count when a transaction commits. Until it has
	// ended, OpCommitted for their partitions is record.ErrPending, and so is an
	// OpCommit with Rewind.
	OpPend Op = "pend"
	// OpSettle ends a transaction here. It is for the transaction's coordinator.
	OpSettle Op = "settle"
	// OpCommitted asks for stored offsets. It needs no membership.
	OpCommitted Op = "committed"
	// OpDescribe asks for the members and all stored offsets. It needs no
	// membership.
	OpDescribe Op = "describe"
)

// Request is one question to a group's coordinator. Every request may be sent
// again when its answer was lost. The comment of a field says which operations
// look at it. It travels as JSON, so all strings must be valid UTF-8.
type Request struct {
	Op Op
	// Member is the id of the member. All but committed. A new member chooses
	// it itself with [NewMember], so that a join that is sent twice makes one
	// member; an id is not used again after leaving or being fenced. A commit
	// without a member is accepted while the group has no members.
	Member string `json:",omitempty"`
	// Generation is the one of the last answer to this member, 0 before the
	// first. Heartbeat: what Owned leaves out counts as given up only when the
	// member has heard of the current generation. Commit: the generation in
	// which the member held the partitions, which may be older than the last
	// one it heard of; it must not be older than the grant.
	Generation record.Generation `json:",omitempty"`

	// Client names the member's process for people. Join.
	Client string `json:",omitempty"`
	// Instance makes the member a static one. Join. Whoever joins with the instance
	// of a member takes its place, with all it holds, and the other one is fenced;
	// so one that comes back within its session timeout finds its partitions.
	Instance string `json:",omitempty"`
	// Replaces is the id under which this member was known before it was fenced or
	// heard nothing, "" for a new one. Join. If it is a member still, this one takes
	// its place, so that a client is one member at most. A member that has one and
	// whose Instance somebody else has taken is refused.
	Replaces string `json:",omitempty"`
	// Topics are those the member wants to read, at least one. Join. A topic
	// that does not exist yet is taken up when it does.
	Topics []string `json:",omitempty"`
	// SessionTimeout is how long the coordinator waits for a heartbeat before
	// it gives the member's partitions to others. Join. Whole milliseconds;
	// 0 is the coordinator's default.
	SessionTimeout time.Duration `json:",omitempty"`
	// Assignor is the rule the member would like: [Sticky], [Range] or
	// [RoundRobin]; "" is [Sticky]. Join. The rule most members ask for is used.
	Assignor string `json:",omitempty"`

	// Owned is everything the member still holds: what it reads, or has read
	// and may still commit. Heartbeat. What was granted and is neither here nor
	// assigned any more is given up, and others may have it.
	Owned []record.TopicPartition `json:",omitempty"`

	// Producer and Epoch are the transaction's. Pend. Settle: the epoch is above it,
	// Settle says that it was committed, Coordinator is the epoch of who says so.
	Producer    record.ProducerID    `json:",omitempty"`
	Epoch       record.ProducerEpoch `json:",omitempty"`
	Settle      bool                 `json:",omitempty"`
	Coordinator record.LeaderEpoch   `json:",omitempty"`

	// Offsets are the positions to store. Commit, pend.
	Offsets []Offset `json:",omitempty"`
	// Rewind lets a commit go back. Commit, pend. Without it, an offset below the
	// stored one leaves the stored one as it is, and is no error.
	Rewind bool `json:",omitempty"`

	// Partitions are those whose offsets are asked for. Committed.
	Partitions []record.TopicPartition `json:",omitempty"`
}

// Offset is a committed offset: where a group resumes in one partition.
type Offset struct {
	record.TopicPartition
	// TopicID tells topics of one name apart. An offset replaces one of another id
	// whatever they are. Zero when nobody knows.
	TopicID record.TopicID `json:",omitzero"`
	// Offset is the next record to read. [record.NoOffset] in an answer: none
	// is committed.
	Offset record.Offset
	// Metadata is the committer's own note, up to [MaxMetadata] bytes.
	Metadata string `json:",omitempty"`
	// Time is when it was committed, in an answer to describe.
	Time time.Time `json:",omitzero"`
}

// MaxMetadata is how long the note of a committed offset may be, in bytes.
const MaxMetadata = 4096

// Response answers a request.
type Response struct {
	// Generation is the group's current one. Each change of who should hold
	// what raises it; that alone takes nothing away from anybody.
	Generation record.Generation
	// Assigned is everything the member should hold now, sorted. Join and
	// heartbeat. A partition is here only while it belongs to the member and to
	// nobody else. What the member holds and does not find here it must stop
	// reading, may still commit, and then leaves out of Owned. New ones appear
	// when their last owner has given them up or is gone, so the list may grow
	// without a new generation.
	Assigned []record.TopicPartition `json:",omitempty"`
	// Offsets has one element for each of Request.Partitions, in their order.
	// Committed. Describe: all there are, sorted by partition.
	Offsets []Offset `json:",omitempty"`
	// Members are those of the group, sorted by id. Describe.
	Members []Member `json:",omitempty"`
}

// NewMember returns a random member id.
func NewMember() string { return rand.Text() }

// ErrFull matches *FullError.
var ErrFull = errors.New("group is full")

// FullError says that a group takes no more members. Nothing was done.
type FullError struct {
	Group string
	Limit int // members
}

// Is reports whether target is ErrFull.
func (e *FullError) Is(target error) bool { return target == ErrFull }

func (e *FullError) Error() string {
	return fmt.Sprintf("group %q has %d members, its limit; close one first or raise the limit", e.Group, e.Limit)
}
