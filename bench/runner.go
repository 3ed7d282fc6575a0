package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"time"
)

// result is what a row came to over all rounds.
type result struct {
	row
	samples   []sample
	disturbed int // runs that something else on the machine disturbed
	err       error
	top       top // of the first run, where it was profiled
}

// runner runs scenarios.
type runner struct {
	size       int
	duration   time.Duration // of each run
	rounds     int
	touch      int           // bytes of memory touched before each run
	limit      time.Duration // of each run, its opening and closing included
	large      int64         // bytes of a large partition
	partitions int           // of a topic, at the most
	profiles   string        // a directory for CPU profiles; "" is none
}

// disturbedAbove is the share of the machine's time that others may take in a run.
const disturbedAbove = 0.10

// run runs the rows of a scenario in turns. Runs that were disturbed are left out,
// unless a row has no others.
func (r runner) run(ctx context.Context, s scenario) []result {
	results := make([]result, len(s.rows))
	quiet := make([][]sample, len(s.rows))
	for i, row := range s.rows {
		results[i].row = row
	}
	rounds := r.rounds
	if s.once {
		rounds = 1
	}
	for round := range rounds {
		for k := range s.rows {
			i := (k + round) % len(s.rows) // nobody is always first
			res := &results[i]
			if res.err != nil {
				continue
			}
			var prof *profiled
			if r.profiles != "" && i == 0 && round == 0 {
				prof = new(profiled)
			}
			sample, disturbed, err := r.once(ctx, s.rows[i], prof)
			if err == nil && prof != nil {
				res.top, err = prof.save(r.profiles, s.id)
			}
			if err != nil {
				res.err = fmt.Errorf("%s, %s: %w", s.id, res.who, err)
				continue
			}
			res.samples = append(res.samples, sample)
			if disturbed {
				res.disturbed++
			} else {
				quiet[i] = append(quiet[i], sample)
			}
		}
	}
	for i := range results {
		if len(quiet[i]) > 0 {
			results[i].samples = quiet[i]
		}
	}
	return results
}

func (r runner) once(ctx context.Context, row row, prof *profiled) (s sample, disturbed bool, err error) {
	dir, err := os.MkdirTemp("", "quorumlog-bench-")
	if err != nil {
		return sample{}, false, err
	}
	defer os.RemoveAll(dir)
	r.touchMemory()
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	e := env{dir: dir, size: r.size, duration: r.duration, large: r.large, partitions: r.partitions, profiled: prof}
	before := readLoad()
	if err := prof.start(); err != nil {
		return sample{}, false, err
	}
	s, err = row.run(ctx, e)
	prof.stop()
	return s, readLoad().others(before) > disturbedAbove, err
}

// touchMemory writes to each page of a heap as large as a run needs: a virtual
// machine may hand out a page's first touch ten times slower than the next.
func (r runner) touchMemory() {
	pages := make([]byte, r.touch)
	for i := 0; i < len(pages); i += 4096 {
		pages[i] = 1
	}
	runtime.KeepAlive(pages)
	pages = nil
	runtime.GC()
}

// load is what the processors had done by a moment.
type load struct {
	at        time.Time
	all, ours time.Duration // busy, summed over processors
	known     bool
}

// others returns the share of the machine's time since before that went to others,
// 0 where the system does not tell.
func (l load) others(before load) float64 {
	if !l.known || !before.known {
		return 0
	}
	theirs := (l.all - before.all) - (l.ours - before.ours)
	return float64(theirs) / float64(l.at.Sub(before.at)*time.Duration(runtime.NumCPU()))
}
