package consumer

import "fmt"

// CommitMoment says when Run commits what its handler deals with. It counts for
// Run alone; who polls commits by hand. Whatever the moment and the order in
// which workers finish, a commit never passes a record that is not finished.
type CommitMoment int8

const (
	// AfterHandler commits as soon as the handler has finished, many records in
	// one commit when it is fast: at least once. After a crash those records come
	// again that were finished in the last moments, some ten milliseconds.
	// Default.
	AfterHandler CommitMoment = iota
	// OnReceipt commits what was fetched before the handler sees any of it: at
	// most once. After a crash, what was fetched and not handled is never seen
	// again. A member that is closed, or that gives a partition up, takes back
	// what it has not handled, so that alone loses nothing.
	OnReceipt
	// OnTimer commits what is finished every [Config.CommitInterval]: at least
	// once, and more comes again after a crash.
	OnTimer
	// EachRecord commits each record before the next one of its order is handled:
	// at least once, and after a crash at most the records under way come again.
	// Each record costs a round trip to the coordinator's quorum.
	EachRecord
	// ByHand leaves it to [Group.CommitFinished], [Group.Commit] and their like.
	ByHand
)

// String returns "after the handler", "on receipt", "on a timer", "each record" or "by hand".
func (m CommitMoment) String() string {
	switch m {
	case AfterHandler:
		return "after the handler"
	case OnReceipt:
		return "on receipt"
	case OnTimer:
		return "on a timer"
	case EachRecord:
		return "each record"
	case ByHand:
		return "by hand"
	}
	return fmt.Sprintf("CommitMoment(%d)", int8(m))
}
