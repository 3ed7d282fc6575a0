// Package vfs is the seam between the log and the file system. OS is the
// machine's file system, NewOS the same with syncs that take no threads; Mem is
// one in memory that crashes, forgets and fails on demand. Everything below package replica touches files through FS only.
//
// # What is durable
//
// Two things are synced apart, as POSIX has it: the bytes of a file by
// File.Sync, its name by SyncDir of its directory. A new file whose bytes were
// synced is still lost if its name was not. MkdirAll needs no SyncDir.
//
//	not synced        after a crash
//	a written page    is there, is not, or is zero (4 KiB; the last write tears anywhere)
//	the length        any page border between the old and the new, or one of them
//	a truncate        done, or not done and what was written behind it not either
//	a name            the first so many creates, renames and removes of each directory
//
// A rename is one step: the new name shows the old file or the new one, never
// neither. A failed Sync loses for good: the pages that it should have written
// are readable until the crash but a later Sync does not save them; only
// writing them again does. So does Linux, and so does Mem.
//
// # Who may call what at once
//
// All methods of an FS. Of a File, ReadAt beside everything, the rest from one
// goroutine at a time.
package vfs
