// Package consumer reads topics: alone with [Read], or as a member of a group
// with [Join]. A node offers both as methods.
//
// # Which one
//
//	Read          one reader sees everything and remembers nothing: replay, export,
//	              a cache that is filled anew at each start
//	Join, Run     many processes share the work, and go on where the group was
//	Join, Poll    the same, batch by batch, for who has a loop of its own
//
// # Readers
//
//	for r, err := range node.Read(ctx, "orders", FromTime(noon), UntilEnd()) {
//
// A read begins at the start, the end, an offset or a time; it ends at the end as
// it was, or follows what comes until ctx ends; it takes one partition or all,
// [Backwards] if asked, from the leader or from a follower [Nearby]. [CaughtUp]
// tells when everything that was there has been seen.
//
// One goroutine per partition (one in all for a read that ends at the end)
// fetches ahead of the loop and hands over whole fetches, so the cost of a channel
// is paid per megabyte and not per record. Keys and values alias the fetched bytes,
// which are never reused: a reader may keep them, and then keeps the fetch alive.
//
// # Groups
//
//	g, err := node.Group(ctx, "billing", []string{"orders"}, Config{Workers: 8})
//	...
//	err = g.Run(ctx, func(ctx context.Context, r Record) error { return bill(ctx, r.Value) })
//
// The members of a group share the partitions of its topics; the coordinator
// decides who owns what and keeps the committed offsets, from which the next owner
// goes on. Members that find no partition left stand by.
//
// With one worker the records of a partition are handled in order. With more, those
// of each key are: a partition is split by key into lanes, and one worker at a time
// is on a lane. Whatever finishes first, only the prefix of a partition in which
// every record is finished is committed.
//
// # When a commit is made, and what a crash does
//
//	Config.Commit   handled again after a crash             never handled
//	AfterHandler    what was finished in the last moments   nothing
//	EachRecord      what was being handled                  nothing
//	OnTimer         what was finished since the last commit nothing
//	ByHand          what you have not committed             what you committed too early
//	OnReceipt       nothing                                 what was fetched and not handled
//
// A member that is closed, or gives a partition up, commits what it has finished
// first. With several workers, records finished out of order are handled again by
// the next owner. To handle each record exactly once, keep the offset where the
// result is: in a transaction of package txn, or in a database of your own with
// [Config.ResumeAt]; examples/sqlite shows the second.
//
// # When a handler fails
//
// Without a [RetryPolicy] Run ends with the handler's error; a panic is a
// [PanicError]. With one, the record is tried again in place, moved through retry
// topics with growing delays, and at last to the dead letters, where
// [DeadLetters] lists it, sends it back or drops it. [Permanent] goes there at once.
// The record's copy and the offset behind it are one transaction: whenever the process
// dies, the record is moved once. A record that is to be moved therefore waits until
// those in front of it in its partition are finished; no other handler waits for it. Only where
// offsets are not committed behind the handler ([OnReceipt], [ByHand]), or with a
// [Mover] that has no transactions, the copy comes first and the commit later: a crash
// between the two repeats the move and loses nothing.
//
// # What is running
//
// A member owns these goroutines from [Join] to [Group.Close]:
//
//	session   sends heartbeats; says which partitions the member holds, learns
//	          which it should hold; joins again when it was fenced
//	keeper    makes the one match the other: looks up committed offsets, starts
//	          and stops feeds, calls OnAssigned and OnRevoked
//	feed      one per partition: keeps at most two fetches ahead
//
// Poll hands records out on the caller's goroutine, one partition at a time, in
// turns. Run owns its workers and one goroutine that commits, until it returns; the
// caller's goroutine hands records to the lanes. All of [Group]'s state is under one
// lock, which nobody holds while waiting or while a handler runs.
//
// # How a partition moves
//
//	coordinator no longer lists it   -> nothing more of it is handed out
//	what is finished is committed, or
//	Poll is called again             -> OnRevoked, feed ends
//	next heartbeat does not name it  -> coordinator grants it to the new owner
//	new owner's heartbeat lists it   -> committed offset, OnAssigned, feed starts
//
// Partitions that stay with their owner never pause. Two things take partitions
// from a member that does not give them up:
//
//	SessionTimeout    the coordinator has not heard of it: the process is gone, or
//	                  cut off
//	ProgressTimeout   the member itself sees that its handler is at one record for
//	                  too long, or that nobody polls: it leaves, and joins again
//	                  when there is progress
//
// Either way its commits of what it was handling fail with *[record.FencedError],
// or are passed over by Run, and the next owner handles the same records. A member
// that hears nothing for a session timeout gives itself up in the same way. A
// static member ([Config.InstanceID]) that comes back within its session timeout
// finds its partitions.
//
// # Nothing stops without a word
//
// A record is handled, moved or handed out again. What cannot go on comes out of
// Poll and Run as an error: a topic that is gone, damaged data, a record that cannot
// be moved for two minutes, and a group that for a ProgressTimeout cannot be joined
// again, takes no commit, or does not say where to begin. What may pass is tried again and told to [Config.Logger]. A group
// that stands still is seen from outside with [Lags] and [Lag.Stalled].
package consumer
