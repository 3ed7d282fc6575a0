package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"
)

// median returns the middle of what f says about the samples.
func median[T int | float64 | time.Duration](samples []sample, f func(sample) T) T {
	all := make([]T, len(samples))
	for i, s := range samples {
		all[i] = f(s)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func p50(s sample) time.Duration { return s.quantile(0.5) }
func p99(s sample) time.Duration { return s.quantile(0.99) }

func printHead(w io.Writer) {
	fmt.Fprintln(w, "| # | who | figure | p50 | p99 | ratio | goal | configuration | durable at the ack | runs |")
	fmt.Fprintln(w, "|---|---|--:|--:|--:|--:|---|---|---|---|")
}

// printRows writes a scenario's rows. A ratio is the first row's measure divided by
// the row's own.
func printRows(w io.Writer, s scenario, results []result) {
	of := ""
	if s.by == byP50 {
		of = "of p50"
	}
	fmt.Fprintf(w, "| **%s** | **%s** | **%s** | | | %s | | | | |\n", s.id, s.title, s.unit.name, of)
	first := results[0]
	for i, r := range results {
		if r.err != nil {
			fmt.Fprintf(w, "| %s | %s | failed | | | | %s | %s | %s | |\n", s.id, r.who, r.judge(0, 0), r.config, r.durable)
			continue
		}
		figure := median(r.samples, s.unit.of)
		var ratio float64
		var ratioText string
		if i > 0 && first.err == nil && s.by != byNothing {
			ratio = s.measure(first) / s.measure(r)
			ratioText = number(ratio)
		}
		config := r.config
		if note := r.samples[0].note; note != "" {
			config += ", " + note
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", s.id, r.who, number(figure),
			micros(median(r.samples, p50)), micros(median(r.samples, p99)), ratioText, r.judge(ratio, figure), config, r.durable, r.runs())
	}
}

// measure returns what ratios of s are made of.
func (s scenario) measure(r result) float64 {
	if s.by == byP50 {
		return float64(median(r.samples, p50))
	}
	return median(r.samples, s.unit.of)
}

// judge says what became of the row's goal. A ratio of 0 is none.
func (r result) judge(ratio, figure float64) string {
	switch {
	case r.goal == goal{}:
		return ""
	case r.err != nil || ratio == 0 && !r.goal.own:
		return "not measured"
	}
	return r.goal.verdict(ratio, figure)
}

// runs says how many runs the medians are of, and what became of the others.
func (r result) runs() string {
	n := len(r.samples)
	switch {
	case r.disturbed == 0:
		return fmt.Sprint(n)
	case r.disturbed == n:
		return fmt.Sprintf("%d, all disturbed", n)
	}
	return fmt.Sprintf("%d of %d", n, n+r.disturbed)
}

// number writes f with three digits at least.
func number(f float64) string {
	if f < 100 {
		return strconv.FormatFloat(f, 'f', max(0, 2-digits(f)), 64)
	}
	s := fmt.Sprintf("%.0f", f)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// digits returns how many digits stand before the point of f, less one.
func digits(f float64) int {
	n := 0
	for ; f >= 10; f /= 10 {
		n++
	}
	return n
}

func micros(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f µs", float64(d)/float64(time.Microsecond))
}
