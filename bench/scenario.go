package main

import (
	"context"
	"slices"
	"time"
)

// scenario asks the same of everyone. The first row is what the others are
// measured against.
type scenario struct {
	id, title string
	rows      []row
}

// row is one way to do what a scenario asks.
type row struct {
	who     string
	config  string // what differs from the defaults
	durable string // what an acknowledgement, or the data read, stands on
	run     func(ctx context.Context, e env) (sample, error)
}

// env is what a run gets.
type env struct {
	dir      string // empty, removed after the run
	size     int    // bytes of a record's value
	duration time.Duration
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
	records int
	took    time.Duration
	waits   []time.Duration // of each call, where each was waited for
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
