package main

import (
	"os"
	"syscall"
)

// dataSync puts a file's bytes and length on disk, as quorumlog does.
func dataSync(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }
