// Package log keeps one partition's entries on one node: segment files behind
// one another, as one log that is appended to, read by offset and by entry
// number, cut at its end and trimmed at its beginning. It knows nothing of Raft
// and nothing of other nodes.
//
// # Files
//
//	00000000000000000000.log        entries (package segment), the only truth
//	00000000000000000000.index      offset and entry to position (package index), derived
//	00000000000000000000.timeindex  time to offset (package index), derived
//	00000000000000184000.log        the active segment: the last one, which is appended to
//	reset                           for a moment: all segments are to go, this one stays
//	00000000000000184000.log.damaged  of which nothing could be told; not used
//
// A file is named after the first offset in it. It rolls before an append would
// take it above Config.SegmentBytes, and by Config.SegmentAge, but never while it holds no offset, so that
// names do not clash. File names and headers keep start and end of a log whose records
// are all trimmed. Other files in the directory are left alone.
//
// # Crash rules
//
//   - A segment is synced, then its indexes are written, then the next segment is made
//     durable, then it is appended to. So all of a sealed segment is on disk, and
//     whatever is wrong in it is damage.
//   - In the active segment a bad entry is a torn write, unless an entry behind it,
//     or the index, says that it was on disk. What is torn is cut off, and what is left
//     is synced, before Open returns: what a reader has seen stays. It is written
//     once more before that: after a sync that failed, systems take pages for written
//     that are on no disk. The directory is synced too: whoever made or removed a
//     file may have been stopped before.
//   - Damage is a hole: Open goes on behind it, at the next entry whose header checks,
//     and reads in it are a *CorruptError until Fill writes again what another replica has. A
//     damaged header is computed from its checksum if one byte of it is wrong; a file
//     of which nothing can be told is renamed to "….damaged" and is a hole too. Nothing
//     newer is deleted, and opening again gives the same holes.
//   - The index beside the active segment, written by Close, says how far all was on
//     disk; Open scans only behind it. It is removed, durably, before bytes it
//     speaks of are cut, and so is the time index.
//   - A time index that is missing or wrong is built where it is needed: by Open for
//     the active segment, for a sealed one by the first OffsetForTime that comes by. The
//     next roll or Close writes it.
//   - Truncation removes whole segments newest first, trimming oldest first, one
//     durable step each: in between there is always a log without a gap.
//   - A failed write is cut off again, durably, before Append returns. If that
//     fails, or a sync does, what is on disk is unknown, and the log takes no more
//     writes until it is opened again.
//
// # Who may call what at once
//
// Everything may be called at once. Append, Write, TruncateTo, TrimTo, Fill, Reset
// and Close wait for each other, and syncs do: a Sync only holds up what syncs too.
// Readers wait for nobody and hold up nobody: they
// load an immutable view of the segments, take a reference on the one they read,
// so that it is not closed under them, and read with pread. Only a cut takes
// bytes from a published view; a reader that finds one was made meanwhile reads
// again.
package log
