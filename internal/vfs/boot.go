package vfs

import (
	"os"
	"strings"
)

// Boot names the run of the system that keeps what was written and not synced.
// While it stays the same, nothing of that was lost, whatever became of the
// process. "" if it cannot be told: then it must be taken for another each time.
func Boot(fsys FS) string {
	if b, ok := fsys.(interface{ boot() string }); ok {
		return b.boot()
	}
	return ""
}

// boot is Linux's; other systems have no such file. A directory that outlives
// the machine, on a network say, has its unsynced bytes in this machine's memory too.
func (*OSFS) boot() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (m *Mem) boot() string { return m.run }

func (c *Capped) boot() string { return Boot(c.fs) }
