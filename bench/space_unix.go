//go:build linux || darwin

package main

import "syscall"

// freeSpace returns how many bytes may be written where dir is.
func freeSpace(dir string) (int64, bool) {
	var s syscall.Statfs_t
	if syscall.Statfs(dir, &s) != nil {
		return 0, false
	}
	return int64(s.Bavail) * int64(s.Bsize), true
}
