// Package record holds the words that all floors share (offsets, epochs,
// producer ids, errors) and the bytes of a record batch.
//
// A batch is encoded once, by a producer. Those bytes are what is stored,
// replicated and served; only a consumer takes them apart again. Everything
// between works with the header alone. The format is Kafka's RecordBatch v2,
// so that what other clients write can pass through as it is.
//
// # Batch
//
//	0                8        12       16      17       21           23
//	+----------------+--------+--------+-------+--------+------------+
//	| base offset    | length | leader | magic | crc    | attributes |
//	| int64          | int32  | epoch  | 2     | uint32 | int16      |
//	+----------------+--------+--------+-------+--------+------------+
//	23        27          35          43         51      53         57      61
//	+---------+-----------+-----------+----------+-------+----------+-------+---------
//	| last    | base      | max       | producer | epoch | base     | count | records
//	| offset  | timestamp | timestamp | id       |       | sequence |       |
//	| delta   | int64     | int64     | int64    | int16 | int32    | int32 |
//	+---------+-----------+-----------+----------+-------+----------+-------+---------
//
// Integers are big-endian. The length counts what comes after it. The CRC is
// CRC-32C (Castagnoli) of everything after it, from the attributes to the end,
// so a leader writes base offset and leader epoch in place without touching
// it. Times are ms since 1970: base is the first record's, max the latest.
// Without a producer id, the id, its epoch and the base sequence are -1.
//
//	attributes   bit  0-2  codec of the records: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd
//	                  3    all records have the max timestamp: that of the append
//	                  4    transactional
//	                  5    control: one record, whose key is a ControlType
//	                  6    base timestamp was changed by compaction; of no matter here
//	                  7-15 must be 0
//
// Offsets and sequences follow from the last offset delta, not from the count:
// compaction may take records out, even all of them, and leaves the range.
//
// # Records
//
// The records follow one another without a gap, as one compressed run if the
// batch has a codec. Numbers in them are varints of the zigzag form.
//
//	+--------+------------+-----------+--------+----------+----------+---------------------+
//	| length | attributes | timestamp | offset | key      | value    | headers             |
//	|        | byte, 0    | delta     | delta  | n, bytes | n, bytes | count, (key, value) |
//	+--------+------------+-----------+--------+----------+----------+---------------------+
//
// The length counts what comes after it. Deltas are against the base of the
// batch; those of times may be negative, those of offsets rise. Keys and values
// have their length before them, -1 for none, which is not the same as empty. A
// header's key cannot be none.
//
// # What is trusted
//
// Bytes from a disk or a network are not. Batch.CheckHeader looks at the header
// and makes the accessors safe, Batch.Check adds the checksum, and an Iterator
// checks the records themselves as it goes: deltas in range, lengths exact,
// nothing missing and nothing left over. No length or count makes room for more
// than the bytes that are there can hold, or than Iterator.MaxBytes.
//
// # Memory and concurrency
//
// Batches are values: reading one from many goroutines is safe, and after a
// leader has stamped it nobody writes to it again. Records that an Iterator
// returns share memory with the batch, or with what was decompressed from it,
// and stay valid for as long as they are kept. A Builder and an Iterator belong
// to one goroutine at a time.
package record
