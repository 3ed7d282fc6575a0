package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// readLoad reads the first line of /proc/stat (proc(5)), whose ticks are 10 ms, and
// what this process and its children have used.
func readLoad() load {
	l := load{at: time.Now()}
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return l
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line) // cpu user nice system idle iowait irq softirq steal ...
	if len(fields) < 9 {
		return l
	}
	for i, f := range fields[1:9] {
		ticks, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return l
		}
		if i != 3 && i != 4 {
			l.all += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var used syscall.Rusage
		if syscall.Getrusage(who, &used) != nil {
			return l
		}
		l.ours += time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	l.known = true
	return l
}
