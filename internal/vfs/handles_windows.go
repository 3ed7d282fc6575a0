package vfs

import (
	"syscall"

	"golang.org/x/sys/windows"
)

// outOfDescriptors are the errors that say that no file can be opened because
// too many are, in the process or in the system.
var outOfDescriptors = []error{windows.ERROR_TOO_MANY_OPEN_FILES, syscall.EMFILE, syscall.ENFILE}

// DefaultLimit returns how many handles a Capped may keep without getting in the
// way of the program around it: 512, as the system sets no limit of that kind.
func DefaultLimit() int { return defaultLimit }
