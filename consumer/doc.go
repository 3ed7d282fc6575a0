// Package consumer reads topics: alone with [Read], or as a member of a group
// with [Join].
//
// # Readers
//
// [Read] is a sequence over one partition or all of them. One goroutine per
// partition (one in all for a read that ends at the end) fetches ahead of the
// loop and hands over whole fetches, so the cost of a channel is paid per
// megabyte and not per record. Keys and values alias the fetched bytes, which
// are never reused: a reader may keep them, and then keeps the fetch alive.
//
// # Groups
//
// The members of a group share the partitions of its topics; the coordinator
// decides who owns what and keeps the committed offsets. A member owns these
// goroutines from [Join] to [Group.Close]:
//
//	session   sends heartbeats; says which partitions the member holds, learns
//	          which it should hold; joins again when it was fenced
//	keeper    makes the one match the other: looks up committed offsets, starts
//	          and stops feeds, calls OnAssigned and OnRevoked
//	feed      one per partition: fetches and decodes at most two fetches ahead
//
// Records are handed out on the caller's goroutine by [Group.Poll], one
// partition at a time, in turns; or they are handled by [Group.Run], which owns
// its workers and one goroutine that commits, until it returns.
//
// # How a partition moves
//
//	coordinator no longer lists it   -> Poll hands out nothing more of it
//	its last batch is committed, or
//	Poll is called again             -> OnRevoked, feed ends
//	next heartbeat does not name it  -> coordinator grants it to the new owner
//	new owner's heartbeat lists it   -> committed offset, OnAssigned, feed starts
//
// So a graceful move repeats no record, and partitions that stay with their
// owner never pause. A handler that hangs holds its partition back for as long
// as it hangs: heartbeats go on beside it.
//
// A member that the coordinator has given up (no heartbeat within the session
// timeout) is fenced: it drops all partitions, commits of what it was handling
// fail with *[record.FencedError], and it joins again as a new member. A member
// that hears nothing for as long gives itself up in the same way.
//
// A commit never passes a record the handler has not finished, and a failed or
// interrupted batch is handed out again from its first unfinished record.
package consumer
