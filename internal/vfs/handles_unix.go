//go:build unix

package vfs

import "golang.org/x/sys/unix"

// outOfDescriptors are the errors that say that no file can be opened because
// too many are, in the process or in the system.
var outOfDescriptors = []error{unix.EMFILE, unix.ENFILE}

// DefaultLimit returns how many handles a Capped may keep without getting in the
// way of the program around it: a quarter of what the process may have open, at
// least 64 and at most 4096.
func DefaultLimit() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return defaultLimit
	}
	return int(min(max(uint64(limit.Cur)/4, lowestLimit), highestLimit))
}
