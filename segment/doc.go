// Package segment keeps a run of one partition's entries in an append-only file,
// named after its base offset (00000000000000184000.log), and finds them again
// by offset, by entry number and by time. The .index and the .timeindex beside it
// are derived (package index).
//
// # File
//
// A header of 80 bytes, then entries, one behind the other:
//
//	 0                8       12     16         32            40
//	+----------------+-------+------+----------+-------------+------------+
//	| magic QLOGSEGM | ver 1 | crcA | topic id | base offset | base entry |
//	+----------------+-------+------+----------+-------------+------------+
//	 48          56        64       72          76      80
//	+-----------+---------+--------+-----------+-------+
//	| prev term | created | latest | partition | crcB  |
//	+-----------+---------+--------+-----------+-------+
//
// crcA covers bytes 0..12 and is in the same place in every version, so that an
// unknown version is told from damage; crcB covers bytes 0..76. "prev term" is
// the term of the entry before the first one, 0 if there was none: with it an
// empty log still knows where it stands. "created" is when the file was made, by
// the writer's clock in ms since 1970, and "latest" the latest such time of this
// segment and those before it: they differ after the clock was set back. What the
// segments before hold was appended before "created", so no entry needs a time.
//
// # Entry
//
//	 0     4         8        16     24            32            36     37         40       40+length
//	+-----+---------+--------+------+-------------+-------------+------+----------+---------+
//	| crc | length  | number | term | base offset | payload crc | kind | unsynced | payload |
//	+-----+---------+--------+------+-------------+-------------+------+----------+---------+
//
// Integers are big-endian; checksums are CRC-32C. crc covers the file header's
// bytes 0..76 and then the entry's bytes 4..40, so an entry of another segment is
// no entry here, wherever its bytes come from. kind: 1 batch, 2 no-op, 3 barrier,
// 4 configuration, 5 command. The payload of a batch is a record batch whose offset, epoch,
// length and checksum equal base offset, term, length and payload crc here, and
// whose magic is 2: the bytes that its own checksum leaves out are covered too.
// Other payloads are covered by payload crc, and take no offset: their base
// offset is the log end offset at that place.
//
// "unsynced" is how many of the entries just before this one were not known to
// be on disk when it was written; 2^24-1 stands for that many or more.
//
// # Crash rules
//
// What was written but not synced may be there, be missing or be zero, page by
// page, in any order. So a bad entry is one of two things:
//
//   - torn, if no entry behind it proves that it was on disk: it and all that
//     follows was never acknowledged by a sync, and recovery cuts it off;
//   - damage, if a later entry says ("unsynced") that the bad one was on disk when
//     the later one was written, or if the .index says so: it is a hole, nothing is cut.
//
// # Who may call what at once
//
// What a segment holds is an Extent, a value. One goroutine appends and cuts and
// so makes new extents; any number may read beside it with the one they have,
// as long as they hold a reference. Cut takes bytes away from older extents.
package segment
