package main

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// scenario asks the same of everyone. The first row is what the others are
// measured against.
type scenario struct {
	id, title string
	unit      unit // of the rows' figures
	by        measure
	rows      []row
	once      bool // one run of each row is enough, in the first table only
}

// row is one way to do what a scenario asks.
type row struct {
	who     string
	config  string // what differs from the defaults
	durable string // what an acknowledgement, or the data read, stands on
	goal    goal
	run     func(ctx context.Context, e env) (sample, error)
}

// unit says what a row's figure is.
type unit struct {
	name string
	of   func(sample) float64
}

var (
	recordsPerSecond   = unit{"records/s", sample.perSecond}
	batchesPerSecond   = unit{"batches/s", sample.perSecond}
	syncsPerSecond     = unit{"syncs/s", sample.perSecond}
	megabytesPerSecond = unit{"MB/s", func(s sample) float64 { return s.perSecond() / 1e6 }}
	seconds            = unit{"s", func(s sample) float64 { return s.took.Seconds() }}
	mebibytes          = unit{"MiB", func(s sample) float64 { return s.figure / (1 << 20) }}
	allocations        = unit{"allocations", func(s sample) float64 { return s.figure }}
)

// measure is what ratios and goals of a scenario compare.
type measure int

const (
	byFigure measure = iota
	byP50            // the median wait, in µs where a goal names it
	byNothing
)

// env is what a run gets.
type env struct {
	dir        string // empty, removed after the run
	size       int    // bytes of a record's value
	duration   time.Duration
	large      int64 // bytes of a large partition
	partitions int   // of a topic, at the most
	profiled   *profiled
}

// prepared is called where what a row measures begins long after its run.
func (e env) prepared() { e.profiled.restart() }

// in returns e for a directory below its own.
func (e env) in(name string) env {
	e.dir = filepath.Join(e.dir, name)
	return e
}

// value returns the payload of a record: the same for everyone.
func (e env) value() []byte {
	v := make([]byte, e.size)
	for i := range v {
		v[i] = byte('a' + i%26)
	}
	return v
}

// sample is what one run has measured.
type sample struct {
	records int // what the scenario's unit counts
	took    time.Duration
	waits   []time.Duration // of each call, where each was waited for
	figure  float64         // where the unit is no rate
	note    string          // what the run was made of, where that depends on the machine
}

func (s sample) perSecond() float64 { return float64(s.records) / s.took.Seconds() }

// quantile returns the wait that a share q of all did not exceed.
func (s sample) quantile(q float64) time.Duration {
	if len(s.waits) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s.waits))
	return sorted[int(q*float64(len(sorted)-1))]
}

// calls calls one again and again for d, each writing records, and measures each. The
// first is not counted: after it connections, identities and routes are there.
func calls(d time.Duration, records int, one func() error) (sample, error) {
	if err := one(); err != nil {
		return sample{}, err
	}
	var s sample
	began := time.Now()
	for last := began; ; {
		if err := one(); err != nil {
			return s, err
		}
		now := time.Now()
		s.waits = append(s.waits, now.Sub(last))
		s.records += records
		s.took = now.Sub(began)
		if last = now; s.took >= d {
			return s, nil
		}
	}
}

// stream calls send for d without waiting for results, then settle, which waits for
// all of them; that counts too.
func stream(d time.Duration, send func() error, settle func() error) (sample, error) {
	const between = 64 // looks at the clock
	var s sample
	began := time.Now()
	for time.Since(began) < d {
		for range between {
			if err := send(); err != nil {
				return s, err
			}
		}
		s.records += between
	}
	err := settle()
	s.took = time.Since(began)
	return s, err
}

// together adds up what went on at the same time.
func together(each []sample) sample {
	var all sample
	for _, s := range each {
		all.records += s.records
		all.took = max(all.took, s.took)
		all.waits = append(all.waits, s.waits...)
	}
	return all
}

// firstError keeps the first error of many calls back, which cost no allocation.
type firstError struct {
	mu  sync.Mutex
	err error
}

func (f *firstError) note(err error) {
	if err == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

func (f *firstError) get() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}
